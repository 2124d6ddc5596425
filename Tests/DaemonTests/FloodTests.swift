import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Calls that want no reply: a bus limits how many replies a connection may wait for, but not these calls.
@Suite(
    "A flood of calls", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: App.canBeOthers, App.whatOthersNeed),
    .enabled(if: Scripts.othersCanRun, "needs python3, and that another user can read the tests"))
struct FloodTests {
    @Test("another user's calls without replies do not fill the daemon's memory, and other users get answers")
    func unanswered() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        // 90 MiB together. The bus keeps 127 MiB for a connection that does not read, then it refuses all calls.
        let floods = try (0..<3).map { _ in
            try Scripts.start("flood.py", ["8000", "4000"], on: daemon.bus, uid: App.nobody)
        }
        for flood in floods { try flood.waitForLine(containing: "begun") }
        while floods.contains(where: { $0.advance() == nil }) { #expect(try client.list() == []) }
        for flood in floods { #expect(try flood.waitForExit() == .exited(0), "\(flood.errors)") }
        #expect(try client.list() == [])
        #expect(daemon.process.advance() == nil)
        #expect(try daemon.peakMemory() < 48 << 10)
    }
}
