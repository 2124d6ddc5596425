import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// The real daemon asks the real session agent for scopes, and that a real service manager.
@Suite(
    "Scopes", .serialized,
    .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: UserManager.isAvailable, Comment(rawValue: UserManager.whatIsMissing)))
struct ScopeTests {
    /// A terminal's unit with a program in it that has a child, and a server that the terminal has started.
    private struct Scene {
        let manager: UserManager
        let daemon: TestDaemon
        let client: Client
        let agent: Child?
        let terminal: Child
        let program: Int32
        let child: Int32
        let server: Int32
        let hierarchy: UnifiedHierarchy

        init(hasAgent: Bool = true) throws {
            manager = try UserManager()
            daemon = try TestDaemon()
            client = try daemon.subscriber()
            hierarchy = try #require(UnifiedHierarchy.find())
            agent = hasAgent ? try Self.agent(of: manager, on: daemon) : nil
            if hasAgent { try Self.waitForAgent(client) }
            let script = """
                setsid -f sh -c 'echo server $$; exec sleep 1000'
                sh -c 'sleep 1000 & echo program $$ $!; wait' & wait
                """
            let terminal = try Child(
                "systemd-run",
                ["--user", "--scope", "--quiet", "--unit=app-term-1.scope", "sh", "-c", script],
                environment: manager.environment)
            func pids(_ name: String) throws -> [Int32] {
                try terminal.waitForLine(containing: name).split(separator: " ").compactMap { Int32($0) }
            }
            self.terminal = terminal
            server = try pids("server ")[0]
            let both = try pids("program ")
            (program, child) = (both[0], both[1])
        }

        private static func agent(of manager: UserManager, on daemon: TestDaemon) throws -> Child {
            let directory = daemon.bus.directory + "/agent"
            mkdir(directory, 0o755)
            let ready = try NotifySocket(in: directory)
            let environment = manager.environment.merging(daemon.bus.environment) { $1 }
            let agent = try Child(
                Programs.built("appstate-session") ?? "appstate-session", ["--launch-only"],
                environment: environment.merging(["NOTIFY_SOCKET": ready.path]) { $1 })
            try ready.wait(for: "READY=1", from: agent)
            return agent
        }

        /// The agent says READY=1 before it has registered itself.
        private static func waitForAgent(_ client: Client) throws {
            try client.wait("the agent") {
                let error = client.error {
                    try client.call(BusNames.root, BusNames.manager, "Launch") { message in
                        try message.append("org.example.None")
                        try message.appendDictionary([])
                    }
                }
                return error == ErrorName.noSuchApplication.rawValue
            }
        }

        func register(_ id: String, _ pid: Int32) throws -> String {
            try client.register(id, pid, [("suspension", .string("manual"))])
        }

        func cgroup(_ pid: Int32) throws -> Cgroup { try Cgroup.of(pid, in: hierarchy) }
        func units(_ pids: Int32...) throws -> [String] { try pids.map { try cgroup($0).name } }
        func isFrozen(_ pid: Int32) throws -> Bool { try cgroup(pid).isFrozen() }

        func suspend(_ path: String) throws { try client.application(path, "Suspend") }
    }

    @Test("a program that shares a terminal's unit is frozen in a scope of its own, and the terminal goes on")
    func program() throws {
        let scene = try Scene()
        let path = try scene.register("org.example.Program", scene.program)
        try scene.suspend(path)
        let scope = try scene.units(scene.program)[0]
        #expect(scope.hasPrefix("app-appstate-org.example.Program-"))
        #expect(try scene.client.state(path) == "suspended")
        #expect(try scene.units(scene.program, scene.child) == [scope, scope])
        #expect(
            try scene.units(scene.terminal.pid, scene.server) == ["app-term-1.scope", "app-term-1.scope"])
        #expect(try scene.isFrozen(scene.program) && !scene.isFrozen(scene.terminal.pid))
        try scene.client.application(path, "Resume")
        #expect(try !scene.isFrozen(scene.program))
        // The scope stays.
        try scene.suspend(path)
        #expect(try scene.units(scene.program, scene.child) == [scope, scope])
        #expect(try scene.isFrozen(scene.program))
        try scene.client.terminate(path, force: true)
        #expect(try scene.client.waitForRemoval(of: path) == "force-quit")
        #expect(eventually { kill(scene.child, 0) != 0 })
        #expect(kill(scene.terminal.pid, 0) == 0)
    }

    @Test("a server, and another application, leave the unit of the terminal that is frozen")
    func terminal() throws {
        let scene = try Scene()
        let program = try scene.register("org.example.Program", scene.program)
        let path = try scene.register("org.example.Terminal", scene.terminal.pid)
        try scene.suspend(path)
        #expect(try scene.client.state(path) == "suspended")
        #expect(try scene.units(scene.terminal.pid) == ["app-term-1.scope"])
        let others = try scene.units(scene.program, scene.child, scene.server)
        #expect(others[0] == others[1] && !others.contains("app-term-1.scope"), "\(others)")
        #expect(others[0].hasPrefix("app-appstate-org.example.Program-"), "\(others)")
        #expect(others[2].hasPrefix("app-appstate-sleep-"), "\(others)")
        #expect(try scene.isFrozen(scene.terminal.pid))
        for pid in [scene.program, scene.child, scene.server] { #expect(try !scene.isFrozen(pid)) }
        #expect(try scene.client.state(program) == "background")
    }

    @Test("without an agent it is stopped by signal, and the explanation says why")
    func noAgent() throws {
        let scene = try Scene(hasAgent: false)
        let path = try scene.register("org.example.Program", scene.program)
        try scene.suspend(path)
        #expect(try scene.client.state(path) == "suspended")
        #expect(try isStopped(scene.program) && isStopped(scene.child))
        #expect(try scene.units(scene.program) == ["app-term-1.scope"])
        #expect(try scene.client.explain(path)["freezer-objection"] != .string(""))
    }
}
