import AppStateBus
import AppStateContract
public import ArgumentParser

struct Register: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Register a running process as an application.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(help: "The application's id: that of its desktop entry.") var appID: String
    @Argument(help: "The process.") var pid: UInt32
    @Option(help: "Whether it starts in the foreground or in the background.") var launchMode: LaunchMode?
    @Option(help: "How it may be suspended.") var suspension: SuspensionPolicy?
    @Option(name: .customLong("background-mode"), help: "A reason to keep running in the background.")
    var backgroundModes: [String] = []
    @Flag(
        inversion: .prefixedNo,
        help:
            "May be ended when memory is short, while it is suspended, or in the background if policy may suspend it."
    )
    var reclaimable = true

    func validate() throws {
        try refuseNoID(appID)
        guard pid > 0 else { throw ValidationError("The number of a process must be above 0.") }
    }

    func run() throws {
        var options: [(String, Variant)] = []
        if let launchMode {
            options.append((RegisterOption.launchMode.rawValue, .string(launchMode.rawValue)))
        }
        if let suspension {
            options.append((RegisterOption.suspension.rawValue, .string(suspension.rawValue)))
        }
        if !reclaimable { options.append((RegisterOption.reclaimable.rawValue, .bool(false))) }
        if !backgroundModes.isEmpty {
            options.append((RegisterOption.backgroundModes.rawValue, .strings(backgroundModes)))
        }
        let path = try bus.connect().call(ManagerMethod.register) { message in
            try message.append(appID)
            try message.append(pid)
            try message.appendDictionary(options)
        }.readObjectPath()
        output.show(application: path)
    }
}

extension OutputOptions {
    /// Shows what has become an application, by its object path.
    func show(application path: String) {
        if json { Terminal.emit(JSON(application: path)) } else { Terminal.emit(Line(path)) }
    }
}

extension JSON {
    init(application path: String) {
        let number = BusNames.applicationNumber(inPath: path) ?? 0
        self = .object([("number", .unsigned(UInt64(number))), ("path", .string(path))])
    }
}

/// Refuses what cannot be the id of an application, as the daemon would.
func refuseNoID(_ text: String) throws {
    guard ApplicationID(text) == nil else { return }
    throw ValidationError(
        "\"\(text)\" is no application's id: 1 to \(ApplicationID.maximumLength) of A-Z a-z 0-9 . _ -")
}

extension LifeCycleState: ExpressibleByArgument {}

extension LaunchMode: ExpressibleByArgument {}

extension SuspensionPolicy: ExpressibleByArgument {}

struct Unregister: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Unregister an application; its process keeps running.")

    @OptionGroup var bus: BusOptions
    @Argument(help: "The applications.", completion: .applications) var apps: [String]

    func run() throws {
        try bus.forEach(apps) { client, path, _ in try client.call(ApplicationMethod.unregister, at: path) }
    }
}

struct Suspend: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Suspend an application, and keep it suspended.")

    @OptionGroup var bus: BusOptions
    @Argument(help: "The applications.", completion: .applications) var apps: [String]

    func run() throws {
        try bus.forEach(apps) { client, path, _ in try client.call(ApplicationMethod.suspend, at: path) }
    }
}

struct Resume: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Let an application run again, even one that was stopped by a signal.")

    @OptionGroup var bus: BusOptions
    @Argument(help: "The applications.", completion: .applications) var apps: [String]

    func run() throws {
        try bus.forEach(apps) { client, path, name in
            try client.call(ApplicationMethod.resume, at: path)
            // Requests of other users stay. A stop by a signal is lifted, but perhaps only after the answer.
            if let sentence = client.lastingHolds(at: path, of: name, [.request]) { throw Failure(sentence) }
        }
    }
}

