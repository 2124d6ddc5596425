public import AppStateContract

/// An application that is started again in the background (`RelaunchReclaimed=`).
public struct Relaunch: Equatable, Sendable {
    public let id: ApplicationID
    public let user: UInt32
    public let session: SessionKey

    func isSame(as other: Relaunch) -> Bool { id == other.id && user == other.user }
}

/// Applications that were ended because memory was short and will be started again, one after the other. If all of them
/// were started at once, they would be ended again.
struct Relaunches: Equatable, Sendable {
    private struct Begun: Equatable {
        let relaunch: Relaunch
        let at: Microseconds
    }

    private var waiting: [Relaunch] = []
    private var begun: [Begun] = []
    private var earliest: Microseconds = 0

    /// How long memory is watched before the next one is started.
    static let pause: Microseconds = 10_000_000
    /// An application that is ended this often within an hour is not started again: this machine has too
    /// little memory for it.
    static let mostInAnHour = 3
    /// The most of one user that wait.
    static let mostWaiting = 16
    private static let hour: Microseconds = 3_600_000_000

    /// - Returns: why it will not be started again; nil: it will.
    mutating func add(_ relaunch: Relaunch, at now: Microseconds) -> String? {
        begun.removeAll { now - min(now, $0.at) >= Self.hour }
        guard begun.count(where: { $0.relaunch.isSame(as: relaunch) }) < Self.mostInAnHour else {
            return "it was started again \(Self.mostInAnHour) times within an hour"
        }
        // It may have been started by hand meanwhile, and ended again.
        waiting.removeAll { $0.isSame(as: relaunch) }
        guard waiting.count(where: { $0.user == relaunch.user }) < Self.mostWaiting else {
            return "\(Self.mostWaiting) other applications of its user wait to be started again"
        }
        waiting.append(relaunch)
        return nil
    }

    /// When the next one may be started; nil: none waits.
    var nextDue: Microseconds? { waiting.isEmpty ? nil : earliest }

    /// The application that must be started now; nil: it is not yet time.
    mutating func popDue(at now: Microseconds) -> Relaunch? {
        guard now >= earliest, !waiting.isEmpty else { return nil }
        earliest = now.advanced(saturatingBy: Self.pause)
        begun.append(Begun(relaunch: waiting.removeFirst(), at: now))
        return begun.last?.relaunch
    }
}
