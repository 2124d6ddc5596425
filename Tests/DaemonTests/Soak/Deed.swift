import AppStateBus
import AppStateContract
import Glibc

/// An action on a process in the soak test.
enum Deed: CaseIterable {
    case register
    case focus, unfocus, minimize, restore, window
    /// Signals, from a process that is not the daemon.
    case stop, terminalStop, proceed
    case suspend, resume
    case read
    case kill, interrupt, terminate, forceQuit, unregister

    /// What is done to each process, in random order.
    static let life: [Deed] = [
        .focus, .unfocus, .minimize, .restore, .window, .stop, .terminalStop, .proceed, .suspend, .resume,
        .read, .focus, .stop, .proceed,
    ]
    /// The ways in which a process ends.
    static let ends: [Deed] = [.kill, .interrupt, .terminate, .forceQuit, .unregister]

    /// The signal, if the deed is only a signal.
    var signal: Int32? {
        switch self {
        case .stop: SIGSTOP
        case .terminalStop: SIGTSTP
        case .proceed: SIGCONT
        case .kill: SIGKILL
        case .interrupt: SIGTERM
        case .register, .focus, .unfocus, .minimize, .restore, .window, .suspend, .resume, .read, .terminate,
            .forceQuit, .unregister:
            nil
        }
    }

    /// The call that does it.
    ///
    /// - Parameters:
    ///   - path: the application's path; any before it is registered.
    func call(on bus: Bus, pid: Int32, path: String) throws -> Message {
        func manager(_ member: String) throws -> Message { try make(BusNames.root, BusNames.manager, member) }
        func reporter(_ member: String) throws -> Message {
            try make(BusNames.root, BusNames.reporter, member)
        }
        func make(_ path: String, _ interface: String, _ member: String) throws -> Message {
            try bus.newCall(destination: BusNames.service, path: path, interface: interface, member: member)
        }
        let message: Message
        switch self {
        case .register:
            message = try manager("Register")
            try message.append("org.example.Soak")
            try message.append(UInt32(pid))
            try message.appendDictionary([])
        case .focus, .unfocus:
            message = try reporter("SetFocus")
            try message.append(self == .focus ? UInt32(pid) : 0)
        case .minimize, .restore:
            message = try reporter("SetMinimized")
            try message.append(UInt32(pid))
            try message.append(self == .minimize)
        case .window:
            message = try reporter("UpdateWindow")
            try message.append(UInt64(pid))
            try message.append(UInt32(pid))
            try message.appendDictionary([("visible", .bool(pid % 2 == 0))])
        case .suspend: message = try make(path, BusNames.application, "Suspend")
        case .resume: message = try make(path, BusNames.application, "Resume")
        case .read:
            message = try make(path, BusNames.properties, "GetAll")
            try message.append(BusNames.application)
        case .terminate, .forceQuit:
            message = try make(path, BusNames.application, "Terminate")
            try message.append(self == .forceQuit)
        case .unregister: message = try make(path, BusNames.application, "Unregister")
        case .stop, .terminalStop, .proceed, .kill, .interrupt:
            preconditionFailure("a signal is no call")
        }
        return message
    }

    /// Whether a race with an end or a resume may give this error.
    func mayFail(with error: MethodError) -> Bool {
        switch ErrorName(rawValue: error.name) {
        case .noSuchApplication, .noSuchProcess: self != .register
        case .notSuspendable: self == .suspend
        case .alreadyRegistered, .notDelegate, .noSuchTask, .noSessionAgent, .tooLarge, .accessDenied,
            .invalidArgs, .limitsExceeded, .notSupported, .failed, nil:
            false
        }
    }
}
