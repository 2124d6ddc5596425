public import AppStateContract

/// The machine's data about one registered application. ForeignStop may read it; only the machine changes it.
public struct Application: Equatable, Sendable {
    public let number: ApplicationNumber
    public let id: ApplicationID
    public let process: ProcessID
    public let user: UInt32
    public let session: SessionKey
    /// CLOCK_MONOTONIC, microseconds.
    public let registeredAt: Microseconds
    /// It was launched with state that an earlier run had saved.
    let isRestored: Bool

    public internal(set) var state: LifeCycleState = .notRunning
    public internal(set) var stateSince: Microseconds
    public internal(set) var delegate: ConnectionName?
    public internal(set) var suspension: SuspensionPolicy
    public internal(set) var reclaimable: Bool
    /// The modes that the application requested and the configuration grants.
    public internal(set) var backgroundModes: [String] = []
    public internal(set) var tasks: [BackgroundTask] = []
    /// The last transfers whose ends it was told, oldest first; at most `transferLimit`.
    var transfers: [String] = []
    /// Why reporters say that policy must not suspend it: sorted words, such as `audio`.
    public internal(set) var reportedReasons: [String] = []
    /// Holds that we enforce. They never have the reason `signal`, which is `stop.foreignHolder`.
    public internal(set) var holds: [Hold] = []
    /// Which programs have stopped it, and the progress of our own stop.
    public internal(set) var stop = StopStatus()
    public internal(set) var isFocused = false
    public internal(set) var isMinimized = false
    /// It has said that unsaved data would be lost if it ended.
    public internal(set) var saysUnsaved = false
    /// One of its windows shows the mark of unsaved changes.
    public internal(set) var hasUnsavedMark = false
    var registrant: Registrant
    /// The level that its windows would give it if it were neither stopped nor launching.
    public internal(set) var windowLevel: WindowLevel = .hidden
    /// The event to which it has not responded, until it responds again; nil: it is responsive.
    public internal(set) var unresponsive: UnresponsiveEvent?
    /// `Mode=observe`: policy would have suspended it by now.
    public internal(set) var wouldBeSuspended = false
    /// What prevented the last suspension that policy wanted.
    public internal(set) var objection: String?
    /// The objection counts until policy tries again, after this grace period.
    var isObjected = false
    /// Its user's settings for it.
    public internal(set) var rule: Rule?
    /// What clients read of policy's plans for it, as of its last change.
    public internal(set) var outlook = Outlook()
    /// Clients that keep policy from suspending it, in the order of their calls.
    public internal(set) var inhibitors: [Inhibitor] = []
    /// It had inhibitors when the previous daemon ended. They may come back.
    var wasInhibited = false
    /// Changes with what `ListWindows` says about its windows, as far as it depends on these.
    var windowDigest = 0
    /// Which program needed it when it was last suspended, and why.
    public internal(set) var demand: String?
    /// What needed it of late, and how often.
    public internal(set) var demands = Demands()
    var answering: Answering?
    /// CLOCK_MONOTONIC of when its last drain was due.
    var drainedAt: Microseconds = 0
    /// The last steps, oldest first; at most `traceLimit`.
    public internal(set) var trace: [TraceEntry] = []

    static let traceLimit = 16

    var requestedSuspension: SuspensionPolicy
    var requestedReclaimable: Bool
    var requestedModes: [String]
    /// It was registered with `launch-mode` foreground, and no reporter has reported on it yet.
    var isAssumedVisible: Bool
    var windows: Set<WindowKey> = []
    var launch: Countdown?
    var grace: Grace = .none
    var termination: Termination?
    var backlog = Backlog()
    /// The state that its delegate knows.
    var announcedState = LifeCycleState.notRunning
    /// The screen of its session is locked, as last announced to it, or as it was when the application began.
    public internal(set) var isLocked = false
    var protection: Protection?
    /// Its delegate answers pings.
    var answersPings = false
    /// The ping that it has not answered.
    var ping: Ping?
    /// CLOCK_MONOTONIC of the last ping.
    var pingedAt: Microseconds?
    var lastSerial: UInt64 = 0
    var lastTask: UInt64 = 0

    /// A party that wants it suspended, and the reason.
    public struct Hold: Hashable, Sendable {
        public let reason: HoldReason
        public let holder: String
    }

    /// A client that keeps policy from suspending it (`Inhibit`).
    public struct Inhibitor: Equatable, Sendable {
        let id: UInt64
        public let who: String
        public let why: String

        public init(_ id: UInt64, who: String, why: String) {
            self.id = id
            self.who = who
            self.why = why
        }
    }

