public import AppStateContract

/// What must be done after a step, in this order. The machine itself does not act.
public enum Effect: Equatable, Sendable {
    /// A new application: `ApplicationAdded`, `InterfacesAdded`.
    case added(ApplicationNumber)
    /// Its process has ended. Its next launch receives the ending.
    case ended(ApplicationNumber, Ending)
    /// Its last effect: `ApplicationRemoved`, `InterfacesRemoved`.
    case removed(ApplicationNumber, ExitReason)
    /// A signal of the Application interface (a state change also as the Manager's).
    case announce(ApplicationNumber, Announcement, to: Audience)
    /// The last edge, to the delegate, which may live on: the machine no longer knows whose delegate it was.
    case announceEnd(ApplicationNumber, Announcement, to: ConnectionName)
    /// Properties have changed.
    case changed(ApplicationNumber, Set<ApplicationProperty>)
    /// The resources that it gets in its state have changed: `Rule.backgroundCPUQuota`, `Application.isMirrored` or
    /// `Application.isServing`.
    case resources(ApplicationNumber)
    /// `FocusedApplication` has changed for the clients in this session.
    case focusChanged(SessionKey)
    /// Checks for objections to a stop that no client requested: before the stop, and once more when the
    /// whole application is stopped. The result is the fact `checked`.
    case check(ApplicationNumber, isStopped: Bool)
    /// Freezes its cgroup, or sends SIGSTOP to its processes; it is complete at the fact `stopCompleted`.
    case stop(ApplicationNumber)
    /// Finds out whether something waits to be read by a stopped application: `unread`, also if that cannot be
    /// determined.
    case checkUnread(ApplicationNumber)
    /// Ends what `stop` has done. A main process that another process has stopped stays stopped, unless the status
    /// `isLifting`: then every stop of the main process ends, even one that was not seen.
    case resume(ApplicationNumber)
    /// SIGCONT to all of its stopped processes, no matter which program stopped them, and a thaw.
    case continueForeign(ApplicationNumber)
    /// SIGTERM to the main process.
    case requestExit(ApplicationNumber)
    /// SIGKILL to all of its processes.
    case kill(ApplicationNumber)
    /// The same for an unresponsive application, unless a debugger is attached to it: `spared`.
    case killUnresponsive(ApplicationNumber)
    /// It has not answered a ping in time: the fact `hangs` follows, unless a debugger is attached to it.
    case confirmHang(ApplicationNumber)
    /// A scheduled launch is due: it is launched in the background, or woken if it runs. The fact `launchSettled` follows.
    case launch(ScheduledLaunch)
    /// The launches that this application of this user has scheduled have changed.
    case scheduleChanged(ScheduleOwner)
    /// The same for a suspended application, if it is still stopped and still belongs to its user: `released`, or
    /// `spared`. The memory that comes back is measured.
    case reclaim(ApplicationNumber)
    /// It was asked to end because memory is short. The freed memory is measured.
    case willReclaim(ApplicationNumber)
    /// Pages out the memory of a suspended application, to its files and, if there is swap, to swap:
    /// `pagedOut`.
    case pageOut(ApplicationNumber, PageOutExtent)
    /// `MemoryPressure` has changed.
    case memoryPressureChanged(MemoryPressure)
    /// org.freedesktop.LowMemoryMonitor.
    case lowMemoryWarning(LowMemoryWarning)
    /// Facts about this process no longer matter, so its pidfd may be closed.
    case forget(ProcessID)
    /// Memory is available again, so an application that was ended for it is started again if its user's rule
    /// says so.
    case relaunch(Relaunch)
    /// Worth a line in the journal.
    case notice(ApplicationNumber, Notice)
}

/// The recipients of a signal. A suspended application is not among them.
public struct Audience: OptionSet, Hashable, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let delegate = Audience(rawValue: 1)
    public static let subscribers = Audience(rawValue: 2)
    public static let all: Audience = [.delegate, .subscribers]
}

/// A signal of `org.appstate1.Application` with its arguments.
public struct Announcement: Hashable, Sendable {
    /// The signal's name on the bus.
    public let signal: ApplicationSignal
    public let payload: Payload

    /// The arguments that the life cycle knows. It does not know the launch options.
    public enum Payload: Hashable, Sendable {
        case none
        /// A serial or a background task, and when its time is over. Serial 0: nothing to acknowledge. Deadline
        /// `never`: there is none; for `didEnterBackground`, the application will not be suspended.
        case until(Microseconds, of: UInt64)
        case level(MemoryPressure)
        /// What changed the time.
        case cause(TimeChange)
        case edge(Edge, StateChangeReason)
        /// The event to which it has not responded.
        case event(UnresponsiveEvent)
        /// URLs to open, and the options, as fields.
        case urls([String], options: [String])
        /// The options with which it is launched again, as fields.
        case options([String])
        /// A user activity to continue: its type and its info, as fields.
        case activity(String, info: [String])
        /// A message: its sender, its name and its payload, as fields.
        case message(from: String, name: String, payload: [String])
        /// A scheduled launch: its name, and the background task that was begun for it.
        case scheduled(String, task: UInt64)
        /// A background transfer that has ended: its id and its result, as fields.
        case transfer(String, result: [String])
    }

    init(_ signal: ApplicationSignal, _ payload: Payload = .none) {
        self.signal = signal
        self.payload = payload
    }

