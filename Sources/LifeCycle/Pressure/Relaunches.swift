public import AppStateContract

/// An application that is started again in the background (`RelaunchReclaimed=`).
public struct Relaunch: Equatable, Sendable {
    public let id: ApplicationID
    public let user: UInt32
    public let session: SessionKey

    func isSame(as other: Relaunch) -> Bool { id == other.id && user == other.user }
}

/// Why an application that was ended because memory was short is not started again.
public enum NoRelaunch: Hashable, Sendable, CustomStringConvertible {
    /// It was started again so often within an hour that it does not fit on this machine.
    case often(Int)
    /// So many others of its user wait to be started again.
    case othersWait(Int)
    /// So many applications of its user were started again within an hour, or wait for it.
    case manyOfUser(Int)

    public var description: String {
        switch self {
        case .often(let times): "it was started again \(times) times within an hour"
        case .othersWait(let count): "\(count) other applications of its user wait to be started again"
        case .manyOfUser(let count):
            "\(count) applications of its user were started again within an hour, or wait for that"
        }
    }
}

/// Applications that were ended because memory was short and will be started again, one after the other. If all of them
/// were started at once, they would be ended again.
///
/// Each user has a queue, and the users take turns: no user takes another user's places, or waits for another user's whole
/// queue.
struct Relaunches: Equatable, Sendable {
    private struct Begun: Equatable {
        let relaunch: Relaunch
        let at: Microseconds
    }

    private struct Queue: Equatable {
        var waiting: [Relaunch] = []
        var begun: [Begun] = []

        var isEmpty: Bool { waiting.isEmpty && begun.isEmpty }
    }

    private var queues: [UInt32: Queue] = [:]
    /// The users for whom something waits; the next one is first.
    private var turns: [UInt32] = []
    private var earliest: Microseconds = 0

    /// How long memory is watched before the next one is started.
    static let pause: Microseconds = 10_000_000
    /// An application that is ended this often within an hour is not started again: this machine has too
    /// little memory for it.
    static let mostInAnHour = 3
    /// The most of one user that wait.
    static let mostWaiting = 16
    /// The most starts of one user's applications within an hour: each that may wait, as often as it may be started.
    static let mostOfUserInAnHour = mostWaiting * mostInAnHour
    private static let hour: Microseconds = 3_600_000_000

    /// - Returns: why it will not be started again; nil: it will.
    mutating func add(_ relaunch: Relaunch, at now: Microseconds) -> NoRelaunch? {
        forgetOld(at: now)
        var queue = queues[relaunch.user] ?? Queue()
        guard queue.begun.count(where: { $0.relaunch.isSame(as: relaunch) }) < Self.mostInAnHour else {
            return .often(Self.mostInAnHour)
        }
        // It may have been started by hand meanwhile, and ended again.
        queue.waiting.removeAll { $0.isSame(as: relaunch) }
        guard queue.waiting.count < Self.mostWaiting else { return .othersWait(Self.mostWaiting) }
        guard queue.begun.count + queue.waiting.count < Self.mostOfUserInAnHour else {
            return .manyOfUser(Self.mostOfUserInAnHour)
        }
        queue.waiting.append(relaunch)
        queues[relaunch.user] = queue
        if !turns.contains(relaunch.user) { turns.append(relaunch.user) }
        return nil
    }

    /// When the next one may be started; nil: none waits.
    var nextDue: Microseconds? { turns.isEmpty ? nil : earliest }

    /// The application that must be started now; nil: it is not yet time.
    mutating func takeDue(at now: Microseconds) -> Relaunch? {
        guard now >= earliest, let user = turns.first, var queue = queues[user] else { return nil }
        earliest = now.advanced(saturatingBy: Self.pause)
        turns.removeFirst()
        let relaunch = queue.waiting.removeFirst()
        queue.begun.append(Begun(relaunch: relaunch, at: now))
        if !queue.waiting.isEmpty { turns.append(user) }
        queues[user] = queue
        return relaunch
    }

    private mutating func forgetOld(at now: Microseconds) {
        for user in Array(queues.keys) {
            queues[user]?.begun.removeAll { now - min(now, $0.at) >= Self.hour }
            if queues[user]?.isEmpty == true { queues[user] = nil }
        }
    }
}

extension Machine {
    /// An application was ended because memory was short.
    ///
    /// - Returns: whether it will be started again.
    mutating func noteReclaimed(_ application: Application) -> Bool {
        guard application.rule?.relaunchReclaimed == true else { return false }
        let relaunch = Relaunch(id: application.id, user: application.user, session: application.session)
        guard let why = relaunches.add(relaunch, at: step.now) else { return true }
        step.effects.append(.notice(application.number, .notRelaunched(why)))
        return false
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
