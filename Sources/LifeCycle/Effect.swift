public import AppStateContract

/// What is to be done about a step, in this order. The machine itself touches nothing.
public enum Effect: Equatable, Sendable {
    /// A new application: `ApplicationAdded`, `InterfacesAdded`.
    case added(ApplicationNumber)
    /// Its process has ended: what its next launch is told.
    case ended(ApplicationNumber, Ending)
    /// Its last effect: `ApplicationRemoved`, `InterfacesRemoved`.
    case removed(ApplicationNumber, ExitReason)
    /// A signal of the Application interface (a state change also as the Manager's).
    case announce(ApplicationNumber, Announcement, to: Audience)
    /// Properties have other values than before.
    case changed(ApplicationNumber, Set<ApplicationProperty>)
    /// What it is to have of the machine in its state is another: `Rule.backgroundCPUQuota`.
    case resources(ApplicationNumber)
    /// `FocusedApplication` of this session's clients has another value.
    case focusChanged(SessionKey)
    /// Looks whether something speaks against a stop that nobody has asked for: before it, or once more when all of it
    /// stand. `checked` comes back.
    case check(ApplicationNumber, stands: Bool)
    /// Brings the extent to a stand, by its cgroup's freezer or SIGSTOP; done when `stopCompleted` comes back.
    case stop(ApplicationNumber)
    /// Lets what `stop` stopped run for a breath, if it has something to read; the next `stop` ends it.
    case breathe(ApplicationNumber)
    /// SIGCONT to what `stop` stopped. `sparingMain`: somebody else wants the main process stopped.
    case resume(ApplicationNumber, sparingMain: Bool)
    /// The same, because our stop was given up: nobody asked that it run.
    case letGo(ApplicationNumber, sparingMain: Bool)
    /// SIGCONT to every stopped process of the extent, whoever stopped it.
    case continueForeign(ApplicationNumber)
    /// SIGTERM to the main process.
    case requestExit(ApplicationNumber)
    /// SIGKILL to the extent.
    case kill(ApplicationNumber)
    /// SIGKILL to the extent of an application that does not answer, unless a debugger has it: `spared`.
    case killUnresponsive(ApplicationNumber)
    /// SIGKILL to the extent of a suspended application, if it still stands and still is its user's; what comes back
    /// is measured.
    case reclaim(ApplicationNumber)
    /// It was asked to end because memory is short: what comes back is measured.
    case willReclaim(ApplicationNumber)
    /// Pushes the memory of a suspended application out, to its files and, where there is swap, there: `pagedOut`.
    case pageOut(ApplicationNumber, PageOutExtent)
    /// The next fact about this source is a sample of its memory.
    case sampleMemory(PressureSource)
    /// A fact is wanted once about so many bytes were taken; nil: no more.
    case alarmMemory(PressureSource, after: UInt64?)
    /// Looks how much memory these would give back: `memoryMeasured`.
    case measureMemory([ApplicationNumber])
    /// `MemoryPressure` has another value.
    case memoryPressureChanged(MemoryPressure)
    /// org.freedesktop.LowMemoryMonitor.
    case lowMemoryWarning(LowMemoryWarning)
    /// No fact about this process matters any longer: its pidfd may go.
    case forget(ProcessID)
    /// A reporter is to have these of its windows minimized.
    case minimize(ConnectionName, [UInt64])
    /// Memory is there again: what was ended for it and is wanted is started again.
    case relaunch(Relaunch)
    /// Worth a line in the journal.
    case notice(ApplicationNumber, Notice)
}