    /// - Parameter options: a dictionary, as fields whose meaning is up to the sender.
    public static func openURLs(_ urls: [String], options: [String]) -> Announcement {
        Announcement(.openURLs, .urls(urls, options: options))
    }

    /// It is launched again, with nothing to open.
    ///
    /// - Parameter options: a dictionary, as fields.
    public static func reopen(options: [String]) -> Announcement {
        Announcement(.reopen, .options(options))
    }

    /// - Parameter info: a dictionary, as fields.
    public static func continueUserActivity(_ type: String, info: [String]) -> Announcement {
        Announcement(.continueUserActivity, .activity(type, info: info))
    }

    /// - Parameter payload: a dictionary, as fields.
    public static func messageReceived(from sender: String, name: String, payload: [String]) -> Announcement {
        Announcement(.messageReceived, .message(from: sender, name: name, payload: payload))
    }

    /// - Parameter task: the background task that was begun for it; 0 until the application takes it.
    public static func scheduledLaunchDue(_ name: String, task: UInt64 = 0) -> Announcement {
        Announcement(.scheduledLaunchDue, .scheduled(name, task: task))
    }

    /// - Parameter result: a dictionary, as fields.
    public static func backgroundTransferFinished(_ id: String, result: [String]) -> Announcement {
        Announcement(.backgroundTransferFinished, .transfer(id, result: result))
    }

    /// Whether another process sends it. It waits until its receiver has launched, and is kept for a receiver
    /// that cannot read.
    var isDelivery: Bool {
        switch payload {
        case .urls, .options, .activity, .message, .scheduled, .transfer: true
        case .none, .until, .level, .cause, .edge, .event: false
        }
    }

    /// The approximate number of bytes that we keep for it while it waits.
    public var waitingBytes: Int { isDelivery ? 64 + textBytes : 0 }

    private var textBytes: Int {
        func sum(_ texts: [String]) -> Int { texts.reduce(0) { $0 + $1.utf8.count + 1 } }
        return switch payload {
        case .urls(let urls, let options): sum(urls) + sum(options)
        case .options(let options): sum(options)
        case .activity(let name, let content), .transfer(let name, let content):
            name.utf8.count + sum(content)
        case .message(let sender, let name, let payload): sender.utf8.count + name.utf8.count + sum(payload)
        case .scheduled(let name, _): name.utf8.count
        case .none, .until, .level, .cause, .edge, .event: 0
        }
    }
}

/// Which part of an application's memory is paged out.
public enum PageOutExtent: Sendable {
    /// File pages only: without swap, no other pages can be paged out.
    case files
    case everything
}

/// The levels of GLib's GMemoryMonitorWarningLevel.
public enum LowMemoryWarning: UInt8, Sendable, CaseIterable {
    /// `G_MEMORY_MONITOR_WARNING_LEVEL_LOW`: the level is `warning`.
    case low = 50
    /// `…_MEDIUM`: the level is `critical`, and suspended applications are being ended.
    case medium = 100
    /// `…_CRITICAL`: no suspended application is left to end.
    case critical = 255
}

/// A decision that does not change the state.
public enum Notice: Hashable, Sendable {
    /// `Mode=observe`: policy would have suspended it now.
    case wouldSuspend
    /// Another process continues it as often as we stop it, so our holds were given up.
    case contested
    /// Policy wanted to suspend it, and something prevented that.
    case objection(String)
    /// It is needed, and policy had suspended it.
    case needed(String)
    /// It has not responded in time.
    case unresponsive(UnresponsiveEvent)
    /// `Mode=observe`: it would be killed now because it does not respond.
    case wouldTerminate(UnresponsiveEvent)
    /// `Mode=observe`: it would be ended now, to free this many bytes.
    case wouldReclaim(UInt64)
    /// It is ended although this loses unsaved changes, because no other application is left to end.
    case losesUnsaved
    /// It was killed but still exists: the next application is chosen.
    case reclaimStuck(after: Microseconds)
    /// It should have been ended, but was not.
    case spared(String)
    /// It was ended because memory was short, and is not started again.
    case notRelaunched(String)
    /// The source has reached the limit of ended applications for one event.
    case reclaimLimit(Int)

    public var description: String {
        switch self {
        case .wouldSuspend: "would suspend"
        case .contested: "holds given up: another program keeps continuing it"
        case .objection(let why): "not suspended: \(why)"
        case .needed(let why): "runs again: \(why)"
        case .unresponsive(.launch): "does not answer: it has not finished launching in time"
        case .unresponsive(.background):
            "does not answer: it has not acknowledged that it is in the background"
        case .unresponsive(.termination): "does not answer: it has not ended in time"
        case .unresponsive(.mainLoop): "does not answer: its main loop has not answered a ping in time"
        case .wouldTerminate(let event): "would end, because it does not answer (\(event.rawValue))"
        case .wouldReclaim(let bytes): "would end, for \(bytes >> 20) MiB"
        case .losesUnsaved: "has unsaved changes, but nothing else is left to end"
        case .reclaimStuck(let span): "was killed \(span / 1_000) ms ago and is still there"
        case .spared(let why): "not ended: \(why)"
        case .notRelaunched(let why): "not started again: \(why)"
        case .reclaimLimit(let limit):
            "not ended: \(limit) applications have been ended for this event already"
        }
    }
}
