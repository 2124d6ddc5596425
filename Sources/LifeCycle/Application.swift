public import AppStateContract

/// What the machine knows of one registered application. Read from outside, changed by the machine only.
public struct Application: Equatable, Sendable {
    public let number: ApplicationNumber
    public let id: ApplicationID
    public let process: ProcessID
    public let user: UInt32
    public let session: SessionKey
    /// CLOCK_MONOTONIC, microseconds.
    public let registeredAt: Microseconds
    /// Somebody took it in of his own accord, and its process may register itself instead.
    public let isAdopted: Bool
    /// It was launched with state that an earlier run had saved.
    let isRestored: Bool

    public internal(set) var state: LifeCycleState = .notRunning
    public internal(set) var stateSince: Microseconds
    public internal(set) var delegate: ConnectionName?
    public internal(set) var suspension: SuspensionPolicy
    public internal(set) var reclaimable: Bool
    /// The modes the application asked for that the configuration grants.
    public internal(set) var backgroundModes: [String] = []
    public internal(set) var tasks: [BackgroundTask] = []
    /// Why reporters say that policy must not suspend it: sorted words, such as `audio`.
    public internal(set) var reportedReasons: [String] = []
    /// Holds that we enforce: never of reason `signal`, which is `stop.others`.
    public internal(set) var holds: [Hold] = []
    /// Who has it stopped, and how far our own stop has come.
    public internal(set) var stop = StopStatus()
    public internal(set) var isFocused = false
    public internal(set) var isMinimized = false
    /// It has said that its end would lose something.
    public internal(set) var saysUnsaved = false
    /// One of its windows shows the mark of changes that are not saved.
    public internal(set) var hasUnsavedMark = false
    /// How far its windows bring it, were it not stopped or launching.
    public internal(set) var windowLevel: WindowLevel = .hidden
    /// The session agent has started it, and its process has not registered itself.
    public internal(set) var awaitsOwnRegistration = false
    /// What it has not answered, until it answers again; nil: it answers.
    public internal(set) var unresponsive: UnresponsiveEvent?
    /// `Mode=observe`: policy would have suspended it since.
    public internal(set) var wouldBeSuspended = false
    /// What spoke against the last suspension that policy or pressure wanted.
    public internal(set) var objection: String?
    /// What its user says of it.
    public internal(set) var rule: Rule?
    /// Who needed it when it was suspended last, and what for.
    public internal(set) var demand: String?
    /// It is about to run because somebody needs it: its grace is no shorter than it takes to answer.
    var isNeeded = false
    /// The last steps, oldest first; at most `traceLimit`.
    public internal(set) var trace: [TraceEntry] = []

    static let traceLimit = 16

    var requestedSuspension: SuspensionPolicy
    var requestedReclaimable: Bool
    var requestedModes: [String]
    /// Registered with `launch-mode` foreground and not reported on yet.
    var isAssumedVisible: Bool
    var windows: Set<WindowKey> = []
    var launch: Countdown?
    var grace: Grace = .none
    var termination: Termination?
    var backlog = Backlog()
    /// The state that its delegate knows of.
    var toldState = LifeCycleState.notRunning
    /// The screen of its session is locked: what it was told of its protected data, or began with.
    var isLocked = false
    var protection: Protection?
    var lastSerial: UInt64 = 0
    var lastTask: UInt64 = 0

    /// Who wants it suspended, and why.
    public struct Hold: Hashable, Sendable {
        public let reason: HoldReason
        public let holder: String
    }

    /// A background task that runs.
    public struct BackgroundTask: Equatable, Sendable {
        public let id: UInt64
        public let name: String
        let owner: ConnectionName
        let warning: Microseconds
        var limit: Countdown
        var isWarned = false

        /// CLOCK_MONOTONIC; 0 while the limit stands still or there is none.
        public var deadline: Microseconds { limit.deadline ?? 0 }

        /// When it is to be warned, or, once it was, ended.
        var nextDeadline: Microseconds? {
            limit.deadline.map { isWarned ? $0 : $0 - min($0, warning) }
        }
    }

    /// How far an application's windows bring it.
    public enum WindowLevel: Int, Comparable, Sendable {
        case hidden, visible, focused

        public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// The time an application has in the background before policy suspends it.
    enum Grace: Equatable, Sendable {
        case none
        case running(serial: UInt64?, Countdown)
        case over
    }

    /// It was told that its protected data becomes unavailable: policy waits for its acknowledgement.
    struct Protection: Equatable, Sendable {
        let serial: UInt64
        let limit: Countdown
    }

    init(_ number: ApplicationNumber, _ registration: Registration, at now: Microseconds) {
        self.number = number
        id = registration.id
        process = registration.process
        user = registration.user
        session = registration.session
        registeredAt = now
        isAdopted = registration.adopted
        awaitsOwnRegistration = registration.launched
        isRestored = registration.isRestored
        stateSince = now
        delegate = registration.delegate
        requestedSuspension = registration.suspension ?? (registration.byItself ? .automatic : .manual)
        requestedReclaimable = registration.reclaimable
        requestedModes = registration.backgroundModes
        suspension = requestedSuspension
        reclaimable = requestedReclaimable
        isAssumedVisible =
            (registration.launchMode ?? (registration.byItself ? .foreground : .background)) == .foreground
    }

