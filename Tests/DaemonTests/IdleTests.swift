import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// A daemon with nothing to do does nothing, however many applications it manages. Where it finds stops by polling, it
/// looks at them every second, so this is promised only where the kernel reports stops.
@Suite(
    "Idle", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
struct IdleTests {
    @Test("with a hundred applications in every state, the daemon has no timer and no wake-ups")
    func hundred() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=100ms\nDrainEverySec=0\n")
        let client = try daemon.subscriber()
        #expect(try client.property(BusNames.root, BusNames.manager, "StopDetection") == .string("events"))
        let herd = try self.herd(client)
        // Three applications have a connection of their own.
        let apps = try (0..<3).map { _ in try App(daemon.bus) }
        for (number, app) in apps.enumerated() {
            let path = try app.register("org.example.Actor\(number)")
            try app.application(path, "FinishLaunching")
            try app.settle()
        }
        try client.setFocus(herd[2].pid)
        // The grace periods have passed, so nothing else is under way.
        try client.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
        try client.settle()
        let states = try client.list().compactMap { $0.split(separator: " ").last.map(String.init) }
        #expect(states.count == 103)
        #expect(Set(states) == ["active", "inactive", "background", "suspended"])

        try expectSilence(of: daemon)
        // A contested lock of any process on the machine arms one again for a moment.
        try client.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
        try client.settle()
        withExtendedLifetime((herd, apps)) {}
    }

    /// A hundred processes, registered by another process: a fifth each without a window, minimized and then
    /// suspended by policy, visible, suspended on request, and stopped by another process.
    private func herd(_ client: Client) throws -> [Child] {
        let herd = try (0..<100).map { _ in try Child("sleep", ["1000"]) }
        for (number, child) in herd.enumerated() {
            let options: [(String, Variant)] = number % 5 == 1 ? [("suspension", .string("automatic"))] : []
            let path = try client.register("org.example.App\(number)", child.pid, options)
            switch number % 5 {
            case 1:
                try client.updateWindow(UInt64(number), child.pid, [("minimized", .bool(true))])
                try client.wait(for: path, toBe: "suspended")
            case 2: try client.updateWindow(UInt64(number), child.pid, [("visible", .bool(true))])
            case 3: try client.application(path, "Suspend")
            case 4:
                child.kill(SIGSTOP)
                try client.wait(for: path, toBe: "suspended")
            default: break
            }
            try client.catchUp()
        }
        return herd
    }

    /// Observes the daemon for three seconds. The passing of time is what is observed, so the test waits for nothing
    /// else. The kernel reports every stop, continuation and contested file lock on the machine to the daemon, so other
    /// processes that cause some wake it. If it woke more often than the kernel reported stops to us, or if there was more
    /// than we can count, the test observes it again: a cause in the daemon itself wakes it each time.
    private func expectSilence(of daemon: TestDaemon) throws {
        let trace = try StopTrace.open()
        let locks = try? LockTrace()
        var wakeUps: [Int] = []
        for _ in 0..<60 {
            try waitUntilAsleep(daemon)
            _ = hints(trace)
            _ = locks?.drain()
            let before = try daemon.wakeUps()
            // A ring holds what happens in a few milliseconds of a flood.
            let end = ContinuousClock.now + .seconds(3)
            var seen: Int? = 0
            while ContinuousClock.now < end {
                poll(nil, 0, 20)
                if let sum = seen, let new = hints(trace) { seen = sum + new } else { seen = nil }
                if locks?.drain() == true { seen = nil }
            }
            wakeUps.append(try daemon.wakeUps() - before)
            if let seen, wakeUps.last ?? 0 <= seen { return }
        }
        Issue.record("woken in every three seconds: \(wakeUps)")
    }

    /// How many stops and continuations the kernel has reported since the last call; nil: it has lost some.
    private func hints(_ trace: StopTrace) -> Int? {
        var count = 0
        return trace.drain { _ in count += 1 } ? count : nil
    }

    /// Waits until the daemon sleeps, which it does some time after its last answer. Nothing announces that, so this
    /// looks every millisecond.
    private func waitUntilAsleep(_ daemon: TestDaemon) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        var looks = 0
        var last = try daemon.wakeUps()
        // Unchanged for a tenth of a second.
        while looks < 100 {
            guard ContinuousClock.now < deadline else { throw TestFailure("the daemon does not go to sleep") }
            poll(nil, 0, 1)
            let now = try daemon.wakeUps()
            looks = now == last ? looks + 1 : 0
            last = now
        }
    }
}
