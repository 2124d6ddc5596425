public import AppStateContract

/// Something that happened. Facts cannot fail, and the machine does not refuse them.
public enum Fact: Equatable, Sendable {
    /// The pidfd became readable. `status`: the exit status or the signal, if it is known.
    case exited(ProcessID, ExitReason, status: Int32? = nil)
    /// Its main process was checked. `sender`: another process that was seen to stop it just before.
    case observed(ApplicationNumber, StopReading, sender: String? = nil)
    /// `stop` has been carried out: the whole application is stopped.
    case stopCompleted(ApplicationNumber)
    /// `resume` or `continueForeign` has been carried out. The reading is of its main process.
    case resumeCompleted(ApplicationNumber, StopReading)
    /// `checkUnread` has found something, or could not be carried out.
    case unread(ApplicationNumber)
    /// The result of `check`.
    case checked(ApplicationNumber, CheckFinding)
    /// It is needed; the text says why and by which program. A suspension by our own decision ends.
    case needed(ApplicationNumber, String, Need = .act)
    /// Another process waits for something that an application suspended by policy holds, such as a file lock.
    case objected(ApplicationNumber, String)
    /// The descriptor of an inhibitor is closed.
    case uninhibited(ApplicationNumber, UInt64)
    /// A stop cannot be carried out at all, for example because the process now runs as another user.
    case stopFailed(ApplicationNumber, String)
    /// Another process continues it as fast as we stop it.
    case contested(ApplicationNumber)
    /// Memory was read: a trigger has fired, `memoryAlarm` is used up, `nextReading` has come, or what is watched has
    /// changed.
    case memory(MemoryReadings)
    /// `reclaim` has been carried out: the memory of all of its processes is released.
    case released(ApplicationNumber)
    /// `pageOut` has finished, and has freed this many bytes.
    case pagedOut(ApplicationNumber, bytes: UInt64 = 0)
    /// `reclaim` found that it must not be ended, for example because it runs again.
    case spared(ApplicationNumber, String)
    /// The bus connection has ended.
    case disconnected(ConnectionName)
    /// logind: whether the session is in front and unlocked and, whether or not it is in front, whether its screen is
    /// locked.
    case session(SessionKey, inFront: Bool, isLocked: Bool = false)
    /// The machine is about to shut down, or no longer is.
    case shutdownPrepared(Bool)
    /// The machine is about to sleep, and this application has nothing to do before.
    case sleepBegins(ApplicationNumber)
    /// The machine is awake, and the network is back or not waited for any longer.
    case sleepEnded
    /// logind: the session no longer exists, so that nothing in it is visible.
    case sessionEnded(SessionKey)
    /// The clock, the time zone or the day has changed.
    case timeChanged(TimeChange)
    /// The effect `confirmHang` has found no debugger: it does hang.
    case hangs(ApplicationNumber)
    /// These launches were scheduled before this daemon was started.
    case scheduled([ScheduledLaunch])
    /// CLOCK_REALTIME is this now, in microseconds.
    case realTime(Microseconds)
    /// Whether what launches wait for is there: the network, or mains power.
    case condition(LaunchTrigger, Bool)
    /// A session agent that can launch applications of this user has come.
    case agentCame(user: UInt32)
    /// A due launch was carried out, or cannot be. `isKept`: it is tried again when an agent comes.
    case launchSettled(ScheduledLaunch, isKept: Bool)
    /// The configuration was read.
    case configured(Settings)
    /// The deadline that `nextDeadline` named has passed.
    case timePassed
}

/// The result of a check for objections to a stop.
public enum CheckFinding: Equatable, Sendable {
    /// There are none. `isStopped`: whether it is still stopped after the check, if it was stopped before.
    case clear(isStopped: Bool)
    /// A debugger, for example, in words.
    case objection(String)
}

/// A connection that reports windows, and the session for which it reports.
public struct ReporterIdentity: Equatable, Sendable {
    public var connection: ConnectionName
    public var user: UInt32
    /// The session that the connection belongs to, unless `SetSession` said otherwise.
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
    /// The session that the process belongs to. Root's reports about the process go there.
    public var session: SessionKey

    public init(lineage: [ProcessID], user: UInt32, session: SessionKey) {
        precondition(!lineage.isEmpty, "a lineage contains at least the reported process")
        self.lineage = lineage
        self.user = user
        self.session = session
    }

    var process: ProcessID { lineage[0] }
}

/// The content of one report about a window; nil keeps the previous value.
public struct WindowReport: Equatable, Sendable {
    public var number: UInt64
    public var process: ReportedProcess
    public var focused: Bool?
    public var visible: Bool?
    public var minimized: Bool?
    /// The window shows the mark of unsaved changes.
    public var unsavedChanges: Bool?
    public var title: String?
    public var appID: String?

    public init(number: UInt64, process: ReportedProcess) {
        self.number = number
        self.process = process
    }
}

/// A process that policy must not suspend, and the reason in one word.
public struct ObjectionReport: Equatable, Sendable {
    public var process: ReportedProcess
    public var reason: String

    public init(process: ReportedProcess, reason: String) {
        self.process = process
        self.reason = reason
    }
}

