public import AppStateContract

/// An application of a user, whether or not it runs.
public struct ScheduleOwner: Hashable, Sendable {
    public let user: UInt32
    public let application: ApplicationID

    public init(user: UInt32, application: ApplicationID) {
        self.user = user
        self.application = application
    }
}

/// A launch that an application has asked for (`ScheduleLaunch`).
public struct ScheduledLaunch: Hashable, Sendable {
    public let owner: ScheduleOwner
    /// The application's own name for it. An application has one launch of each name.
    public let name: String
    public let trigger: Trigger

    public enum Trigger: Hashable, Sendable {
        /// CLOCK_REALTIME, in microseconds.
        case time(Microseconds)
        case network
        case power

        public var kind: LaunchTrigger {
            switch self {
            case .time: .time
            case .network: .network
            case .power: .power
            }
        }
    }

    public init(owner: ScheduleOwner, name: String, trigger: Trigger) {
        self.owner = owner
        self.name = name
        self.trigger = trigger
    }
}

extension ScheduledLaunch {
    fileprivate var order: (UInt32, String, String) { (owner.user, owner.application.rawValue, name) }
}

/// All scheduled launches: those that wait for their trigger, and those that are due and wait for a session agent.
struct Schedule: Equatable, Sendable {
    private enum Phase: Equatable {
        case waiting
        /// It is being launched.
        case underWay
        /// It is launched as soon as an agent can do that.
        case due
    }

    private struct Entry: Equatable {
        let launch: ScheduledLaunch
        var phase = Phase.waiting
    }

    private var entries: [ScheduleOwner: [Entry]] = [:]

    /// The most of one application.
    static let mostOfApplication = 16

    var isEmpty: Bool { entries.isEmpty }

    /// In the order in which they were scheduled.
    func launches(of owner: ScheduleOwner) -> [ScheduledLaunch] { entries[owner]?.map(\.launch) ?? [] }

    func count(ofUser user: UInt32) -> Int {
        entries.reduce(0) { $1.key.user == user ? $0 + $1.value.count : $0 }
    }

    /// All of them in order, and whether each is due.
    var all: [(launch: ScheduledLaunch, isDue: Bool)] {
        entries.values.joined().map { ($0.launch, $0.phase != .waiting) }
            .sorted { $0.launch.order < $1.launch.order }
    }

    /// CLOCK_REALTIME of the next one that waits for a moment.
    var nextTime: Microseconds? {
        entries.values.joined().compactMap { entry in
            if case .time(let time) = entry.launch.trigger, entry.phase == .waiting { time } else { nil }
        }.min()
    }

    /// Whether one waits for this.
    func awaits(_ trigger: LaunchTrigger) -> Bool {
        entries.values.joined().contains { $0.phase == .waiting && $0.launch.trigger.kind == trigger }
    }

    /// Replaces the one with the same name.
    mutating func add(_ launch: ScheduledLaunch) {
        var own = entries[launch.owner] ?? []
        own.removeAll { $0.launch.name == launch.name }
        own.append(Entry(launch: launch))
        entries[launch.owner] = own
    }

    /// - Parameter name: nil: all of this application.
    /// - Returns: whether there was one.
    mutating func remove(_ owner: ScheduleOwner, name: String?) -> Bool {
        let before = entries[owner]?.count ?? 0
        entries[owner]?.removeAll { name == nil || $0.launch.name == name }
        let after = entries[owner]?.count ?? 0
        if after == 0 { entries[owner] = nil }
        return after < before
    }

    /// Those that wait and for which `isDue` is true; they are being launched from now on.
    mutating func begin(waitingFor isDue: (ScheduledLaunch.Trigger) -> Bool) -> [ScheduledLaunch] {
        beginAll { $0.phase == .waiting && isDue($0.launch.trigger) }
    }

    /// Those of a user that are due; they are being launched from now on.
    mutating func beginDue(of user: UInt32) -> [ScheduledLaunch] {
        beginAll { $0.phase == .due && $0.launch.owner.user == user }
    }

    private mutating func beginAll(_ isMeant: (Entry) -> Bool) -> [ScheduledLaunch] {
        var begun: [ScheduledLaunch] = []
        for (owner, own) in entries {
            for (index, entry) in own.enumerated() where isMeant(entry) {
                entries[owner]?[index].phase = .underWay
                begun.append(entry.launch)
            }
        }
        return begun.sorted { $0.order < $1.order }
    }

    /// The launch is over. One that was scheduled anew meanwhile stays.
    ///
    /// - Parameter isKept: it is tried again when an agent comes.
    /// - Returns: whether it was removed.
    mutating func settle(_ launch: ScheduledLaunch, isKept: Bool) -> Bool {
        guard
            let index = entries[launch.owner]?.firstIndex(where: {
                $0.launch == launch && $0.phase == .underWay
            })
        else { return false }
        entries[launch.owner]?[index].phase = .due
        return !isKept && remove(launch.owner, name: launch.name)
    }
}
