import AppStateBus
import Glibc
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// How much one step sends, and who is charged for it.
@Suite("The load of one step's signals", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct DeliveryLoadTests {
    private static let size = 60 << 10
    private static let owner: UInt32 = 1_000
    private static let limit = 640 << 10

    /// Sends signals to connections of this test's user, at a time that stands still.
    private final class Bench {
        let share = WorkShare()
        let clients: [Client]
        private let privateBus: PrivateBus
        private let service: Bus
        private let connections: Connections
        private let delivery: Delivery

        private static let pings = """
            <policy context="default">
              <allow send_type="method_call" send_interface="org.freedesktop.DBus.Peer" send_member="Ping"/>
            </policy>
            """

        init(_ count: Int) throws {
            privateBus = try PrivateBus(policy: Bench.pings)
            service = try Bus.open(address: privateBus.address)
            let (bus, journal) = (privateBus, Journal(identifier: "test"))
            clients = try (0..<count).map { _ in try Client(bus) }
            connections = Connections(
                bus: service, inquiries: try Bus.open(address: bus.address), proc: Proc(), journal: journal)
            delivery = Delivery(
                bus: service, connections: connections, journal: journal, now: { 0 }, share: share,
                isReachable: { _ in true })
            for client in clients { _ = try connections.connection(named: client.bus.uniqueName) }
        }

        func send(_ member: String, _ body: (borrowing Message) throws -> Void = { _ in }) {
            delivery.send(.objects(member), of: owner, to: { _ in true }, body)
        }

        func sendToDelegate(
            _ member: String, _ body: (borrowing Message) throws -> Void = { _ in }
        ) throws {
            let connection = try connections.connection(named: clients[0].bus.uniqueName)
            delivery.sendToDelegate(.objects(member), of: owner, to: try #require(connection), body)
        }

        /// Handles what the clients have answered.
        func process() throws {
            while try service.process() {}
        }

        func endStep() throws {
            delivery.stepHasEnded()
            try service.flush()
        }

        /// What each client has heard, up to the signal of this name.
        func heard(until member: String) throws -> [[String]] {
            send(member)
            try endStep()
            return try clients.map { client in
                try client.wait(member) { client.received.last?.member == member }
                return client.received.dropLast().map(\.member).filter { $0 != "NameAcquired" }
            }
        }
    }

    @Test("bytes are limited for each step; a connection that misses some gets a Resync in their place")
    func bytes() throws {
        let bench = try Bench(20)
        bench.send("Long") { try $0.append(bytes: [UInt8](repeating: 0, count: Self.size)) }
        bench.send("Next")
        try bench.endStep()
        let heard = try bench.heard(until: "Last")
        let sent = heard.count { $0 == ["Long"] || $0 == ["Long", "Next"] || $0 == ["Long", "Resync"] }
        #expect((1...Self.limit / Self.size + 1).contains(sent), "\(heard)")
        #expect(heard.allSatisfy { $0.first == "Long" || $0 == ["Resync"] }, "\(heard)")
    }

    @Test("many values take as much of a step as many bytes; the delegate gets its signals all the same")
    func values() throws {
        let bench = try Bench(20)
        let numbers = (0..<1_000).map { ("k\($0)", Variant.byte(7)) }
        bench.send("Long") { try $0.appendDictionary(numbers) }
        try bench.sendToDelegate("Delegate")
        try bench.endStep()
        let heard = try bench.heard(until: "Last")
        let sent = heard.count { $0.first == "Long" }
        #expect((1...10).contains(sent), "\(heard)")
        #expect(heard[0].contains("Delegate"))
        #expect(heard.dropFirst().allSatisfy { $0 == ["Long"] || $0 == ["Resync"] }, "\(heard)")
    }

    @Test("what the bus must pass on is charged to the user whose application it is about")
    func charged() throws {
        let bench = try Bench(4)
        var steps = 0
        while bench.share.due(of: Self.owner) == 0, steps < 200 {
            bench.send("Long") { try $0.append(bytes: [UInt8](repeating: 0, count: Self.size)) }
            try bench.endStep()
            steps += 1
        }
        // Half a second is worth 12,800,000 bytes.
        #expect(steps * 4 * Self.size >= 12_700_000 && steps * 4 * Self.size <= 13_200_000, "\(steps)")
        #expect(bench.share.due(of: getuid()) == 0)
        let heard = try bench.heard(until: "Last")
        #expect(heard.allSatisfy { $0 == [String](repeating: "Long", count: steps) })
    }

    @Test("what one user's connections have not read is limited, for a delegate, too; each gets a Resync")
    func unread() throws {
        let bench = try Bench(4)
        let long = [UInt8](repeating: 0, count: Self.size)
        for _ in 0..<120 {
            bench.send("Long") { try $0.append(bytes: long) }
            try bench.sendToDelegate("Long") { try $0.append(bytes: long) }
            try bench.endStep()
        }
        for client in bench.clients {
            try client.wait("Resync") {
                try bench.process()
                return client.received.last?.member == "Resync"
            }
        }
        let members = bench.clients.map { $0.received.map(\.member) }
        let bytes = members.joined().count { $0 == "Long" } * Self.size
        #expect((15 << 20...17 << 20).contains(bytes), "\(bytes)")
        #expect(members.allSatisfy { $0.count { $0 == "Resync" } == 1 })
    }

    @Test("a connection that gets a Resync in each step and reads nothing is cut off all the same")
    func resyncInEachStep() throws {
        let bench = try Bench(40)
        for _ in 0..<100 {
            for _ in 0..<12 { bench.send("Next") }
            try bench.endStep()
        }
        var most = 0
        for client in bench.clients {
            // The bus keeps the order: all that was sent to the client comes before the answer.
            var hasCome = false
            let slot = try client.bus.callAsync(client.bus.newDriverCall("GetId")) { _ in hasCome = true }
            try client.wait("the answer") { hasCome }
            slot.cancel()
            most = max(most, client.received.count { ["Next", "Resync"].contains($0.member) })
        }
        #expect((1...512).contains(most), "\(most)")
    }
}