/// To whom a signal goes. A suspended application is not among them.
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

    /// The arguments, as far as the life cycle knows them: launch options it does not.
    public enum Payload: Hashable, Sendable {
        case none
        /// A serial or a background task, and when its time is over. Serial 0: nothing to acknowledge. Deadline 0: there
        /// is none; of `didEnterBackground`, it will not be suspended.
        case until(Microseconds, of: UInt64)
        case level(MemoryPressure)
        /// What has changed the time.
        case cause(TimeChange)
        case edge(Edge, StateChangeReason)
        /// What it has not answered.
        case event(UnresponsiveEvent)
        /// URLs to open, and the options, as fields.
        case urls([String], options: [String])
        /// A user activity to continue: its type and what is known of it, as fields.
        case activity(String, info: [String])
        /// A message: who sends it, its name, and what it carries, as fields.
        case message(from: String, name: String, payload: [String])
    }

    init(_ signal: ApplicationSignal, _ payload: Payload = .none) {
        self.signal = signal
        self.payload = payload
    }

    /// - Parameter options: a dictionary, as fields that are the sender's matter alone.
    public static func openURLs(_ urls: [String], options: [String]) -> Announcement {
        Announcement(.openURLs, .urls(urls, options: options))
    }

    /// - Parameter info: a dictionary, as fields.
    public static func continueUserActivity(_ type: String, info: [String]) -> Announcement {
        Announcement(.continueUserActivity, .activity(type, info: info))
    }

    /// - Parameter payload: a dictionary, as fields.
    public static func messageReceived(from sender: String, name: String, payload: [String]) -> Announcement {
        Announcement(.messageReceived, .message(from: sender, name: name, payload: payload))
    }

    /// Somebody sends it: it waits until its receiver has launched, and is kept for one that cannot read.
    var isDelivery: Bool {
        switch payload {
        case .urls, .activity, .message: true
        case .none, .until, .level, .cause, .edge, .event: false
        }
    }

    /// About the bytes that it has us keep while it waits.
    public var waitingBytes: Int { isDelivery ? 64 + textBytes : 0 }

    private var textBytes: Int {
        func sum(_ texts: [String]) -> Int { texts.reduce(0) { $0 + $1.utf8.count + 1 } }
        return switch payload {
        case .urls(let urls, let options): sum(urls) + sum(options)
        case .activity(let type, let info): type.utf8.count + sum(info)
        case .message(let sender, let name, let payload): sender.utf8.count + name.utf8.count + sum(payload)
        case .none, .until, .level, .cause, .edge, .event: 0
        }
    }
}

/// What of an application's memory is pushed out.
public enum PageOutExtent: Sendable {
    /// Pages of files: without swap there is nowhere else to push to.
    case files
    case everything
}

/// The levels of GLib's GMemoryMonitorWarningLevel.
public enum LowMemoryWarning: UInt8, Sendable, CaseIterable {
    /// `G_MEMORY_MONITOR_WARNING_LEVEL_LOW`: it is a warning.
    case low = 50
    /// `…_MEDIUM`: it is critical, and suspended applications are being ended.
    case medium = 100
    /// `…_CRITICAL`: no suspended application is left to be ended.
    case critical = 255
}

/// A decision that is no change of state.
public enum Notice: Hashable, Sendable {
    /// `Mode=observe`: the policy would have suspended it now.
    case wouldSuspend
    /// Somebody continues it as often as we stop it: our holds were given up.
    case contested
    /// Policy or pressure wanted it suspended and something spoke against it.
    case objection(String)
    /// Somebody needs what policy or pressure has suspended.
    case needed(String)
    /// It has not answered in time.
    case unresponsive(UnresponsiveEvent)
    /// `Mode=observe`: it would be killed for that now.
    case wouldTerminate(UnresponsiveEvent)
    /// `Mode=observe`: it would be ended now, for so many bytes.
    case wouldReclaim(UInt64)
    /// It is ended although its end loses something: nothing else is left.
    case losesUnsaved
    /// It was killed and is still there: the next is taken.
    case reclaimStuck(after: Microseconds)
    /// It was to be ended and was not.
    case spared(String)
    /// It was ended for its memory so often that it is not started again.
    case notRelaunched(Int)
    /// It has cost as many applications as one event may.
    case reclaimLimit(Int)

    public var description: String {
        switch self {
        case .wouldSuspend: "would suspend"
        case .contested: "holds given up: continued by somebody else again and again"
        case .objection(let why): "not suspended: \(why)"
        case .needed(let why): "runs again: \(why)"
        case .unresponsive(.launch): "does not answer: it has not finished launching in time"
        case .unresponsive(.background):
            "does not answer: it has not acknowledged that it is in the background"
        case .unresponsive(.termination): "does not answer: it has not ended in time"
        case .wouldTerminate(let event): "would end, because it does not answer (\(event.rawValue))"
        case .wouldReclaim(let bytes): "would end, for \(bytes >> 20) MiB"
        case .losesUnsaved: "has unsaved changes, but nothing else is left to end"
        case .reclaimStuck(let span): "was killed \(span / 1_000) ms ago and is still there"
        case .spared(let why): "not ended: \(why)"
        case .notRelaunched(let times): "not started again: it was ended \(times) times within an hour"
        case .reclaimLimit(let limit): "not ended: this event has cost \(limit) applications already"
        }
    }
}