    /// What policy plans for it, and what keeps policy from it.
    public struct Outlook: Equatable, Sendable {
        /// What is known to speak against suspending it, without an examination of its processes.
        public internal(set) var objections: [String] = []
        /// CLOCK_MONOTONIC at which policy suspends it at the latest; nil: it will not.
        public internal(set) var deadline: Microseconds?
        /// nil: it would not be ended for its memory.
        public internal(set) var rank: ReclaimPolicy.Rank?
    }

    /// A background task that is running.
    public struct BackgroundTask: Equatable, Sendable {
        public let id: UInt64
        public let name: String
        /// The connection with which it ends; nil: it ends by itself.
        let owner: ConnectionName?
        let warning: Microseconds
        /// nil: it does not tell its progress.
        public internal(set) var progress: Progress?
        var limit: Countdown
        var isWarned = false
        /// Its user wants it to end.
        var isCancelled = false

        /// CLOCK_MONOTONIC; `never` while the limit is paused, or if there is none.
        public var deadline: Microseconds { limit.deadline ?? .never }

        /// When it is to be warned or, after the warning, ended.
        var nextDeadline: Microseconds? {
            limit.deadline.map { isWarned ? $0 : $0 - min($0, warning) }
        }
    }

    /// The level that its windows give an application.
    public enum WindowLevel: Int, Comparable, Sendable {
        case hidden, visible, focused

        public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// It was notified that its protected data becomes unavailable. Policy waits for its acknowledgement.
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
        registrant = registration.registrant
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

    /// The pure function of the facts that determines the state (§ 2).
    public var target: LifeCycleState {
        if launch != nil { return .notRunning }
        if isStopped { return .suspended }
        return switch windowLevel {
        case .focused: .active
        case .visible: .inactive
        case .hidden: .background
        }
    }

    /// It executes nothing, except during a drain.
    public var isStopped: Bool { stop.isStopped }

    /// A stop or a continuation was ordered but has not been observed yet.
    public var isPending: Bool {
        if case .closing = stop.drain { return true }
        return stop.enforcement == .stopping || stop.enforcement == .continuing
    }

    /// Whether its delegate reads the signals that are sent to it.
    var isReachable: Bool { !isStopped && stop.enforcement == .none }

    /// As far as is known, ending it would lose data. It is ended after all others (§ 6).
    public var hasUnsavedChanges: Bool { saysUnsaved || countsUnsavedMark }
    /// A window shows the mark, and the user's rule does not disregard it.
    public var countsUnsavedMark: Bool { hasUnsavedMark && rule?.unsavedMark != false }

    public var isAdopted: Bool { registrant == .adopter }
    public var awaitsOwnRegistration: Bool { registrant == .launcher }
    public var isLaunching: Bool { launch != nil }
    /// Whether a window of it is visible to the user, or counts as visible until a reporter reports on it.
    public var isVisible: Bool { windowLevel > .hidden }
    /// Whether its windows are what they appear to be: a suspended application shows a picture of them.
    var isLive: Bool { state == .active || state == .inactive || state == .background }
    /// Its launch in the foreground is under way: it will show a window without being told to.
    public var willAppear: Bool { isLaunching && isAssumedVisible }
    /// It was launched, and it is not known yet whether it will register itself.
    public var isBeingLaunched: Bool { awaitsOwnRegistration && launch != nil }
    public var isTerminating: Bool { termination != nil }
    /// It is being ended because memory is short.
    public var isBeingReclaimed: Bool { termination?.verdict == .reclaimed }

    /// All holds, the foreign one last, as the property `SuspendHolds` shows them.
    public var allHolds: [Hold] {
        holds + (stop.foreignHolder.map { [Hold(reason: .signal, holder: $0)] } ?? [])
    }

    /// The reasons that keep policy from suspending it once its grace period is over.
    public var objections: [String] {
        var objections = tasks.map { "background task \($0.name)" }
        objections += backgroundModes.map { "background mode \($0)" }
        objections += countedReasons.map { "reported \($0)" }
        objections += inhibitors.map { "inhibited by \($0.who): \($0.why)" }
        if rule?.suspendWhen == .sleep { objections.append("SuspendWhen=sleep") }
        if let quota = rule?.backgroundCPUQuota { objections.append("BackgroundCPUQuota=\(quota)%") }
        return objections
    }

    /// The highest level of its windows at which policy still suspends it.
    var eligibleLevel: WindowLevel { rule?.suspendWhen == .inactive ? .visible : .hidden }

