import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The real agent asks a real service manager for scopes, on behalf of a stand-in for the daemon.
@Suite(
    "Scopes by the agent", .serialized,
    .enabled(if: Station.isAvailable, Station.whatIsMissing),
    .enabled(if: UserManager.isAvailable, Comment(rawValue: UserManager.whatIsMissing)))
struct AgentScopeTests {
    private static func make(
        _ scene: LaunchScene, _ id: String, _ main: Int32, _ others: [UInt32] = [], from bus: Bus? = nil
    ) throws -> String {
        let process = try PidFD(pid: main)
        let write = { (message: borrowing Message) in
            try message.append(id)
            try message.append(descriptor: process.rawValue)
            try message.append(others)
        }
        guard let bus else { return try scene.call(LauncherMethod.makeScope, write).readString() }
        let agent = try #require(scene.registration?.connection)
        return try LaunchScene.call(bus, agent, LauncherMethod.makeScope, write).readString()
    }

    private static func refusal(_ call: () throws -> String) throws -> ErrorName? {
        do {
            return ErrorName(rawValue: "no error: \(try call())")
        } catch let failure as BusFailure {
            return failure.name.flatMap { ErrorName(rawValue: $0) }
        }
    }

    @Test("a program leaves the unit of its terminal with its children, and only the daemon may ask for that")
    func terminal() throws {
        let manager = try UserManager()
        let scene = try LaunchScene(
            on: ["XDG_RUNTIME_DIR": manager.directory], arguments: ["--launch-only"])
        let script = "sh -c 'sleep 1000 & echo pids $$ $!; wait' & wait"
        let terminal = try Child(
            "systemd-run", ["--user", "--scope", "--quiet", "--unit=app-term-1.scope", "sh", "-c", script],
            environment: manager.environment)
        let words = try terminal.waitForLine(containing: "pids ").split(separator: " ")
            .compactMap { Int32($0) }
        let (program, child) = (words[0], words[1])
        let hierarchy = try #require(UnifiedHierarchy.find())
        func units() throws -> [String] {
            try [terminal.pid, program, child].map { try Cgroup.of($0, in: hierarchy).name }
        }
        let other = try Bus.open(address: scene.system.address)
        #expect(
            try Self.refusal { try Self.make(scene, "a", program, [UInt32(child)], from: other) }
                == .accessDenied)
        #expect(try Self.refusal { try Self.make(scene, "a", program, [0]) } == .invalidArgs)
        #expect(try Self.refusal { try Self.make(scene, "a/b", program) } == .invalidArgs)
        #expect(try units() == ["app-term-1.scope", "app-term-1.scope", "app-term-1.scope"])
        let unit = try Self.make(scene, "org.example.Program", program, [UInt32(child)])
        #expect(unit == "app-appstate-org.example.Program-1.scope")
        #expect(try units() == ["app-term-1.scope", unit, unit])
    }

    @Test("without a service manager the agent says so")
    func noManager() throws {
        let scene = try LaunchScene(on: ["XDG_RUNTIME_DIR": nil], arguments: ["--launch-only"])
        let program = try Child("sleep", ["1000"])
        #expect(try Self.refusal { try Self.make(scene, "a", program.pid) } == .notSupported)
    }
}
