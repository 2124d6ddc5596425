import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What a killed daemon had done but not recorded, or recorded but not done, and what other processes did to its
/// applications before the next daemon started.
@Suite("Killed in between", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct KilledTests {
    @Test(
        "a SIGSTOP sent to a frozen application without a daemon is a hold of its own, which Resume lifts",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func stoppedBeneathFreeze() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        try scene.daemon.end(SIGKILL)
        scene.app.process.kill(SIGSTOP)
        try scene.daemon.start()
        #expect(try scene.client.holds(scene.path) == ["request uid:\(getuid())", "signal "])
        try scene.client.application(scene.path, "Resume")
        try scene.app.settle()
        try scene.client.wait("the release") { try scene.client.state(scene.path) == "background" }
        #expect(try scene.client.holds(scene.path) == [])
    }

    @Test(
        "a SIGCONT sent to a frozen application without a daemon ends the stop that waited for the thaw",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func continuedBeneathFreeze() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        scene.app.process.kill(SIGSTOP)
        try scene.client.wait("the second hold") { try scene.client.holds(scene.path).count == 2 }
        try scene.daemon.end(SIGKILL)
        scene.app.process.kill(SIGCONT)
        try scene.daemon.start()
        #expect(try scene.client.holds(scene.path) == ["request uid:\(getuid())"])
        #expect(try scene.client.state(scene.path) == "suspended")
    }

    @Test(
        "a Resume that was recorded but not carried out also ends another process's stop",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func resumed() throws {
        let scene = try CgroupScene()
        let children = scene.others
        try scene.client.application(scene.path, "Suspend")
        for pid in [scene.app.pid] + children { kill(pid, SIGSTOP) }
        try scene.daemon.end(SIGKILL)
        try scene.daemon.rewrite(scene.path) { line in
            line.hasPrefix("enforcement=")
                ? "enforcement=continuing request\nlifts-foreign-stop=" : Self.asResumed(line)
        }
        try scene.daemon.start()
        try scene.app.settle()
        try scene.client.wait("the release") {
            try scene.client.state(scene.path) == "background" && scene.noneIsStopped
        }
        #expect(try scene.client.holds(scene.path) == [])
    }

    @Test(
        "if a thaw was not recorded, a freeze after it counts as another process's",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func thawed() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        try scene.daemon.end(SIGKILL)
        try scene.daemon.rewrite(scene.path, Self.asResumed)
        try scene.cgroup.thaw()
        try scene.daemon.start()
        #expect(try scene.client.state(scene.path) == "background")
        try scene.cgroup.freeze()
        try scene.client.wait("the freeze") { try scene.client.state(scene.path) == "suspended" }
        #expect(try scene.client.holds(scene.path) == ["signal cgroup \(scene.cgroup.name)"])
        try scene.client.application(scene.path, "Resume")
        #expect(try !scene.cgroup.wantsFrozen())
        try scene.app.settle()
    }

    @Test("if a stop by signal was not recorded, Resume still continues the children")
    func stopped() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual,launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let child = try app.make("fork")
        try client.application(path, "Suspend")
        try daemon.end(SIGKILL)
        try daemon.rewrite(path, Self.asBeforeStop)
        try daemon.start()
        try client.wait("the stop") { try client.state(path) == "suspended" }
        #expect(try client.holds(path) == ["request uid:\(getuid())"])
        #expect(try isStopped(child))
        try client.application(path, "Resume")
        try app.settle()
        #expect(try !isStopped(child))
    }

    @Test(
        "Resume of an application does not continue a child application that another process stopped")
    func registeredChild() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual,launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let child = try app.make("fork")
        let inner = try client.register("org.example.Viewer", child)
        kill(child, SIGSTOP)
        try client.wait("the stop") { try client.state(inner) == "suspended" }
        try client.application(path, "Suspend")
        try daemon.end(SIGKILL)
        try daemon.start()
        try client.application(path, "Resume")
        try app.settle()
        #expect(try isStopped(child))
        #expect(try client.state(inner) == "suspended")
        #expect(try client.holds(inner).allSatisfy { $0.hasPrefix("signal") })
    }

    /// The record when `Suspend` is recorded and nothing is done yet.
    private static func asBeforeStop(_ line: String) -> String? {
        switch line.prefix(while: { $0 != "=" }) {
        case "state": "state=background"
        case "stopped": "stopped=0"
        case "enforcement": "enforcement=stopping request"
        default: line
        }
    }

    /// The record when `Resume` is recorded and nothing is done yet.
    private static func asResumed(_ line: String) -> String? {
        switch line.prefix(while: { $0 != "=" }) {
        case "hold", "foreign-stop", "foreign-freeze": nil
        case "enforcement": "enforcement=continuing request"
        default: line
        }
    }
}
