import AppStateBus
import Glibc
import TestSupport
import Testing

/// For failures that a test does not provoke: the bus has refused a rule.
func unexpected(_ error: MethodError) { Issue.record("\(error)") }

/// A service and a client on a private bus, both driven by one loop on one thread.
final class Peers {
    static let name = "org.appstate1.Test"
    static let path = "/org/appstate1/test"
    static let interface = "org.appstate1.Test"

    let daemon: PrivateBus
    let loop: EventLoop
    let service: Bus
    let client: Bus
    var slots: [Slot] = []
    /// The policy that allows owning and calling the test's service.
    static let policy = """
        <policy context="default">
          <allow own="\(name)"/>
          <allow send_destination="\(name)"/>
        </policy>
        """

    init() throws {
        daemon = try PrivateBus(policy: Self.policy)
        loop = try EventLoop()
        service = try Bus.open(address: daemon.address) { _ in }
        client = try Bus.open(address: daemon.address)
        try service.attach(to: loop)
        try client.attach(to: loop)
        try service.requestName(Self.name)
    }

    /// Puts methods on the service's object.
    func serve(_ methods: Method..., properties: [Property] = []) throws {
        let interface = Interface(Self.interface, methods: methods, properties: properties)
        slots.append(try service.add(interface, at: Self.path))
    }

    func newCall(
        _ member: String, interface: String = interface, path: String = path
    ) throws -> Message {
        try client.newCall(destination: Self.name, path: path, interface: interface, member: member)
    }

    /// Calls the service from the client and runs the loop until the answer has arrived.
    func call(
        _ member: String, interface: String = interface, path: String = path,
        _ arguments: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        let call = try newCall(member, interface: interface, path: path)
        try arguments(call)
        return try answer(to: call)
    }

    /// Sends a call from the client and runs the loop until the answer has arrived.
    func answer(to call: borrowing Message) throws -> Message {
        let answer = Answer()
        let slot = try client.callAsync(call) { answer.message = $0.retained() }
        try run { answer.message != nil }
        slot.cancel()
        guard let reply = answer.taken() else { throw Nothing() }
        return reply
    }

    /// Calls the service from the client and returns the error of its answer.
    func refusal(
        _ member: String, interface: String = interface, path: String = path,
        _ arguments: (borrowing Message) throws -> Void = { _ in }
    ) throws -> MethodError? {
        try call(member, interface: interface, path: path, arguments).error
    }

    /// The awaited answer did not arrive.
    struct Nothing: Error {}

    /// Runs the loop until a condition holds.
    func run(until done: () throws -> Bool) throws {
        while try !done() {
            // If nothing is dispatched for this long, the awaited event will not happen.
            let dispatched = try loop.runOnce(timeout: 300_000_000)
            try #require(dispatched, "nothing happens any more")
        }
    }

    /// Runs the loop until the service has handled everything that the client has sent so far, and the other way round:
    /// one round trip through the bus each.
    func settle() throws {
        for bus in [client, service, client, service] {
            let ping = try bus.newCall(
                destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus", member: "GetId")
            var over = false
            let slot = try bus.callAsync(ping) { _ in over = true }
            try run { over }
            slot.cancel()
        }
    }

    /// Runs a program beside the loop until it has ended.
    func run(_ program: String, _ arguments: [String], uid: UInt32? = nil) throws -> Child {
        let child = try Child(program, arguments, environment: daemon.environment, uid: uid)
        var ending: Child.Ending?
        // Duplicates: the child closes its own descriptors at their end, and a watched descriptor must stay open.
        let watched = child.descriptors.map { ($0, fcntl($0, F_DUPFD_CLOEXEC, 3)) }
        var sources: [Int32: Source] = [:]
        for (descriptor, duplicate) in watched {
            sources[duplicate] = try loop.watch(duplicate) { _ in
                ending = child.advance()
                if !child.descriptors.contains(descriptor) {
                    sources[duplicate]?.cancel()
                }
            }
        }
        try run { ending != nil }
        sources.removeAll()
        for (_, duplicate) in watched {
            close(duplicate)
        }
        return child
    }
}

/// Keeps a message that arrives in a handler.
final class Answer {
    var message: Message?

    func taken() -> Message? {
        message.take()
    }
}

let hasBus = PrivateBus.isAvailable
let noBus: Comment = "dbus-daemon is not installed"