    var isHeldForSleep: Bool { holds.contains { $0.reason == .sleep } }

    /// It is in a state in which policy suspends it.
    var isEligible: Bool {
        state == .background || state == .inactive && windowLevel == .visible && eligibleLevel == .visible
    }

    /// The reasons that reporters give, limited to those that the user's rule accepts.
    var countedReasons: [String] {
        guard let counting = rule?.keepWhile else { return reportedReasons }
        return reportedReasons.filter(counting.contains)
    }

    /// Whether work of this kind keeps policy from suspending it. The user's rule may list what does.
    public func counts(_ reason: ObjectionReason) -> Bool {
        rule?.keepWhile?.contains(reason.rawValue) ?? reason.isDefault
    }

    /// It was adopted because it has a window, and nobody wants anything of it: its state is known, and it yields in the
    /// background by its weights.
    public var isMirrored: Bool { isAdopted && rule == nil && suspension != .automatic }

    /// The percentage of one processor that it gets now, if its user's rule limits it; nil: it is not limited.
    public var cpuQuota: UInt32? { isEligible || state == .suspended ? rule?.backgroundCPUQuota : nil }

    /// Something without a time limit keeps policy from suspending it.
    var hasObjection: Bool {
        !backgroundModes.isEmpty || !countedReasons.isEmpty || !inhibitors.isEmpty
            || rule?.backgroundCPUQuota != nil || rule?.suspendWhen == .sleep
            || tasks.contains { $0.limit == .endless }
    }

    /// The microseconds that are left before policy suspends it, if policy suspends anything at all in its session;
    /// `never` if policy will not suspend it.
    func backgroundTimeRemaining(at now: Microseconds) -> Microseconds {
        guard isEligible, suspension == .automatic, !isTerminating, !hasObjection else {
            return .never
        }
        var remaining: Microseconds = 0
        if case .running(_, let countdown, _) = grace { remaining = countdown.remaining(at: now) ?? .never }
        for task in tasks { remaining = max(remaining, task.limit.remaining(at: now) ?? .never) }
        if let protection { remaining = max(remaining, protection.limit.remaining(at: now) ?? .never) }
        return remaining
    }

    /// CLOCK_MONOTONIC of the launch timeout; nil if none is running.
    public var launchDeadline: Microseconds? { launch?.deadline }

    /// CLOCK_MONOTONIC of SIGKILL; nil if no end was requested.
    public var killDeadline: Microseconds? { termination?.dueKill }

    /// The earliest of all times that its timers wait for.
    var nextDeadline: Microseconds? {
        let others = [
            launchDeadline, graceDeadline, termination?.nextDue, stop.drainDeadline,
            protection?.limit.deadline, isServing ? answering?.end : nil, ping?.deadline,
            postponedDemand,
        ]
        return (tasks.map(\.nextDeadline) + others).lazy.compactMap(\.self).min()
    }

    /// The connections that have a part in it.
    var connections: [ConnectionName] { (tasks.map(\.owner) + [delegate]).compactMap { $0 } }

    mutating func nextSerial() -> UInt64 {
        lastSerial += 1
        return lastSerial
    }
}

/// One step of one application: what happened, and how it changed the state. The journal, `Explain` and the
/// simulator print the same line, so that a line from a user's machine can be used in a test.
public struct TraceEntry: Equatable, Sendable, CustomStringConvertible {
    /// CLOCK_MONOTONIC, microseconds.
    public let time: Microseconds
    public let reason: StateChangeReason
    public let from: LifeCycleState
    public let to: LifeCycleState
    public let level: Application.WindowLevel
    public let isStopped: Bool
    public let enforcement: StopStatus.Enforcement
    /// The reasons of the holds, in the order they were taken.
    public let holds: [HoldReason]

    public var description: String {
        var line = "\(Self.seconds(time)) \(reason.rawValue): "
        line +=
            from == to ? from.rawValue : from.walk(to: to).reduce(from.rawValue) { "\($0)→\($1.to.rawValue)" }
        line += " windows=\(level)"
        if isStopped { line += " stopped" }
        if enforcement != .none { line += " enforcement=\(enforcement.rawValue)" }
        if !holds.isEmpty { line += " holds=" + holds.map(\.rawValue).joined(separator: ",") }
        return line
    }

    /// `12.000345`
    static func seconds(_ time: Microseconds) -> String {
        let fraction = String(time % 1_000_000)
        return "\(time / 1_000_000)." + String(repeating: "0", count: 6 - fraction.utf8.count) + fraction
    }
}
