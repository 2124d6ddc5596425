import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Monitor: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print every signal about applications as it arrives, until interrupted.")

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Argument(
        help: "Only these applications; of an id, all that have it, now or later.", completion: .applications)
    var apps: [String] = []

    func run() throws {
        let client = try bus.connect()
        let filter = try Watcher.Filter(apps, client)
        let watcher = try Watcher(client, only: filter, json: output.json)
        throw ExitCode(try watcher.run())
    }
}

/// Subscribes, and prints the signals that arrive.
final class Watcher {
    /// The applications that are shown; empty: all of them.
    struct Filter {
        private var paths: Set<String> = []
        private var ids: Set<String> = []

        /// - Parameter names: what users call applications. No application need have the id yet.
        init(_ names: [String], _ client: Client) throws {
            for name in names {
                guard ApplicationID(name) != nil, UInt32(name) == nil else {
                    let path = try client.path(of: name)
                    // A number or a path may be one of no application.
                    _ = try client.properties(of: path)
                    paths.insert(path)
                    continue
                }
                ids.insert(name)
                if try !client.applications().contains(where: { $0.id == name }) {
                    Terminal.warn("appstatectl: no application \"\(name)\" yet")
                }
            }
        }

        func shows(_ path: String, _ id: String?) -> Bool {
            paths.isEmpty && ids.isEmpty || paths.contains(path) || id.map { ids.contains($0) } ?? false
        }
    }

    private let client: Client
    private let filter: Filter
    private let json: Bool
    private let subscription: Subscription
    private var names: [String: (id: String, pid: UInt32)] = [:]

    init(_ client: Client, only filter: Filter, json: Bool) throws {
        self.client = client
        self.filter = filter
        self.json = json
        subscription = try Subscription(client, interrupts: [SIGINT, SIGTERM])
    }

    /// Runs until it is interrupted (0) or the bus goes away (4). `Resync` says that signals may have been missed
    /// while the daemon was away.
    func run() throws -> Int32 {
        try subscription.run { [unowned self] again in
            names = [:]
            try learnNames()
            // Whoever reads the next line may interrupt us.
            try subscription.watchInterrupts()
            if again {
                show(ManagerSignal.resync.rawValue, nil, [])
            } else {
                Terminal.warn("listening")
            }
        } heard: { [unowned self] message in
            take(message)
        }
    }

    private func learnNames() throws {
        for row in try client.applications() { names[row.path] = (row.id, row.pid) }
    }

    private func take(_ message: borrowing Message) {
        guard let member = message.member, let interface = message.interface, let path = message.path else {
            return
        }
        do {
            switch interface {
            case BusNames.manager: try takeManager(member, message)
            case BusNames.application: try takeApplication(member, path, message)
            default: break
            }
            try message.rewind()
        } catch {
            Terminal.warn("appstatectl: \(member) of \(path): \(error)")
        }
    }

    private func takeManager(_ member: String, _ message: borrowing Message) throws {
        // The application's own object announces the same state change.
        guard let signal = ManagerSignal(rawValue: member), signal != .stateChanged else { return }
        if signal == .resync {
            // Registrations may have been missed. What is removed keeps its name until that is shown.
            try learnNames()
        }
        guard signal.arguments.first?.type == "o" else {
            return show(member, nil, try values(of: signal.arguments, in: message))
        }
        let path = try message.readObjectPath()
        let name = (try message.readString(), try message.readUInt32())
        if signal == .applicationAdded { names[path] = name }
        show(member, path, try values(of: signal.arguments.dropFirst(3), in: message))
        if signal == .applicationRemoved { names[path] = nil }
    }

    private func takeApplication(_ member: String, _ path: String, _ message: borrowing Message) throws {
        let arguments = ApplicationSignal(rawValue: member)?.arguments ?? []
        show(member, path, try values(of: arguments, in: message))
    }

    /// The values in a signal, with the names of its arguments.
    private func values(
        of arguments: some Sequence<(name: String, type: String)>, in message: borrowing Message
    ) throws -> [(String, JSON)] {
        var values: [(String, JSON)] = []
        for (name, type) in arguments {
            let value: JSON =
                switch type {
                case "t": .unsigned(try message.readUInt64())
                case "as": .array(try message.readStrings().map { .string($0) })
                case "a{sv}": .object(try message.readDictionary().map { ($0.key, JSON($0.value)) })
                default: .string(try message.readString())
                }
            values.append((name, value))
        }
        return values
    }

    private func show(_ member: String, _ path: String?, _ arguments: [(String, JSON)]) {
        let name = path.flatMap { names[$0] }
        if let path, !filter.shows(path, name?.id) { return }
        if json {
            var members: [(String, JSON)] = [
                ("time", .unsigned(subscription.loop.now)), ("signal", .string(member)),
            ]
            if let path {
                members.append(
                    ("application", .unsigned(UInt64(BusNames.applicationNumber(inPath: path) ?? 0))))
                members.append(("path", .string(path)))
            }
            if let name { members += [("app_id", .string(name.id)), ("pid", .unsigned(UInt64(name.pid)))] }
            Terminal.emit(JSON.object(members + arguments))
            return
        }
        Terminal.emit(
            Line(Self.clock + "  ") + Self.label(name?.id ?? path ?? "–", isCut: Terminal.isTerminal)
                + Self.words(member, arguments))
    }

    /// The name of an application, and what separates it from the text.
    static func label(_ name: String, isCut: Bool) -> Line {
        let label = Line(name)
        return (isCut ? label.cut(to: columns) : label).padded(to: columns) + Line("  ")
    }

    private static let columns = 28

    /// A signal and its arguments, for users.
    ///
    /// - Parameter now: CLOCK_MONOTONIC in microseconds.
    static func words(
        _ member: String, _ arguments: [(String, JSON)], at now: UInt64 = Clock.monotonicMicroseconds
    ) -> Line {
        if member == ApplicationSignal.stateChanged.rawValue, arguments.count == 3,
            case .string(let from) = arguments[0].1, case .string(let to) = arguments[1].1,
            case .string(let reason) = arguments[2].1
        {
            return Line(state: from) + Line(" → ") + Line(state: to) + Line("  (\(reason))")
        }
        if member == ManagerSignal.applicationReclaimed.rawValue, arguments.count == 3,
            case .unsigned(let bytes) = arguments[0].1, case .unsigned(let microseconds) = arguments[1].1,
            case .members(let details) = arguments[2].1
        {
            let words = ["\(member) \(memory(bytes)) in \(microseconds / 1_000) ms"]
            return Line((words + details.map { "\($0.name)=\($0.value.words)" }).joined(separator: "  "))
        }
        let words = arguments.map { name, value in
            guard name == "deadline", case .unsigned(let time) = value else {
                return "\(name)=\(value.words)"
            }
            if time == .never { return "no deadline" }
            return time > now ? "deadline in \(duration(of: time - now))" : "deadline now"
        }
        return Line(([member] + words).joined(separator: " "))
    }

    /// The time of day, to the millisecond.
    private static var clock: String {
        let now = Clock.realMicroseconds
        return localTime(now).suffix(8) + "." + String(1_000 + now / 1_000 % 1_000).dropFirst()
    }
}
