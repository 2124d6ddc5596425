import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// The daemon may die, and the next one continues its work.
@Suite(
    "Restoration", .enabled(if: App.isAvailable, "needs dbus-daemon, appstated and AppActor"))
struct RestorationTests {
    /// What a client can see of all applications, except what is counted from the daemon's start.
    private func picture(_ client: Client) throws -> [String] {
        try client.list().flatMap { row -> [String] in
            let path = String(row.prefix { $0 != " " })
            let names = [
                "State", "StateTimestamp", "StateTimestampMonotonic", "RegisteredTimestamp",
                "RegisteredTimestampMonotonic", "Focused", "Minimized", "Suspension",
                "Reclaimable", "BackgroundModes", "SuspendHolds", "BackgroundTasks", "LaunchOptions",
            ]
            return try [row] + names.map { "\(row) \($0)=\(try client.property(path, $0).texts ?? [])" }
        }
    }

    @Test(
        "after a kill -9 or a restart of the daemon, applications have the same paths, states and holds",
        arguments: [SIGKILL, SIGUSR1])
    func killed(_ signal: Int32) throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundTaskMaxSec=infinity\n")
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let launched = try app.register("org.example.Actor", "suspension=s:manual")
        try app.application(launched, "FinishLaunching")
        try app.application(launched, "BeginBackgroundTask s:upload")
        let kinds = ["active", "inactive", "minimized", "suspended", "stopped", "plain"]
        var paths: [String: String] = [:]
        var children: [String: Child] = [:]
        for kind in kinds {
            let child = try Child("sleep", ["1000"])
            children[kind] = child
            paths[kind] = try client.register(
                "org.example.\(kind)", child.pid,
                [("launch-options", .dictionary(["why": .string("a\nb"), "n": .uint32(7)]))])
        }
        let pid = { (kind: String) in children[kind]?.pid ?? 0 }
        let reporter = try daemon.client()
        try reporter.updateWindow(1, pid("inactive"), [("title", .string("A title\twith all\nthat"))])
        try reporter.updateWindow(2, pid("minimized"), [("minimized", .bool(true))])
        try client.setFocus(pid("active"))
        try client.application(paths["suspended"] ?? "", "Suspend")
        kill(pid("stopped"), SIGSTOP)
        try client.wait("the stop") { try client.state(paths["stopped"] ?? "") == "suspended" }

        let before = try picture(client)
        try daemon.end(signal)
        #expect(try isStopped(pid("suspended")))
        try daemon.start()
        let after = try picture(client)
        #expect(after.filter { !before.contains($0) } == [])
        #expect(before.filter { !after.contains($0) } == [])
        #expect(try isStopped(pid("suspended")))

        // The restored applications still react to requests, signals and reports.
        let subscriber = try daemon.subscriber()
        try client.application(paths["suspended"] ?? "", "Resume")
        #expect(try !isStopped(pid("suspended")))
        kill(pid("stopped"), SIGCONT)
        try subscriber.wait(for: paths["stopped"] ?? "", toBe: "background")
        try client.setFocus(app.pid)
        #expect(try app.last("DidBecomeActive", of: launched) == [])
        let next = try Child("sleep", ["1000"])
        #expect(try client.register("org.example.Next", next.pid) == BusNames.path(ofApplication: 8))
    }

    @Test(
        "an application that ends while no daemon runs is removed, and its cgroup is thawed",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func endedMeanwhile() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        try scene.daemon.end(SIGKILL)
        let process = try PidFD(pid: scene.app.pid)
        kill(scene.app.pid, SIGKILL)
        let hasEnded = waitForEnd(of: process)
        #expect(hasEnded)
        #expect(try scene.cgroup.wantsFrozen())
        try scene.daemon.start()
        #expect(try scene.client.list() == [])
        #expect(try !scene.cgroup.wantsFrozen())
        #expect(try files(scene.daemon) == [])
    }

    @Test("connections that left while no daemon ran are gone for the next daemon")
    func connectionsLeft() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
        try app.application(path, "FinishLaunching")
        try app.application(path, "BeginBackgroundTask s:upload")
        try daemon.end(SIGKILL)
        // Its descriptors are closed on exec, and its connection with them.
        let name = try app.ask("name")
        try app.ask("exec sleep 1000")
        try client.wait("its connection to end") { !(try client.bus.hasOwner(name)) }
        try daemon.start()
        #expect(try client.property(path, "BackgroundTasks") == .array("(tst)", []))
        #expect(try client.state(path) == "inactive")
    }

    @Test("a daemon that is started while appstated --release is under way waits until that has ended")
    func releaseUnderWay() throws {
        let daemon = try TestDaemon()
        try daemon.end(SIGTERM)
        let release = try Child(
            "flock",
            [
                "--exclusive", "--no-fork", daemon.runtimeDirectory, "sh", "-c",
                "echo locked; exec sleep 1000",
            ])
        try release.waitForLine(containing: "locked")
        try daemon.begin()
        let waits = try eventually {
            try String(contentsOfFile: "/proc/locks", encoding: .utf8).split(separator: "\n").contains {
                $0.contains("->") && $0.contains(" \(daemon.process.pid) ")
            }
        }
        #expect(waits)
        release.kill(SIGKILL)
        try daemon.waitForStart()
        #expect(try daemon.release().waitForExit() == .exited(1))
    }

    private func files(_ daemon: TestDaemon) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: daemon.runtimeDirectory + "/applications")
            .sorted()
    }
}
