import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import AppStateBus
@testable import Daemon

/// In which order long lists of several users are written.
@Suite("The turns of long lists", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct ListingTurnsTests {
    /// Lists that take many turns. No timer calls for a turn.
    private final class Bench {
        let unread: UnreadAnswers
        let listings: Listings
        private let loop: EventLoop
        private let privateBus: PrivateBus
        private let service: Bus
        private let client: Bus
        private var filter: Slot?
        private var slots: [Slot] = []
        private var calls: [PendingCall] = []

        init() throws {
            loop = try EventLoop()
            privateBus = try PrivateBus(
                policy: "<policy context=\"mandatory\"><allow send_type=\"method_call\"/></policy>")
            service = try Bus.open(address: privateBus.address)
            client = try Bus.open(address: privateBus.address)
            let (journal, share) = (Journal(identifier: "test"), WorkShare())
            // Nothing is read from it: the bus never says how much is unread.
            let inquiries = try Bus.open(address: privateBus.address)
            unread = UnreadAnswers(inquiries: inquiries, share: share, journal: journal)
            let connections = Connections(
                bus: service, inquiries: inquiries, proc: Proc(), journal: journal)
            let delivery = Delivery(
                bus: service, connections: connections, journal: journal, now: { 0 }, share: share,
                isReachable: { _ in true })
            let announcer = Announcer(
                delivery: delivery, connections: connections, journal: journal, delegate: { _ in nil })
            let numbers = (1...30_000).map { ApplicationNumber(UInt32($0)) }
            listings = Listings(
                bus: service, announcer: announcer, core: Core(settings: Settings()), share: share,
                unread: unread, table: ApplicationTable(proc: Proc()), possiblyVisible: { _ in numbers },
                maySee: { _, _ in true })
            try service.attach(to: loop)
            try client.attach(to: loop)
            filter = try service.addFilter { [unowned self] message in
                guard message.isMethodCall else { return false }
                calls.append(service.deferred(message))
                return true
            }
        }

        func connection(of user: UInt32) throws -> Connection {
            var credentials = Credentials(
                uid: user, pid: getpid(), securityLabel: nil, pidDescriptor: nil)
            return try Connection(name: ":9.\(user)", credentials: &credentials, proc: Proc())
        }

        /// Begins a list for a user.
        func list(for user: UInt32) throws -> PendingCall {
            let before = calls.count
            let message = try client.newCall(
                destination: service.uniqueName, path: "/", interface: "org.example.Test", member: "List")
            slots.append(try client.callAsync(message, timeout: .max) { _ in })
            try wait(for: { calls.count > before }, doing: { try loop.runOnce(timeout: 100_000) })
            let call = calls[before]
            listings.answer(.rows, call, try connection(of: user))
            return call
        }

        func turn(until isDone: () -> Bool) throws {
            try wait(
                for: isDone,
                doing: {
                    listings.turn()
                    try service.flush()
                })
        }

        private func wait(for isDone: () -> Bool, doing step: () throws -> Void) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isDone() {
                guard ContinuousClock.now < deadline else { throw TestFailure("it does not happen") }
                try step()
            }
        }
    }

    @Test("a user of whom it is not known how much is unread does not keep other users' lists waiting")
    func unknown() throws {
        let bench = try Bench()
        let first = try bench.list(for: 1_001)
        // Root's share of the time is not limited.
        let hoarded = try bench.list(for: 0)
        bench.unread.chargeAnswer(of: 16 << 20, to: try bench.connection(of: 0))
        let other = try bench.list(for: 1_002)
        try bench.turn { first.isAnswered && other.isAnswered }
        #expect(!hoarded.isAnswered)
    }
}
