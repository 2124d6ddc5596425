import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// Calls from connections that the daemon does not know yet.
@Suite("Strangers' calls", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ConnectionsTests {
    private let daemon: TestDaemon

    init() throws { daemon = try TestDaemon() }

    /// Everything that `body` sends is in the daemon's queue at once, in the order in which it was sent.
    private func whileStopped(_ body: () throws -> Void) throws {
        daemon.process.kill(SIGSTOP)
        defer { daemon.process.kill(SIGCONT) }
        try body()
    }

    private func ping(_ bus: Bus) throws -> Message {
        try bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: "org.freedesktop.DBus.Peer",
            member: "Ping")
    }

    @Test(
        "calls are answered in order, even if more come than may wait until their senders are known",
        arguments: [1, 6])
    func order(of strangerCount: Int) throws {
        let strangers = try (0..<strangerCount).map { _ in try daemon.client() }
        // A bus allows each connection 128 pending replies.
        let count = 120
        var answered = Array(repeating: [Int](), count: strangerCount)
        var calls: [Slot] = []
        try whileStopped {
            for number in 0..<count {
                for (index, stranger) in strangers.enumerated() {
                    let call = try stranger.bus.callAsync(ping(stranger.bus), timeout: .max) {
                        let isRefused = $0.isError
                        #expect(!isRefused)
                        answered[index].append(number)
                    }
                    calls.append(call)
                }
            }
            for stranger in strangers {
                try stranger.bus.flush()
                // The bus answers in order: it has passed on all calls.
                _ = try stranger.bus.owner(of: BusNames.service)
            }
        }
        for (index, stranger) in strangers.enumerated() {
            try stranger.wait("all answers") { answered[index].count == count }
            #expect(answered[index] == Array(0..<count))
        }
        calls.removeAll()
    }

    @Test("a path longer than any of ours is refused, from unknown and from known callers")
    func longPath() throws {
        let stranger = try daemon.client()
        let path = "/" + String(repeating: "a", count: 60_000)
        for _ in 0..<2 {
            let error = errorName {
                _ = try stranger.bus.call(
                    stranger.bus.newCall(
                        destination: BusNames.service, path: path, interface: "org.freedesktop.DBus.Peer",
                        member: "Ping"))
            }
            #expect(error == "org.freedesktop.DBus.Error.UnknownObject")
            #expect(try stranger.list() == [])
        }
    }

    @Test(
        "the daemon asks the bus at most twice about a connection that has left, however many calls it made")
    func gone() throws {
        let client = try daemon.client()
        let monitor = try Bus.open(address: daemon.bus.address, isMonitor: true)
        var asked: [String] = []
        var lists = 0
        let filter = try monitor.addFilter { message in
            if message.member == "GetConnectionCredentials", let name = try? message.readString() {
                asked.append(name)
            }
            if message.member == ManagerMethod.listApplications.rawValue { lists += 1 }
            return true
        }
        _ = try monitor.call(monitor.newMonitorCall(["type='method_call'"]))

        var name = ""
        try whileStopped {
            let stranger = try Bus.open(address: daemon.bus.address)
            name = stranger.uniqueName
            for _ in 0..<700 { try stranger.send(ping(stranger)) }
            try stranger.flush()
            _ = try stranger.owner(of: BusNames.service)
            stranger.close()
            while try client.bus.owner(of: name) != nil {}
        }
        // The first answer comes after the stranger's calls. The monitor sees the second call after the questions.
        for _ in 0..<2 { #expect(try client.list() == []) }
        while lists < 2 {
            var event = pollfd(fd: monitor.descriptor, events: Int16(POLLIN), revents: 0)
            if try !monitor.process() { poll(&event, 1, 1_000) }
        }
        // Calls that come before the answer wait for it. Once no more fit, the daemon waits for the answer.
        #expect((1...2).contains(asked.count { $0 == name }))
        withExtendedLifetime(filter) {}
    }
}

/// What happens to a stranger's calls, step by step: `Connections` alone, on a bus.
@Suite(
    "Strangers' calls, step by step",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct StrangersTests {
    private final class Scene {
        static let name = "org.example.Called"

        let privateBus: PrivateBus
        let bus: Bus
        let inquiries: Bus
        let stranger: Bus
        /// The calls whose sender was known, in the order of their dispatch.
        var dispatched: [String] = []
        private var filter: Slot?

        /// - Parameter rule: one more rule of the bus's policy.
        init(rule: String = "") throws {
            privateBus = try PrivateBus(
                policy: """
                    <policy context="default">
                      <allow own="\(Self.name)"/>
                      <allow send_destination="\(Self.name)"/>
                      \(rule)
                    </policy>
                    """)
            bus = try Bus.open(address: privateBus.address)
            inquiries = try Bus.open(address: privateBus.address)
            stranger = try Bus.open(address: privateBus.address)
            let connections = Connections(
                bus: bus, inquiries: inquiries, proc: Proc(),
                journal: Journal(identifier: "test", minimum: .emergency))
            filter = try bus.addFilter { [unowned self] message in
                guard message.isMethodCall, let sender = message.sender, let member = message.member else {
                    return false
                }
                do {
                    switch try connections.caller(sender, of: message, member == "Large" ? nil : 0) {
                    case .known: dispatched.append(member)
                    case .unknown(true): bus.refuse(message, .failed("not kept"))
                    case .awaited, .unknown: break
                    }
                } catch {
                    bus.refuse(message, Connections.refusal(error))
                }
                return true
            }
            try bus.requestName(Self.name)
        }

        func newCall(_ member: String, of caller: Bus? = nil) throws -> Message {
            try (caller ?? stranger).newCall(
                destination: Self.name, path: "/", interface: "org.example.Called", member: member)
        }

        /// Waits for the answers to all questions, and dispatches the calls that waited for them.
        func learn() throws {
            _ = try inquiries.id()
            while try inquiries.process() {}
            while try bus.process() {}
        }

        /// Waits until the bus has passed on all of the stranger's calls.
        func settle() throws {
            try stranger.flush()
            _ = try stranger.owner(of: Self.name)
        }
    }

    @Test("calls that were read together keep their order")
    func readTogether() throws {
        let scene = try Scene()
        let members = ["One", "Two", "Three"]
        for member in members { try scene.stranger.send(scene.newCall(member)) }
        try scene.settle()
        // As at the start of the daemon: waiting for an answer reads everything that came before it.
        _ = try scene.bus.id()
        while scene.dispatched.count < members.count {
            _ = try scene.bus.process()
            // The answer about a stranger, if the bus was asked, comes before the next call.
            _ = try scene.inquiries.id()
            while try scene.inquiries.process() {}
        }
        #expect(scene.dispatched == members)
    }

    @Test("a connection that calls a lot leaves room for the calls of others")
    func ownPlaces() throws {
        let scene = try Scene()
        let other = try Bus.open(address: scene.privateBus.address)
        for _ in 0..<200 { try scene.stranger.send(scene.newCall("Many")) }
        try scene.settle()
        try other.send(scene.newCall("One", of: other))
        try other.flush()
        _ = try other.owner(of: Scene.name)
        while try scene.bus.process() {}
        #expect(scene.dispatched == [])
        try scene.learn()
        #expect(scene.dispatched == Array(repeating: "Many", count: 128) + ["One"])
    }

    @Test("a call that cannot be kept waiting is refused, but still makes the daemon ask who its sender is")
    func notKept() throws {
        let scene = try Scene()
        var refused = 0
        let call = try scene.stranger.callAsync(scene.newCall("Large")) { if $0.isError { refused += 1 } }
        try scene.settle()
        while try scene.bus.process() {}
        try scene.learn()
        try scene.stranger.send(scene.newCall("Small"))
        try scene.settle()
        while try scene.bus.process() {}
        #expect(scene.dispatched == ["Small"])
        _ = try scene.stranger.id()
        while try scene.stranger.process() {}
        #expect(refused == 1)
        withExtendedLifetime(call) {}
    }

    @Test("a caller that the bus cannot identify is refused every call, including those that waited")
    func refusedAfterWait() throws {
        let scene = try Scene(
            rule: """
                <deny send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"
                  send_member="GetConnectionCredentials"/>
                """)
        var refused: [String] = []
        let calls = try ["One", "Two"].map { member in
            try scene.stranger.callAsync(scene.newCall(member)) { if $0.isError { refused.append(member) } }
        }
        try scene.settle()
        while try scene.bus.process() {}
        #expect(refused.isEmpty)
        try scene.learn()
        try scene.bus.flush()
        _ = try scene.bus.id()
        _ = try scene.stranger.id()
        while try scene.stranger.process() {}
        #expect(refused == ["One", "Two"])
        #expect(scene.dispatched.isEmpty)
        withExtendedLifetime(calls) {}
    }

    @Test("a stranger is refused if the daemon cannot send the question about it")
    func refused() throws {
        let scene = try Scene()
        scene.inquiries.close()
        var refused = 0
        let call = try scene.stranger.callAsync(scene.newCall("Small")) { if $0.isError { refused += 1 } }
        try scene.settle()
        while try scene.bus.process() {}
        try scene.bus.flush()
        _ = try scene.bus.id()
        _ = try scene.stranger.id()
        while try scene.stranger.process() {}
        #expect(refused == 1)
        #expect(scene.dispatched.isEmpty)
        withExtendedLifetime(call) {}
    }
}
