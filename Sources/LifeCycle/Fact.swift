public import AppStateContract

/// Something that happened. Facts cannot fail and are not argued with.
public enum Fact: Equatable, Sendable {
    /// The pidfd became readable. `status`: the exit status or the signal, where it is known.
    case exited(ProcessID, ExitReason, status: Int32? = nil)
    /// Its main process was looked at. `sender`: somebody else, who was seen to stop it just before.
    case looked(ApplicationNumber, Standing, sender: String? = nil)
    /// `stop` has been carried out: all of it stand.
    case stopCompleted(ApplicationNumber)
    /// `resume` or `continueForeign` has been carried out, and its main process stands like this.
    case resumeCompleted(ApplicationNumber, Standing)
    /// What we held was found not to be the application, or not all of it, and was let go.
    case stopLost(ApplicationNumber)
    /// What `check` has found.
    case checked(ApplicationNumber, CheckFinding)
    /// Somebody needs it, in words: who, and what for. What suspends it because nobody does, gives way.
    case needed(ApplicationNumber, String)
    /// Somebody waits for what an application holds that policy or pressure has suspended: a file lock, say.
    case objected(ApplicationNumber, String)
    /// A stop cannot be carried out at all: the process runs as another user since, say.
    case stopFailed(ApplicationNumber, String)
    /// Somebody else continues it as fast as we stop it.
    case contested(ApplicationNumber)
    /// These sources of memory pressure are watched, and no others.
    case pressureSources([PressureSource])
    /// A trigger of the source has fired: for `warning` or for `critical`.
    case pressureTriggered(PressureSource, MemoryPressure)
    /// What `alarmMemory` has waited for: memory was taken, it is worth a look.
    case memoryTaken(PressureSource)
    /// What `sampleMemory` has found.
    case memorySampled(PressureSource, MemorySample)
    /// What `measureMemory` has found: bytes, and which are in the cgroup of each source that is a part of the machine.
    case memoryMeasured(
        [ApplicationNumber: UInt64], members: [PressureSource: Set<ApplicationNumber>] = [:])
    /// `pageOut` is over, and has brought so much.
    case pagedOut(ApplicationNumber, bytes: UInt64 = 0)
    /// `reclaim` found that it must not be: it runs again, say.
    case spared(ApplicationNumber, String)
    /// The bus connection has ended.
    case disconnected(ConnectionName)
    /// logind: the session is in front and unlocked, or not; and, in front or not, whether its screen is locked.
    case session(SessionKey, inFront: Bool, isLocked: Bool = false)
    /// The machine is about to be shut down, or is not any more.
    case shutdownPrepared(Bool)
    /// logind: there is no such session any more, so that nothing in it can be seen.
    case sessionEnded(SessionKey)
    /// The clock, the time zone or the day is another.
    case timeChanged(TimeChange)
    /// The configuration was read.
    case configured(Settings)
    /// The deadline that `nextDeadline` named has come.
    case timePassed
}

/// What a look has found that speaks against a stop.
public enum CheckFinding: Equatable, Sendable {
    /// Nothing. `stands`: whether it still stands, where it did before the look.
    case clear(stands: Bool)
    /// A debugger, say, in words.
    case objection(String)
}

/// What `Register` tells of a process.
public struct Registration: Equatable, Sendable {
    public var id: ApplicationID
    public var process: ProcessID
    public var user: UInt32
    public var session: SessionKey
    /// The process asked for itself.
    public var byItself = false
    /// The connection that is the delegate from the start: then launching takes until `FinishLaunching`.
    public var delegate: ConnectionName?
    /// nil: `foreground` for a process that registers itself, which is just being launched;
    /// `background` for one that another registers: no window is known of it.
    public var launchMode: LaunchMode?
    /// nil: `automatic` for a process that registers itself, else `manual` (§ 4).
    public var suspension: SuspensionPolicy?
    public var reclaimable = true
    public var backgroundModes: [String] = []
    /// Somebody took the process in of his own accord: it gives way to the process's own registration.
    public var adopted = false
    /// The session agent started it for `Launch`: its own registration takes this application over.
    public var launched = false
    /// What it was launched for: its delegate is told once it has launched.
    public var deliveries: [Announcement] = []
    /// A wrapper that was launched, in whose place this process is.
    public var wrapper: ApplicationNumber?
    /// The process was stopped when it was looked at.
    public var stopped = false
    /// There is state that an earlier run of the same id has saved.
    public var isRestored = false

    public init(id: ApplicationID, process: ProcessID, user: UInt32, session: SessionKey) {
        self.id = id
        self.process = process
        self.user = user
        self.session = session
    }
}

/// Who reports windows, and for which session.
public struct ReporterIdentity: Equatable, Sendable {
    public var connection: ConnectionName
    public var user: UInt32
    /// The session the connection belongs to, unless `SetSession` said otherwise.
    public var session: SessionKey

    public init(connection: ConnectionName, user: UInt32, session: SessionKey) {
        self.connection = connection
        self.user = user
        self.session = session
    }

    var isRoot: Bool { user == 0 }
}

/// A process that a reporter names.
public struct ReportedProcess: Equatable, Sendable {
    /// The process, its parent, its parent's parent, and so on; never empty.
    public var lineage: [ProcessID]
    public var user: UInt32
    /// The session the process belongs to: where root's reports about it go.
    public var session: SessionKey

    public init(lineage: [ProcessID], user: UInt32, session: SessionKey) {
        precondition(!lineage.isEmpty, "a reported process has at least itself in its lineage")
        self.lineage = lineage
        self.user = user
        self.session = session
    }

