import AppStateBus
import AppStateContract
import Foundation
import TestSupport

/// A connection of the test, with a loop of its own. It keeps every signal that it is sent.
final class Client {
    /// A signal with its arguments as text, in the order of its signature; dictionaries are left out.
    struct Received: Equatable, CustomStringConvertible {
        let path: String
        let interface: String
        let member: String
        let arguments: [String]

        var description: String { "\(path) \(member)(\(arguments.joined(separator: ", ")))" }
    }

    let loop: EventLoop
    let bus: Bus
    private(set) var received: [Received] = []
    private var filter: Slot?

    init(_ privateBus: PrivateBus) throws {
        loop = try EventLoop()
        bus = try Bus.open(address: privateBus.address)
        try bus.attach(to: loop)
        filter = try bus.addFilter { [weak self] message in
            if message.isSignal { self?.keep(message) }
            return false
        }
    }

    // MARK: Calls

    /// Calls a method of the service and waits for its reply; a D-Bus error is thrown as `BusFailure`.
    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        let message = try bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        return try bus.call(message, timeout: 300_000_000)
    }

    /// Calls and returns the name of the error; nil where there was none.
    func error(of body: () throws -> Void) -> String? { errorName(of: body) }

    @discardableResult
    func register(
        _ id: String = "org.example.App", _ pid: Int32, _ options: [(String, Variant)] = []
    ) throws -> String {
        try call(BusNames.root, BusNames.manager, "Register") { message in
            try message.append(id)
            try message.append(UInt32(pid))
            try message.appendDictionary(options)
        }.readObjectPath()
    }

    /// Calls a method of an application. The application is suspended when `Suspend` returns, unless that takes a
    /// minute: on a busy machine the daemon answers earlier, or gives up a freeze that takes too long.
    func application(_ path: String, _ member: String, _ body: (borrowing Message) throws -> Void = { _ in })
        throws
    {
        guard member == "Suspend" else {
            try call(path, BusNames.application, member, body)
            return
        }
        let deadline = ContinuousClock.now + .seconds(60)
        var isDone = false
        while !isDone {
            do {
                try call(path, BusNames.application, member, body)
                isDone = true
            } catch let failure as BusFailure {
                let isLate = failure.message?.contains("was not frozen within") == true
                guard isLate, ContinuousClock.now < deadline else { throw failure }
            }
        }
        while let state = try? state(path), state != "suspended", ContinuousClock.now < deadline {
            try loop.runOnce(timeout: 100_000)
        }
    }

    func setFocus(_ pid: Int32) throws {
        try call(BusNames.root, BusNames.reporter, "SetFocus") { try $0.append(UInt32(pid)) }
    }

    func setMinimized(_ pid: Int32, _ minimized: Bool) throws {
        try call(BusNames.root, BusNames.reporter, "SetMinimized") { message in
            try message.append(UInt32(pid))
            try message.append(minimized)
        }
    }

    func updateWindow(_ window: UInt64, _ pid: Int32, _ state: [(String, Variant)]) throws {
        try call(BusNames.root, BusNames.reporter, "UpdateWindow") { message in
            try message.append(window)
            try message.append(UInt32(pid))
            try message.appendDictionary(state)
        }
    }

    func property(_ path: String, _ interface: String, _ name: String) throws -> Variant {
        try call(path, BusNames.properties, "Get") { message in
            try message.append(interface)
            try message.append(name)
        }.readVariant()
    }

    func state(_ path: String) throws -> String {
        guard case .string(let state) = try property(path, BusNames.application, "State") else { return "" }
        return state
    }

    func explain(_ path: String) throws -> [String: Variant] {
        let entries = try call(path, BusNames.application, "Explain").readDictionary()
        return Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
    }

    // MARK: Signals

    /// Runs the loop until `done`, which is checked again after every event; fails after five minutes.
    func wait(_ what: String = "what was awaited", until done: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while try !done() {
            guard ContinuousClock.now < deadline else {
                let last = received.suffix(20).map(\.description).joined(separator: "\n")
                throw TestFailure("\(what) did not come; the last signals:\n\(last)")
            }
            try loop.runOnce(timeout: 100_000)
        }
    }

    /// After this, everything that the daemon had sent before has arrived, because it answers in order.
    func settle() throws {
        try call("/", "org.freedesktop.DBus.Peer", "Ping")
        var hasCome = false
        // Messages that the reply overtook wait in the connection's own queue.
        while !hasCome { hasCome = try !loop.runOnce(timeout: 0) }
    }

    func forget() { received = [] }

    /// The edges of one application as they were announced to subscribers: `from→to`.
    func edges(of path: String) -> [String] {
        received.filter {
            $0.interface == BusNames.application && $0.member == "StateChanged" && $0.path == path
        }
        .map { "\($0.arguments[0])→\($0.arguments[1])" }
    }

    /// The signals of one application object, in order.
    func signals(of path: String) -> [Received] {
        received.filter { $0.interface == BusNames.application && $0.path == path }
    }

    /// Waits until the last edge of the application ends in `state`.
    func wait(for path: String, toBe state: String) throws {
        try wait("\(path) to be \(state)") { edges(of: path).last?.hasSuffix("→" + state) == true }
    }

    private func keep(_ message: borrowing Message) {
        guard let interface = message.interface, let member = message.member, let path = message.path,
            interface != "org.freedesktop.DBus"
        else { return }
        var arguments: [String] = []
        do {
            reading: while let next = try message.peek() {
                switch next.type {
                case "s": arguments.append(try message.readString())
                case "o": arguments.append(try message.readObjectPath())
                case "u": arguments.append(String(try message.readUInt32()))
                case "t": arguments.append(String(try message.readUInt64()))
                case "b": arguments.append(String(try message.readBool()))
                default: break reading
                }
            }
            try message.rewind()
        } catch {
            arguments.append("unreadable: \(error)")
        }
        received.append(Received(path: path, interface: interface, member: member, arguments: arguments))
    }
}

/// The name of the D-Bus error that `body` throws; nil where it throws none.
func errorName(of body: () throws -> Void) -> String? {
    do {
        try body()
        return nil
    } catch let failure as BusFailure {
        return failure.name ?? "\(failure)"
    } catch {
        return "\(error)"
    }
}
