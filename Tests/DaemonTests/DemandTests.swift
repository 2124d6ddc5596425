import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application that policy has suspended runs when another process needs it. The processes are real.
@Suite("Demand", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct DemandTests {
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    /// A process that policy has suspended.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let child: Child
        let home: TestCgroup?
        let path: String

        /// - Parameters:
        ///   - act: what the process does on a signal that asks it to end.
        ///   - isFrozen: whether it has a cgroup of its own and is frozen with it.
        init(_ act: String, isFrozen: Bool = false, polling: Bool = false) throws {
            daemon = try TestDaemon(
                configuration: DemandTests.impatient,
                withoutCapabilities: polling ? ["perfmon", "sys_admin"] : [])
            client = try daemon.subscriber()
            child = try Self.start(act)
            home = isFrozen ? try TestCgroup("app-demand") : nil
            try home?.take(child.pid)
            path = try Self.suspend(child, client)
        }

        static func start(_ act: String) throws -> Child {
            let script = """
                import os, signal
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, lambda *_: \(act))
                if '\(act)' == '\(DemandTests.deaf)':
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
                print('on', flush=True)
                while True: signal.pause()
                """
            let child = try Child("/usr/bin/python3", ["-c", script])
            _ = try child.waitForLine(containing: "on")
            return child
        }

        static func suspend(_ child: Child, _ client: Client) throws -> String {
            let path = try client.register(
                "org.example.App", child.pid, [("suspension", .string("automatic"))])
            try client.wait(for: path, toBe: "suspended")
            try #require(try client.holds(path) == ["policy appstated"])
            return path
        }

        func demand() throws -> Variant? { try client.explain(path)["last-demand"] }
    }

    private static let polite = "os._exit(7)"
    private static let stubborn = "None"
    /// Blocks SIGHUP, so that it stays pending.
    private static let deaf = "False"

    @Test(
        "a suspended application that is sent a signal to end runs and ends",
        arguments: [SIGTERM, SIGHUP, SIGINT])
    func ends(_ signal: Int32) throws {
        let scene = try Scene(Self.polite)
        scene.child.kill(signal)
        #expect(try scene.client.waitForRemoval(of: scene.path) == "exited")
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test(
        "a frozen application that is sent a signal to end runs and ends",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func endsFrozen() throws {
        let scene = try Scene(Self.polite, isFrozen: true)
        #expect(try scene.home?.cgroup.isFrozen() == true)
        scene.child.kill(SIGTERM)
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test(
        "an application that a person has suspended and that is sent a signal to end runs and ends",
        arguments: [false, true])
    func endsOnRequest(polling: Bool) throws {
        try endsOnRequest(in: Scene(Self.polite, polling: polling))
    }

    @Test(
        "an application that a person has frozen and that is sent a signal to end runs and ends",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
        arguments: [false, true])
    func endsOnRequestFrozen(polling: Bool) throws {
        try endsOnRequest(in: Scene(Self.polite, isFrozen: true, polling: polling))
    }

    private func endsOnRequest(in scene: Scene) throws {
        try scene.client.application(scene.path, "Suspend")
        try #require(try scene.client.holds(scene.path).contains("request uid:\(getuid())"))
        scene.child.kill(SIGTERM)
        #expect(try scene.client.waitForRemoval(of: scene.path) == "exited")
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test(
        "a signal to end that the application ignores does not resume what a person has suspended",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func ignored() throws {
        let scene = try Scene("signal.signal(signal.SIGHUP, signal.SIG_IGN)")
        // It ignores SIGHUP from now on.
        scene.child.kill(SIGINT)
        try scene.client.wait("its return") {
            guard case .string(let why)? = try scene.demand() else { return false }
            return try why.hasPrefix("SIGINT") && scene.client.state(scene.path) == "suspended"
        }
        try scene.client.application(scene.path, "Suspend")
        scene.child.kill(SIGHUP)
        scene.child.kill(SIGSTOP)
        try scene.client.wait("the later signal") {
            try scene.client.holds(scene.path).contains { $0.hasPrefix("signal ") }
        }
        #expect(try scene.client.holds(scene.path).contains("request uid:\(getuid())"))
    }

    @Test(
        "a demand does not lift another process's stop that comes at the same moment",
        arguments: [false, true])
    func stopAndDemand(polling: Bool) throws {
        try stopAndDemand(in: Scene(Self.polite, polling: polling))
    }

    @Test(
        "a demand does not lift another process's stop beneath the daemon's freeze",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
        arguments: [false, true])
    func stopAndDemandFrozen(polling: Bool) throws {
        try stopAndDemand(in: Scene(Self.polite, isFrozen: true, polling: polling))
    }

    private func stopAndDemand(in scene: Scene) throws {
        // The daemon finds both signals at once.
        scene.daemon.process.kill(SIGSTOP)
        scene.daemon.process.waitUntilStopped()
        scene.child.kill(SIGSTOP)
        scene.child.kill(SIGTERM)
        scene.daemon.process.kill(SIGCONT)
        try scene.client.wait("the policy's hold to end") {
            try scene.client.holds(scene.path).map { $0.prefix(7) } == ["signal "]
        }
        #expect(try scene.client.state(scene.path) == "suspended")
        // Beneath a freeze, the stop takes effect a moment after the thaw.
        scene.child.waitUntilStopped()
        #expect(try isStopped(scene.child.pid))
        scene.child.kill(SIGCONT)
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test("a suspended application that is sent a signal to end also ends where stops are found by polling")
    func endsByPolling() throws {
        let scene = try Scene(Self.polite, polling: true)
        scene.child.kill(SIGTERM)
        #expect(try scene.child.waitForExit() == .exited(7))
    }

    @Test(
        "a signal that an application blocks lets it run once, not again and again", arguments: [false, true])
    func blocked(polling: Bool) throws {
        let scene = try Scene(Self.deaf, polling: polling)
        scene.client.forget()
        scene.child.kill(SIGHUP)
        let once = ["suspended→background", "background→suspended"]
        try scene.client.wait("its return") { scene.client.edges(of: scene.path) == once }
        // Each of these is found by a later look at all applications, or by the kernel's report.
        for _ in 0..<3 {
            let other = try Scene.start(Self.polite)
            let path = try Scene.suspend(other, scene.client)
            other.kill(SIGTERM)
            #expect(try scene.client.waitForRemoval(of: path) == "exited")
        }
        #expect(scene.client.edges(of: scene.path) == once)
    }

    @Test("Explain names the sender of the signal; an application that does not end is suspended again")
    func stays() throws {
        let scene = try Scene(Self.stubborn)
        scene.client.forget()
        let sender = try Child("sh", ["-c", "kill -TERM \(scene.child.pid); echo done; read line"])
        _ = try sender.waitForLine(containing: "done")
        try scene.client.wait("its return") {
            scene.client.edges(of: scene.path) == ["suspended→background", "background→suspended"]
        }
        guard case .string(let why)? = try scene.demand() else {
            Issue.record("Explain reports no demand")
            return
        }
        // Polling does not find the sender.
        #expect(["SIGTERM by pid \(sender.pid)", "SIGTERM"].contains(why))
        sender.kill(SIGKILL)
    }

    @Test("a reporter's demand lifts a suspension by policy for the grace period, but not one by request")
    func reported() throws {
        let scene = try Scene(Self.stubborn)
        let client = scene.client
        client.forget()
        func demand(_ pid: Int32, _ reason: String, by other: UInt32) throws {
            try client.reporter("ReportDemand") { message in
                try message.append(UInt32(pid))
                try message.append(reason)
                try message.append(other)
            }
        }
        try demand(scene.child.pid, "call", by: 42)
        try client.wait("its return") {
            client.edges(of: scene.path) == ["suspended→background", "background→suspended"]
        }
        #expect(client.reasons(of: scene.path) == ["demand", "policy"])
        #expect(try scene.demand() == .string("call by pid 42"))
        try client.application(scene.path, "Suspend")
        client.forget()
        try demand(scene.child.pid, "start", by: 0)
        try client.settle()
        #expect(client.edges(of: scene.path) == [])
        #expect(try scene.demand() == .string("call by pid 42"))
        #expect(
            client.error { try demand(scene.child.pid, "No Word", by: 0) } == ErrorName.invalidArgs.rawValue)
        #expect(client.error { try demand(0, "call", by: 0) } == ErrorName.noSuchProcess.rawValue)
        #expect(client.error { try demand(getpid(), "call", by: 0) } == ErrorName.noSuchApplication.rawValue)
    }

    @Test(
        "a reporter's demand for another user's application gives NoSuchApplication",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func strangers() throws {
        let scene = try Scene(Self.stubborn)
        let stranger = try App(scene.daemon.bus, uid: App.nobody)
        let demand = "ReportDemand u:\(scene.child.pid) s:call u:0"
        #expect(errorName { try stranger.reporter(demand) } == ErrorName.noSuchApplication.rawValue)
        #expect(try scene.client.state(scene.path) == "suspended")
    }
}
