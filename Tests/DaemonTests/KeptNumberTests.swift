import AppStateBus
import AppStateContract
import Foundation
import LifeCycle
import Linux
import Systemd
import TestSupport
import Testing

@testable import Daemon

/// Of how many application ids something is kept, for all users together.
@Suite("The number of ids that are kept")
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
        let loop = try EventLoop()
        let found = try Keeper(
            files: KeptFiles(directories: directory), boot: "1", state: nil, loop: loop,
            journal: Journal(identifier: "test"), now: { 0 }, share: WorkShare())
        let keeper = try #require(found)
        keeper.open()
        let deadline = ContinuousClock.now + .seconds(300)
        while !keeper.isOpen {
            guard ContinuousClock.now < deadline else { throw TestFailure("the files are not read") }
            try loop.runOnce(timeout: 100_000)
        }

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
}
