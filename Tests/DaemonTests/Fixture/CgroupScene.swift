import AppStateBus
import AppStateContract
import Linux
import TestSupport

/// An application of three processes in a cgroup of its own, in the background, and a subscriber.
struct CgroupScene {
    let daemon: TestDaemon
    let client: Client
    let home: TestCgroup
    let app: App
    let path: String
    let others: [Int32]

    init(_ configuration: String = "", options: String = "suspension=s:manual") throws {
        daemon = try TestDaemon(configuration: configuration)
        client = try daemon.subscriber()
        home = try TestCgroup("app-test")
        app = try App(daemon.bus)
        try home.take(app.pid)
        others = try (0..<2).map { [app] _ in try app.make("fork") }
        path = try app.register("org.example.Actor", options + ",launch-mode=s:background")
        // Policy may suspend it before it has read the answer.
        app.tell("call \(path) \(BusNames.application) FinishLaunching")
        try client.wait(for: path, toBe: "background")
    }

    /// A scene in which policy suspends the application once `act` has been done. On a busy machine the daemon may give
    /// a freeze up, and does not try again before the next grace period ends; the scene then starts anew.
    static func suspended(
        by configuration: String, _ act: (CgroupScene) throws -> Void
    ) throws -> CgroupScene {
        for _ in 0..<20 {
            let scene = try CgroupScene(configuration, options: "suspension=s:automatic")
            try act(scene)
            if try scene.isSuspended() { return scene }
        }
        throw TestFailure("no freeze took effect in time")
    }

    /// Waits until policy has suspended it. False: the freeze was given up.
    private func isSuspended() throws -> Bool {
        var isGivenUp = false
        try client.wait("the suspension") {
            if client.edges(of: path).last?.hasSuffix("→suspended") == true { return true }
            if case .string(let why)? = try client.explain(path)["last-objection"] {
                isGivenUp = why.contains("was not frozen within")
            }
            return isGivenUp
        }
        return !isGivenUp
    }

    var cgroup: Cgroup { home.cgroup }
    /// Whether the cgroup has the daemon's mark.
    var isMarked: Bool { cgroup.isMarked(as: daemon.runtimeDirectory) }
    var pids: [Int32] { [app.pid] + others }
    var noneIsStopped: Bool { get throws { try pids.allSatisfy { try !isStopped($0) } } }
}
