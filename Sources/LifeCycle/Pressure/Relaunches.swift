public import AppStateContract

/// An application that is started again in the background (`RelaunchReclaimed=`).
public struct Relaunch: Equatable, Sendable {
    public let id: ApplicationID
    public let user: UInt32
    public let session: SessionKey

    func isSame(as other: Relaunch) -> Bool { id == other.id && user == other.user }
}

/// Applications that were ended because memory was short and will be started again, one after the other. If
/// all of them were started at once, they would be ended again.
struct Relaunches: Equatable, Sendable {
    private var waiting: [Relaunch] = []
    private var begun: [(relaunch: Relaunch, at: Microseconds)] = []
    private var earliest: Microseconds = 0

    /// How long memory is watched before the next one is started.
    static let pause: Microseconds = 10_000_000
    /// An application that is ended this often within an hour is not started again: this machine has too
    /// little memory for it.
    static let mostInAnHour = 3
    private static let hour: Microseconds = 3_600_000_000
    private static let most = 64

    static func == (left: Self, right: Self) -> Bool {
        left.waiting == right.waiting && left.earliest == right.earliest
            && left.begun.map(\.relaunch) == right.begun.map(\.relaunch)
            && left.begun.map(\.at) == right.begun.map(\.at)
    }

    /// - Returns: whether it will be started again.
    mutating func add(_ relaunch: Relaunch, at now: Microseconds) -> Bool {
        begun.removeAll { now - min(now, $0.at) >= Self.hour }
        guard begun.count(where: { $0.relaunch.isSame(as: relaunch) }) < Self.mostInAnHour else {
            return false
        }
        waiting.removeAll { $0.isSame(as: relaunch) }
        guard waiting.count < Self.most else { return false }
        waiting.append(relaunch)
        return true
    }

    /// When the next one may be started; nil: none waits.
    var nextDue: Microseconds? { waiting.isEmpty ? nil : earliest }

    /// The application that must be started now; nil: it is not yet time.
    mutating func takeDue(at now: Microseconds) -> Relaunch? {
        guard !waiting.isEmpty, now >= earliest else { return nil }
        earliest = now.advanced(saturatingBy: Self.pause)
        let relaunch = waiting.removeFirst()
        begun.append((relaunch, now))
        if begun.count > Self.most { begun.removeFirst() }
        return relaunch
    }
}

extension Machine {
    /// An application was ended because memory was short, and will be started again.
    mutating func noteReclaimed(_ application: Application) {
        guard application.rule?.relaunchReclaimed == true else { return }
        let relaunch = Relaunch(id: application.id, user: application.user, session: application.session)
        if !relaunches.add(relaunch, at: step.now) {
            step.effects.append(.notice(application.number, .notRelaunched(Relaunches.mostInAnHour)))
        }
    }

    /// Starts one when memory is no longer short at all, because the started application must not be ended
    /// next.
    mutating func relaunchReclaimed() {
        guard isMemoryAmple, let relaunch = relaunches.takeDue(at: step.now) else { return }
        step.effects.append(.relaunch(relaunch))
    }

    /// When the next one is started; nil: none waits, or memory is short.
    var nextRelaunch: Microseconds? { isMemoryAmple ? relaunches.nextDue : nil }

    private var isMemoryAmple: Bool { pressure.level == .normal && !pressure.isEventOpen }
}
