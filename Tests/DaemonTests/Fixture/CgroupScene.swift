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

    var cgroup: Cgroup { home.cgroup }
    var pids: [Int32] { [app.pid] + others }
    var noneIsStopped: Bool { get throws { try pids.allSatisfy { try !isStopped($0) } } }
}