    /// The pure function of the facts that decides the state (§ 2).
    public var target: LifeCycleState {
        if launch != nil { return .notRunning }
        if isStopped { return .suspended }
        return switch windowLevel {
        case .focused: .active
        case .visible: .inactive
        case .hidden: .background
        }
    }

    /// It executes nothing, but for a breath.
    public var isStopped: Bool { stop.isStanding }

    /// A stop or a continuation was ordered and not seen yet.
    public var isPending: Bool { stop.enforcement == .stopping || stop.enforcement == .continuing }

    /// Its delegate reads what it is sent.
    var isReachable: Bool { !isStopped && stop.enforcement == .none }

    /// Ending it would lose something, as far as anybody knows: it goes after all others (§ 6).
    public var hasUnsavedChanges: Bool { saysUnsaved || countsUnsavedMark }
    /// The mark of a window says so, and its user's rule does not say otherwise.
    public var countsUnsavedMark: Bool { hasUnsavedMark && rule?.unsavedMark != false }

    public var isLaunching: Bool { launch != nil }
    /// It was launched, and it is not known yet whether it will register itself.
    public var isBeingLaunched: Bool { awaitsOwnRegistration && launch != nil }
    public var isTerminating: Bool { termination != nil }
    /// It is being ended because memory is short.
    public var isBeingReclaimed: Bool { termination?.verdict == .reclaimed }

    /// All holds, the foreign one last, as the property `SuspendHolds` shows them.
    public var allHolds: [Hold] {
        holds + (stop.others.map { [Hold(reason: .signal, holder: $0)] } ?? [])
    }

    /// What keeps policy from suspending it once its grace is over.
    public var exemptions: [String] {
        tasks.map { "background task \($0.name)" } + backgroundModes.map { "background mode \($0)" }
            + countedReasons.map { "reported \($0)" }
            + (rule?.backgroundCPUQuota.map { ["slowed to \($0) % of a processor"] } ?? [])
    }

    /// How far its windows may bring it, and policy suspends it.
    var restingLevel: WindowLevel { rule?.suspendWhen == .inactive ? .visible : .hidden }

    /// It is where policy suspends it.
    var isResting: Bool {
        state == .background || state == .inactive && windowLevel == .visible && restingLevel == .visible
    }

    /// What reporters say, as far as the user's rule has it count.
    private var countedReasons: [String] {
        guard let counting = rule?.keepWhile else { return reportedReasons }
        return reportedReasons.filter(counting.contains)
    }

    /// Whether work of this kind keeps policy from suspending it: all does, unless the user's rule says which.
    public func counts(_ reason: ObjectionReason) -> Bool {
        rule?.keepWhile?.contains(reason.rawValue) ?? true
    }

    /// Percent of one processor that it is to have now, where its user's rule slows it; nil: as much as it gets.
    public var cpuQuota: UInt32? { isResting || state == .suspended ? rule?.backgroundCPUQuota : nil }

    /// Something without a limit keeps policy from suspending it.
    var isExemptForNow: Bool {
        !backgroundModes.isEmpty || !countedReasons.isEmpty || rule?.backgroundCPUQuota != nil
    }

    /// CLOCK_MONOTONIC of the end of the grace; nil where none runs.
    public var graceDeadline: Microseconds? {
        if case .running(_, let countdown) = grace { return countdown.deadline }
        return nil
    }

    /// Microseconds that are left before policy suspends it; the greatest number where it will not be.
    public func backgroundTimeRemaining(at now: Microseconds) -> Microseconds {
        guard isResting, suspension == .automatic, !isTerminating, !isExemptForNow else {
            return .max
        }
        var remaining: Microseconds = 0
        if case .running(_, let countdown) = grace { remaining = countdown.remaining(at: now) ?? .max }
        for task in tasks { remaining = max(remaining, task.limit.remaining(at: now) ?? .max) }
        if let protection { remaining = max(remaining, protection.limit.remaining(at: now) ?? .max) }
        return remaining
    }

    /// CLOCK_MONOTONIC of the launch timeout; nil where none runs.
    public var launchDeadline: Microseconds? { launch?.deadline }

    /// CLOCK_MONOTONIC of SIGKILL; nil where no end was asked for.
    public var killDeadline: Microseconds? { termination?.dueKill }

    /// Everything that its timers wait for, the earliest.
    var nextDeadline: Microseconds? {
        let others = [
            launchDeadline, graceDeadline, termination?.nextDue, stop.breathDeadline,
            protection?.limit.deadline,
        ]
        return (tasks.map(\.nextDeadline) + others).lazy.compactMap(\.self).min()
    }

    /// Bytes of text that it has us keep.
    public var textBytes: Int {
        requestedModes.reduce(0) { $0 + $1.utf8.count } + tasks.reduce(0) { $0 + $1.name.utf8.count }
            + backlog.textBytes
    }

    mutating func nextSerial() -> UInt64 {
        lastSerial += 1
        return lastSerial
    }
}