    var process: ProcessID { lineage[0] }
}

/// What one report says of a window; nil leaves what was said before.
public struct WindowReport: Equatable, Sendable {
    public var number: UInt64
    public var process: ReportedProcess
    public var focused: Bool?
    public var visible: Bool?
    public var minimized: Bool?
    /// The window shows the mark of changes that are not saved.
    public var unsavedChanges: Bool?
    public var title: String?
    public var appID: String?

    public init(number: UInt64, process: ReportedProcess) {
        self.number = number
        self.process = process
    }
}

/// A process that must not be suspended by policy, and why, in one word.
public struct ExemptionReport: Equatable, Sendable {
    public var process: ReportedProcess
    public var reason: String

    public init(process: ReportedProcess, reason: String) {
        self.process = process
        self.reason = reason
    }
}

/// What a client asks. The caller's rights were checked before; the machine may still refuse.
public enum Request: Equatable, Sendable {
    case register(Registration)
    case unregister(ApplicationNumber)
    case finishLaunching(ApplicationNumber, by: ConnectionName)
    case becomeDelegate(ApplicationNumber, ConnectionName)
    case acknowledge(ApplicationNumber, serial: UInt64, by: ConnectionName)
    case beginBackgroundTask(ApplicationNumber, name: String, by: ConnectionName)
    /// Whether ending it now would lose something, as the application itself says.
    case setUnsavedChanges(ApplicationNumber, Bool)
    case endBackgroundTask(ApplicationNumber, task: UInt64)
    /// URLs, a user activity or a message for its delegate, and who sends it, in words.
    case deliver(ApplicationNumber, [Announcement], String)
    /// Somebody wants it in front, in words.
    case bringForward(ApplicationNumber, String)
    /// nil: no rule of the user is about it any more.
    case configure(ApplicationNumber, Rule?)
    case suspend(ApplicationNumber, holder: String)
    case resume(ApplicationNumber, holder: String)
    /// Suspends it until it gets the focus, with its windows put away if `minimizing`.
    case suspendUntilFocused(ApplicationNumber, holder: String, minimizing: Bool)
    case terminate(ApplicationNumber, force: Bool)
    /// nil: no window has the focus.
    case setFocus(ReportedProcess?, ReporterIdentity)
    case setMinimized(ReportedProcess, Bool, ReporterIdentity)
    case updateWindow(WindowReport, ReporterIdentity)
    case removeWindow(UInt64, ReporterIdentity)
    case replaceWindows([WindowReport], ReporterIdentity)
    /// A part of a whole set that `checkReplacement` has let pass: several of these and of `dropWindows` are one
    /// `replaceWindows`.
    case addWindows([WindowReport], ReporterIdentity)
    /// The end of it: what the set does not name goes, so many at once. Answers `more` while there is any.
    case dropWindows(except: Set<UInt64>, ReporterIdentity, atMost: Int)
    case setSession(SessionKey, ReporterIdentity)
    /// Somebody needs the application of this process, in words.
    case demand(ReportedProcess, String, ReporterIdentity)
    /// A reporter's whole set, for so many processes at once. Answers `more` until all are.
    case replaceExemptions([ExemptionReport], ReporterIdentity, atMost: Int = .max)

    /// Whether it tells of windows: a reporter tells it again where it was forgotten.
    public var isOfWindows: Bool {
        switch self {
        case .setFocus, .setMinimized, .updateWindow, .removeWindow, .replaceWindows, .addWindows,
            .dropWindows:
            true
        default: false
        }
    }
}

/// What a request gives back.
public enum Answer: Equatable, Sendable {
    case done
    /// Ask again.
    case more
    case application(ApplicationNumber)
    case task(UInt64)
}

/// Why a request was not granted: the client's business. Nothing has changed.
public enum Refusal: Error, Equatable, Sendable {
    case noSuchApplication(String)
    case alreadyRegistered(ProcessID, ApplicationNumber)
    case notDelegate(ConnectionName, ApplicationNumber)
    case noSuchTask(UInt64)
    case notSuspendable(ApplicationNumber, String)
    /// There is nobody to be told.
    case noDelegate(ApplicationNumber)
    case invalidArgument(String)
    case accessDenied(String)
    case limitExceeded(String, limit: Int)

    /// The error of the D-Bus API that a client gets.
    public var errorName: ErrorName {
        switch self {
        case .noSuchApplication: .noSuchApplication
        case .alreadyRegistered: .alreadyRegistered
        case .notDelegate: .notDelegate
        case .noSuchTask: .noSuchTask
        case .notSuspendable: .notSuspendable
        case .noDelegate: .notSupported
        case .invalidArgument: .invalidArgs
        case .accessDenied: .accessDenied
        case .limitExceeded: .limitsExceeded
        }
    }

    /// What was wrong, naming the value.
    public var message: String {
        switch self {
        case .noSuchApplication(let what): "No application \(what)"
        case .alreadyRegistered(let process, let number):
            "Process \(process.pid) is registered already, as \(BusNames.path(ofApplication: number.rawValue))"
        case .notDelegate(let connection, let number):
            "\(connection) is not the delegate of application \(number)"
        case .noSuchTask(let task): "No background task \(task)"
        case .notSuspendable(let number, let why): "Application \(number) cannot be suspended: \(why)"
        case .noDelegate(let number): "Application \(number) has no delegate that could be told"
        case .invalidArgument(let what): what
        case .accessDenied(let what): what
        case .limitExceeded(let what, let limit): "More than \(limit) \(what)"
        }
    }
}
