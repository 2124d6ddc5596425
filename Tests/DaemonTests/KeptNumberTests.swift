import AppStateBus
import AppStateContract
import Foundation
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// Of how many application ids something is kept, and how much.
@Suite("What is kept")
struct KeptNumberTests {
    private static func kept(_ user: UInt32, _ name: String) throws -> KeptID {
        KeptID(user: user, application: try #require(ApplicationID("org.example.\(name)")))
    }

    /// Writes the records of applications that have run, one after the other.
    private func write(_ count: Int, of user: UInt32, in directory: String) throws {
        let place = "\(directory)/applications/\(user)"
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
        for number in 0..<count {
            let id = try Self.kept(user, "N\(number)").application
            let record = KeptApplication(usedAt: UInt64(number + 1)).record(of: id, boot: "1")
            try WholeFile.write(RecordFile.bytes(record), to: "\(place)/\(id)")
        }
    }

    @Test("beyond 8,192 ids, the user who has the most loses the one that was used longest ago")
    func ofAllUsers() throws {
        let directory = NSTemporaryDirectory() + "kept-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let others = UInt32(2_000)..<2_120
        try write(512, of: 1_000, in: directory)
        for user in others { try write(64, of: user, in: directory) }
        let worker = try Worker(name: "kept")
        let found = Keeper(
            files: KeptFiles(directories: directory), boot: "1", state: nil, worker: worker,
            journal: Journal(identifier: "test"))
        let keeper = try #require(found)
        keeper.open()
        // On a busy machine it goes on without the disk.
        while !keeper.isOpen, worker.wait(until: .max) { worker.complete() }

        #expect(try keeper.begin(Self.kept(3_000, "New")))
        #expect(try keeper.runs(of: Self.kept(1_000, "N0")) == nil)
        #expect(try keeper.runs(of: Self.kept(1_000, "N1")) == 0)
        for user in others { #expect(try keeper.runs(of: Self.kept(user, "N0")) == 0) }

        // None of that user's may be forgotten any longer.
        for number in 1..<512 { #expect(try keeper.begin(Self.kept(1_000, "N\(number)"))) }
        #expect(try !keeper.begin(Self.kept(2_000, "New")))
        #expect(try keeper.begin(Self.kept(2_000, "N0")))
        #expect(try keeper.begin(Self.kept(3_000, "Next")))
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

    @Test("of the ends that are not on the disk, the next daemon gets the last 16 of each id")
    func pendingEnds() throws {
        let (one, other) = (try Self.kept(1_000, "One"), try Self.kept(1_000, "Other"))
        var pending = PendingEnds()
        for time in UInt64(1)...20 {
            let exit = KeptApplication.Exit(time: time, reason: .exited, state: nil, status: 0)
            pending.add(PendingEnds.End(exit: exit, isLast: time == 20), of: one)
            if time == 1 { pending.add(PendingEnds.End(exit: exit, isLast: true), of: other) }
        }
        var next = PendingEnds(pending.record)
        #expect(next.ends[one]?.map(\.exit.time) == Array(5...20))
        #expect(next.ends[one]?.last?.isLast == true)
        #expect(next.ends[other]?.count == 1)
        #expect(next.remove(of: one) && !next.remove(of: one))
    }
}