struct Toggle: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Suspend an application until it gets the focus, or resume one that is suspended.",
        discussion: "Bind this to a key of your desktop: appstatectl toggle --focused --minimize")

    @OptionGroup var bus: BusOptions
    @Flag(help: "The application that has the focus in your session.") var focused = false
    @Flag(help: "Minimize its windows, too, when it is suspended.") var minimize = false
    @Argument(help: "The application.", completion: .applications) var app: String?

    func validate() throws {
        guard focused != (app != nil) else {
            throw ValidationError(
                focused
                    ? "Name an application or use --focused, not both."
                    : "Name an application, or use --focused.")
        }
    }

    func run() throws {
        let client = try bus.connect()
        let options = minimize ? [("minimize", Variant.bool(true))] : []
        if let app {
            let path = try client.path(of: app)
            let reply = try client.call(ApplicationMethod.toggle, at: path) {
                try $0.appendDictionary(options)
            }
            show(app, path, isSuspended: try reply.readBool(), client)
        } else {
            let reply = try client.call(ManagerMethod.toggleFocused) { try $0.appendDictionary(options) }
            let path = try reply.readObjectPath()
            let name = try client.applications().first { $0.path == path }?.id ?? path
            show(name, path, isSuspended: try reply.readBool(), client)
        }
    }

    private func show(_ name: String, _ path: String, isSuspended: Bool, _ client: Client) {
        // It was to be resumed, and a request of another user stays: its focus does not end that.
        if isSuspended, let sentence = client.lastingHolds(at: path, of: name, [.request]) {
            return Terminal.warn("appstatectl: \(sentence)")
        }
        let what = isSuspended ? "is suspended until this is repeated, or it gets the focus again" : "runs"
        Terminal.emit(Line("\(name) \(what)"))
    }
}

struct Terminate: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "End an application: notify it, give it some seconds, then kill it.")

    @OptionGroup var bus: BusOptions
    @Flag(help: "Kill it at once.") var force = false
    @Argument(help: "The applications.", completion: .applications) var apps: [String]

    func run() throws {
        try bus.forEach(apps) { client, path, _ in
            try client.call(ApplicationMethod.terminate, at: path) { try $0.append(force) }
        }
    }
}

struct Focus: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Report which process has the focus.")

    @OptionGroup var bus: BusOptions
    @Argument(
        help: "The process: its PID, or the id or object path of its application; none: no process.",
        completion: .applicationIDs)
    var process: String

    func run() throws {
        let client = try bus.connect()
        let pid = process == "none" ? 0 : try client.process(of: process)
        try client.call(ReporterMethod.setFocus) { try $0.append(pid) }
    }
}

struct Minimize: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Report that all windows of a process are minimized.")

    @OptionGroup var bus: BusOptions
    @Flag(help: "Report that they are no longer minimized.") var undo = false
    @Argument(
        help: "The process: its PID, or the id or object path of its application.",
        completion: .applicationIDs)
    var process: String

    func run() throws {
        let client = try bus.connect()
        let pid = try client.process(of: process)
        try client.call(ReporterMethod.setMinimized) { message in
            try message.append(pid)
            try message.append(!undo)
        }
    }
}

struct Reload: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Make the daemon read its configuration again.")

    @OptionGroup var bus: BusOptions

    func run() throws {
        let client = try bus.connect()
        try client.call(ManagerMethod.reloadConfig)
        let properties = try client.properties(of: BusNames.root, BusNames.manager)
        guard case .uint32(let count)? = properties[ManagerProperty.refusedLines.rawValue], count > 0
        else { return }
        let lines = count == 1 ? "1 line is" : "\(count) lines are"
        Terminal.warn("\(lines) invalid, and ignored; the journal names each: journalctl -u appstated")
    }
}

extension BusOptions {
    /// Does the same to each application, in the given order. A failure does not prevent the others; the exit status is
    /// that of the first failure. If the daemon is not running, the command stops at once.
    ///
    /// - Parameter body: gets the application's object path, and the name that the user has given.
    fileprivate func forEach(
        _ names: [String], _ body: (_ client: Client, _ path: String, _ name: String) throws -> Void
    ) throws {
        if names.isEmpty { throw ValidationError("Name an application.") }
        let client = try connect()
        var first: Failure?
        for name in names {
            do {
                try body(client, try client.path(of: name), name)
            } catch {
                let failure = try Failure(error)
                if names.count == 1 { throw failure }
                let subject = failure.sentence.hasPrefix("\(name) ") ? "" : "\(name): "
                Terminal.warn("appstatectl: \(subject)\(failure.sentence)")
                first = first ?? failure
                if failure.verdict == .notRunning { break }
            }
        }
        if let first { throw ExitCode(first.verdict.rawValue) }
    }
}