/// A client's request. The caller's permissions have been checked; the machine may still refuse.
public enum Request: Equatable, Sendable {
    case register(Registration)
    case unregister(ApplicationNumber)
    case finishLaunching(ApplicationNumber, by: ConnectionName)
    case becomeDelegate(ApplicationNumber, ConnectionName)
    case acknowledge(ApplicationNumber, serial: UInt64, by: ConnectionName)
    case answerPings(ApplicationNumber, by: ConnectionName)
    case beginBackgroundTask(ApplicationNumber, name: String, by: ConnectionName)
    case beginContinuedTask(ApplicationNumber, name: String, title: String, total: UInt64, by: ConnectionName)
    case setTaskProgress(ApplicationNumber, task: UInt64, completed: UInt64)
    /// Its user does not want a task to go on.
    case cancelTask(ApplicationNumber, task: UInt64)
    /// Replaces the launch of the same application with the same name.
    case scheduleLaunch(ScheduledLaunch)
    /// nil: all of this application.
    case cancelLaunch(ScheduleOwner, name: String?)
    /// Whether ending it now would lose data, according to the application itself.
    case setUnsavedChanges(ApplicationNumber, Bool)
    case endBackgroundTask(ApplicationNumber, task: UInt64)
    /// Policy must not suspend it, for as long as a descriptor is open.
    case inhibit(ApplicationNumber, Application.Inhibitor)
    /// Its delegate has handled the end of a background transfer.
    case finishTransfer(ApplicationNumber, id: String)
    /// URLs, a user activity, a message, a scheduled launch or the end of a transfer for its delegate; the text says who
    /// sends it.
    case deliver(ApplicationNumber, [Announcement], String)
    /// It will be brought to the front; the text says why.
    case bringForward(ApplicationNumber, String)
    /// nil: no rule of the user applies to it any longer.
    case configure(ApplicationNumber, Rule?)
    case suspend(ApplicationNumber, holder: String)
    case resume(ApplicationNumber, holder: String)
    /// Suspends it until it gets the focus.
    case suspendUntilFocused(ApplicationNumber, holder: String)
    case terminate(ApplicationNumber, force: Bool)
    /// nil: no window has the focus.
    case setFocus(ReportedProcess?, ReporterIdentity)
    case setMinimized(ReportedProcess, Bool, ReporterIdentity)
    case updateWindow(WindowReport, ReporterIdentity)
    case removeWindow(UInt64, ReporterIdentity)
    case replaceWindows([WindowReport], ReporterIdentity)
    case setSession(SessionKey, ReporterIdentity)
    /// The application of this process is needed; the text says why.
    case demand(ReportedProcess, String, ReporterIdentity, Need = .act)
    /// A reporter's whole set.
    case replaceObjections([ObjectionReport], ReporterIdentity)

    /// Whether it reports windows or objections. A reporter sends such a report again if it was forgotten.
    public var isReport: Bool {
        switch self {
        case .setFocus, .setMinimized, .updateWindow, .removeWindow, .replaceWindows, .replaceObjections:
            true
        default: false
        }
    }
}

/// What a request returns.
public enum Answer: Equatable, Sendable {
    case done
    case application(ApplicationNumber)
    case task(UInt64)
}

/// Why a request was refused. The client is the cause, and nothing has changed.
public enum Refusal: Error, Equatable, Sendable {
    case noSuchApplication(String)
    case alreadyRegistered(ProcessID, ApplicationNumber)
    case notDelegate(ConnectionName, ApplicationNumber)
    case noSuchTask(UInt64)
    case notInForeground(ApplicationNumber)
    case noSuchTransfer(ApplicationNumber, String)
    case notSuspendable(ApplicationNumber, String)
    /// There is no delegate to notify.
    case noDelegate(ApplicationNumber)
    case invalidArgument(String)
    case accessDenied(String)
    case limitExceeded(String, limit: Int)

    /// The error of the D-Bus API that the client receives.
    public var errorName: ErrorName {
        switch self {
        case .noSuchApplication: .noSuchApplication
        case .alreadyRegistered: .alreadyRegistered
        case .notDelegate: .notDelegate
        case .noSuchTask, .noSuchTransfer: .noSuchTask
        case .notInForeground: .notInForeground
        case .notSuspendable: .notSuspendable
        case .noDelegate: .notSupported
        case .invalidArgument: .invalidArgs
        case .accessDenied: .accessDenied
        case .limitExceeded: .limitsExceeded
        }
    }

    /// A description of the error, including the value.
    public var message: String {
        switch self {
        case .noSuchApplication(let what): "No application \(what)"
        case .alreadyRegistered(let process, let number):
            "Process \(process.pid) is registered already, as \(BusNames.path(ofApplication: number.rawValue))"
        case .notDelegate(let connection, let number):
            "\(connection) is not the delegate of application \(number)"
        case .noSuchTask(let task): "No background task \(task)"
        case .notInForeground(let number):
            "Application \(number) is not in the foreground: a continued task begins there"
        case .noSuchTransfer(let number, let id):
            "Application \(number) is not at work on the end of a transfer \(id)"
        case .notSuspendable(let number, let why): "Application \(number) cannot be suspended: \(why)"
        case .noDelegate(let number): "Application \(number) has no delegate to notify"
        case .invalidArgument(let what): what
        case .accessDenied(let what): what
        case .limitExceeded(let what, let limit): "More than \(limit) \(what)"
        }
    }
}
