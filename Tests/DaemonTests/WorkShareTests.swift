import AppStateBus
import AppStateContract
import LifeCycle
import TestSupport
import Testing

@testable import Daemon

/// How much of the daemon's time one user gets.
@Suite("The share of one user's work")
struct WorkShareTests {
    @Test("each user gets half a second at once, then a fifth of the time; root has no limit")
    func share() {
        let share = WorkShare()
        var now: Microseconds = 1_000_000_000
        // Work for less than a fifth of the time.
        for _ in 0..<10_000 {
            share.spend(1_000, of: 5, at: now)
            now += 6_000
        }
        #expect(share.due(of: 5) <= now)
        // Work all the time.
        var taken: Microseconds = 0
        while share.due(of: 5) <= now {
            share.spend(1_000, of: 5, at: now)
            now += 1_000
            taken += 1_000
        }
        #expect((WorkShare.allowance...WorkShare.allowance * 13 / 10).contains(taken))
        taken = 0
        let begin = now
        while now < begin + 100_000_000 {
            now = max(now, share.due(of: 5))
            share.spend(1_000, of: 5, at: now)
            now += 1_000
            taken += 1_000
        }
        #expect((19_000_000...21_000_000).contains(taken))
        #expect(share.due(of: 6) <= now)
        share.spend(1_000_000_000, of: 0, at: now)
        #expect(share.due(of: 0) <= now)
    }

    @Test(
        "a client that never stops calling is answered in order, and others are answered meanwhile",
        .enabled(if: Scripts.haveGI, "needs python3-gi"),
        .enabled(if: Scripts.othersCanRun, "needs root, setpriv, and programs that another user can run"))
    func order() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let caller = try Scripts.start("caller.py", ["4000"], on: daemon.bus, uid: App.nobody)
        try caller.waitForLine(containing: "begun")
        let path = try client.application(ofPID: caller.pid)
        var answers = 0
        while !caller.output.contains("done"), caller.advance() == nil {
            _ = try client.state(path)
            answers += 1
        }
        #expect(caller.output.contains("done in order 0"), "\(caller.output)")
        #expect(answers > 10)
        // The last call was to restore the window.
        #expect(try client.explain(path)["minimized"] == .bool(false))
    }
}
