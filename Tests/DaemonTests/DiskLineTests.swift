import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// In which order users' work reaches the disk, and what it costs them.
@Suite("The line before the disk")
struct DiskLineTests {
    private static func kept(_ user: UInt32, _ name: String) throws -> KeptID {
        KeptID(user: user, application: try #require(ApplicationID("org.example.\(name)")))
    }

    /// The users of the jobs that can be done now, in their order.
    private func users(_ line: inout DiskLine, _ share: WorkShare?, at now: Microseconds) -> [UInt32] {
        var users: [UInt32] = []
        while case .now(let job) = line.begin(within: share, at: now) {
            users.append(job.kept.user)
            _ = line.end()
        }
        return users
    }

    @Test("users take turns; one who has used up the share waits, and the others go first")
    func order() throws {
        let share = WorkShare()
        var line = DiskLine()
        for name in ["One", "Two", "Three"] {
            line.add(DiskLine.Job(kept: try Self.kept(1_000, name), work: .record))
        }
        for name in ["One", "Two"] {
            line.add(DiskLine.Job(kept: try Self.kept(1_001, name), work: .record))
        }
        var copy = line
        #expect(users(&copy, share, at: 0) == [1_000, 1_001, 1_000, 1_001, 1_000])

        share.charge(2 * WorkShare.allowance, to: 1_000, at: 0)
        #expect(users(&line, share, at: 0) == [1_001, 1_001])
        guard case .later(let due) = line.begin(within: share, at: 0) else {
            Issue.record("it does not wait")
            return
        }
        #expect(due == share.due(of: 1_000))
        #expect(users(&line, share, at: due) == [1_000, 1_000, 1_000])
        guard case .nobody = line.begin(within: share, at: due) else {
            Issue.record("something is left")
            return
        }
    }

    @Test("a daemon that ends does all that waits; nobody's turn comes while a job is under way")
    func end() throws {
        let share = WorkShare()
        share.charge(2 * WorkShare.allowance, to: 1_000, at: 0)
        var line = DiskLine()
        for name in ["One", "Two"] {
            line.add(DiskLine.Job(kept: try Self.kept(1_000, name), work: .record))
        }
        guard case .now = line.begin(within: nil, at: 0), case .nobody = line.begin(within: nil, at: 0) else {
            Issue.record("not one at a time")
            return
        }
        _ = line.end()
        #expect(users(&line, nil, at: 0) == [1_000])
    }

    /// Keeps what clients save, at a time that stands still.
    private final class Bench {
        let loop: EventLoop
        let share = WorkShare()
        let keeper: Keeper
        private let privateBus: PrivateBus
        private let service: Bus
        private let client: Bus
        private var filter: Slot?
        private var calls: [PendingCall] = []

        init() throws {
            loop = try EventLoop()
            privateBus = try PrivateBus(
                policy: "<policy context=\"mandatory\"><allow send_type=\"method_call\"/></policy>")
            service = try Bus.open(address: privateBus.address)
            client = try Bus.open(address: privateBus.address)
            let directory = privateBus.directory + "/state"
            mkdir(directory, 0o700)
            let keeper = try Keeper(
                files: KeptFiles(directories: directory), boot: "1", state: nil, loop: loop,
                journal: Journal(identifier: "test"), now: { 0 }, share: share)
            self.keeper = try #require(keeper)
            try service.attach(to: loop)
            try client.attach(to: loop)
            filter = try service.addFilter { [unowned self] message in
                guard message.isMethodCall else { return false }
                calls.append(service.deferred(message))
                return true
            }
            self.keeper.open()
        }

        /// Has this many bytes saved.
        func save(_ size: Int, of kept: KeptID) throws -> PendingCall {
            let before = calls.count
            let message = try client.newCall(
                destination: service.uniqueName, path: "/", interface: "org.example.Test", member: "Save")
            try client.send(message)
            try wait { calls.count > before }
            let call = calls[before]
            keeper.save(.bytes([UInt8](repeating: 0, count: size)), of: kept, call)
            return call
        }

        func wait(_ isDone: () -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isDone() {
                guard ContinuousClock.now < deadline else { throw TestFailure("it does not happen") }
                try loop.runOnce(timeout: 100_000)
            }
        }
    }

    @Test("the record of what ran with the previous daemon says so until it is known to have ended")
    func stillRunning() throws {
        let id = try Self.kept(1_000, "One").application
        var before = KeptApplication(usedAt: 1)
        before.runs = 1
        before.stateAtStop = .background
        let record = before.record(of: id, boot: "1")
        var next = try KeptApplication(record, boot: "1", now: 2)
        #expect(next.record(of: id, boot: "1") == record)
        next.wasRunning = false
        #expect(next.record(of: id, boot: "1")["running"] == nil)
        // In another boot, the same record says that the application ended with the former.
        let rebooted = try KeptApplication(record, boot: "2", now: 3)
        #expect(rebooted.record(of: id, boot: "2")["running"] == nil)
        #expect(rebooted.exits.map(\.reason) == [.rebooted])
    }

    @Test(
        "what is saved is charged to its user, whose next save waits while another user's is done",
        .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
    func charged() throws {
        let bench = try Bench()
        let (one, other) = (try Self.kept(1_000, "One"), try Self.kept(1_001, "Other"))
        #expect(bench.keeper.begin(one))
        var saves = 0
        while bench.share.due(of: 1_000) == 0 {
            let call = try bench.save(16 << 20, of: one)
            try bench.wait { call.isAnswered }
            saves += 1
        }
        // 128 MiB cost half a second, and the processor time comes on top.
        #expect((1...9).contains(saves), "\(saves)")
        #expect(bench.share.due(of: 1_001) == 0)

        let waiting = try bench.save(1, of: one)
        let done = try bench.save(1, of: other)
        try bench.wait { done.isAnswered }
        #expect(!waiting.isAnswered)
        bench.keeper.finish()
        #expect(waiting.isAnswered)
        #expect(bench.keeper.expectedSize(of: one) == 1)
    }
}
