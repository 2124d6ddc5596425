import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Desktop

/// Running processes are moved into scopes of a real service manager.
@Suite(
    "Scopes", .serialized,
    .enabled(if: UserManager.isAvailable, Comment(rawValue: UserManager.whatIsMissing)))
struct ScopeTests {
    private final class Stage: UnitStage {
        let hierarchy: UnifiedHierarchy

        override init() throws {
            hierarchy = try #require(UnifiedHierarchy.find())
            try super.init()
        }

        /// Starts a shell in a unit of its own. It starts `server` and `program`, and `program` has two children.
        func start() throws -> (shell: Int32, server: Int32, program: Int32, children: [Int32]) {
            let out = "\(scratch.path)/pids"
            let script = """
                sleep 1000 & echo $! > \(out)
                sh -c 'sleep 1000 & a=$!; sleep 1000 & echo $$ $a $! >> \(out); wait' & wait
                """
            var result: Result<StartedProgram, MethodError>?
            let words = ["/bin/sh", "-c", script]
            starter.start(
                ProgramRequest(
                    id: "term", name: "Term", command: ProgramCommand(program: words[0], arguments: words))
            ) { result = $0 }
            try turn { result != nil }
            let program = try #require(result).get()
            program.proceed()
            var pids: [Int32] = []
            try turn {
                let text = (try? String(contentsOfFile: out, encoding: .utf8)) ?? ""
                pids = text.split(whereSeparator: \.isWhitespace).compactMap { Int32($0) }
                return pids.count == 4
            }
            return (program.pid, pids[0], pids[1], Array(pids[2...]))
        }

        func make(
            _ id: String, _ main: Int32, _ others: [Int32] = []
        ) throws -> Result<String, MethodError> {
            var result: Result<String, MethodError>?
            ScopeMaker.make(
                id, main: try PidFD(pid: main), others: others, bus: bus, loop: loop
            ) { result = $0 }
            try turn { result != nil }
            return try #require(result)
        }

        func refusal(_ main: Int32, _ others: [Int32] = []) throws -> ErrorName? {
            guard case .failure(let error) = try make("a", main, others) else { return nil }
            return ErrorName(rawValue: error.name)
        }

        func cgroup(_ pid: Int32) throws -> Cgroup { try Cgroup.of(pid, in: hierarchy) }
        func unit(_ pid: Int32) throws -> String { try cgroup(pid).name }
    }

    @Test("a program with its children leaves the unit that it shares, later processes are attached")
    func sharing() throws {
        let stage = try Stage()
        let (shell, server, program, children) = try stage.start()
        let service = try stage.unit(shell)
        #expect(try stage.unit(children[1]) == service)
        let scope = try stage.make("org.example.my-app", program, children).get()
        #expect(scope.hasPrefix(#"app-appstate-org.example.my\x2dapp-"#) && scope.hasSuffix(".scope"))
        #expect(try ([program] + children).map(stage.unit) == [scope, scope, scope])
        #expect(try [shell, server].map(stage.unit) == [service, service])
        let cgroup = try stage.cgroup(program)
        #expect(cgroup.parent?.name == "app.slice")
        #expect(ApplicationUnit(inPath: cgroup.path)?.application == "org.example.my-app")
        // It can be frozen as a whole, and nothing else is.
        try cgroup.freeze()
        try stage.turn { try cgroup.isFrozen() }
        try cgroup.thaw()
        // One that has ended does not matter.
        let ended = try Child("true")
        _ = try ended.waitForExit()
        #expect(
            try stage.make("org.example.my-app", program, [server, ended.pid]) == .success(scope))
        #expect(try stage.unit(server) == scope)
        // Strangers in such a scope get one of their own, even if they are told by the same id.
        let second = try stage.make("org.example.my-app", server).get()
        #expect(try [server, program].map(stage.unit) == [second, scope])
        let third = try stage.make("org.example.my-app", children[0], [children[1]]).get()
        #expect(Set([scope, second, third]).count == 3)
        #expect(try ([program] + children).map(stage.unit) == [scope, third, third])
    }

    @Test("what another user or the system runs is not moved, nor what has ended")
    func refused() throws {
        let stage = try Stage()
        let (shell, server, _, _) = try stage.start()
        let service = try stage.unit(shell)
        let other = try Child("sleep", ["1000"], uid: 65_534)
        #expect(try stage.refusal(other.pid) == .accessDenied)
        #expect(try stage.refusal(server, [other.pid]) == .accessDenied)
        let system = try TestCgroup("test-\(UUID().uuidString).service", below: try #require(TestCgroup.base))
        let daemon = try Child("sleep", ["1000"])
        try system.take(daemon.pid)
        #expect(try stage.refusal(daemon.pid) == .accessDenied)
        #expect(try stage.refusal(server, [daemon.pid]) == .accessDenied)
        #expect(try stage.cgroup(daemon.pid) == system.cgroup)
        let ended = try Child("true")
        let process = try PidFD(pid: ended.pid)
        _ = try ended.waitForExit()
        var result: Result<String, MethodError>?
        ScopeMaker.make("a", main: process, others: [], bus: stage.bus, loop: stage.loop) { result = $0 }
        try stage.turn { result != nil }
        guard case .failure(let error)? = result else { throw TestFailure("\(String(describing: result))") }
        #expect(ErrorName(rawValue: error.name) == .noSuchProcess)
        #expect(try stage.unit(server) == service)
    }

    @Test("without a service manager there is no scope")
    func noManager() throws {
        let bus = try PrivateBus(
            policy: "<policy context=\"default\"><allow send_type=\"method_call\"/></policy>")
        let loop = try EventLoop()
        let connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        var name: String?
        ScopeMaker.make(
            "a", main: try PidFD(pid: getpid()), others: [], bus: connection, loop: loop, directory: nil
        ) { result in
            if case .failure(let error) = result { name = error.name }
        }
        _ = try eventually {
            _ = try loop.runOnce(timeout: 50_000)
            return name != nil
        }
        #expect(name == ErrorName.notSupported.rawValue)
    }
}
