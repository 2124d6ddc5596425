import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import TestSupport
import Testing

@testable import Linux

private func score(_ pid: Int32) throws -> Int32 { try OOMScoreAdjustment.read(pid, proc: Proc()) }

/// The resources that applications get in each state, on real processes.
@Suite("Resources by state", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ResourceTests {
    /// Waits for a state, and until all its effects are done.
    private func wait(for path: String, toBe state: String, _ client: Client) throws {
        try client.wait(for: path, toBe: state)
        try client.catchUp()
    }

    @Test("an application gets the default values of its state, however it enters the state")
    func states() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try score(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        func expect(_ state: String, _ added: Int32) throws {
            try wait(for: path, toBe: state, client)
            try client.wait("the score") { try score(child.pid) == own + added }
        }
        try expect("background", 200)
        try client.setFocus(child.pid)
        try expect("active", 0)
        try client.setFocus(0)
        try expect("inactive", 0)
        try client.setMinimized(child.pid, true)
        try expect("background", 200)
        // Its own value is no other program's claim: a service manager gives it back when it reloads its units.
        let process = try Proc().identity(of: child.pid)
        try OOMScoreAdjustment.write(own, to: process, owner: getuid(), proc: Proc())
        try client.application(path, "Suspend")
        try expect("suspended", 900)
        try client.application(path, "Resume")
        try expect("background", 200)
        child.kill(SIGSTOP)
        try expect("suspended", 900)
    }

    @Test("configured values apply, and an empty value leaves the resource alone")
    func table() throws {
        let daemon = try TestDaemon(
            configuration: "[State active]\nOOMScoreAdjust=10\n[State background]\nOOMScoreAdjust=\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try score(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        #expect(try score(child.pid) == own)
        try client.setFocus(child.pid)
        try wait(for: path, toBe: "active", client)
        try client.wait("the score") { try score(child.pid) == own + 10 }
    }

    @Test("a score set by another program is left alone, also by the next daemon; the journal says so once")
    func leftAlone() throws {
        let daemon = try TestDaemon()
        var client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try score(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the score") { try score(child.pid) == own + 200 }
        let process = try Proc().identity(of: child.pid)
        try OOMScoreAdjustment.write(own + 333, to: process, owner: getuid(), proc: Proc())
        try client.setFocus(child.pid)
        try wait(for: path, toBe: "active", client)
        try daemon.process.waitForLine(containing: "another program has set it to \(own + 333): left alone")
        #expect(
            try client.explain(path)["resources"]
                == .strings(["oom_score_adj was set by another program, left alone (1 process)"]))
        try daemon.end(SIGKILL)
        try daemon.start()
        client = try daemon.subscriber()
        try client.application(path, "Suspend")
        try wait(for: path, toBe: "suspended", client)
        try client.application(path, "Unregister")
        try client.catchUp()
        #expect(try score(child.pid) == own + 333)
        #expect(!daemon.process.errors.contains("left alone"))
    }

    @Test("an orderly end of the daemon restores all values", arguments: [SIGTERM, SIGINT])
    func endOfDaemon(_ signal: Int32) throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let other = try Child("sleep", ["1000"])
        let own = try score(other.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        let otherPath = try client.register("org.example.Editor", other.pid)
        try wait(for: otherPath, toBe: "background", client)
        try client.wait("the scores") { try score(app.pid) == own + 900 && score(other.pid) == own + 200 }
        daemon.process.kill(signal)
        #expect(try daemon.process.waitForExit() == .exited(0))
        #expect(try score(app.pid) == own && score(other.pid) == own)
    }

    @Test("Mode=observe sets no values, and a change to it restores the own values; Explain says which")
    func observe() throws {
        let daemon = try TestDaemon(configuration: "[Daemon]\nMode=observe\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try score(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        func expect(_ resources: [String], would: [String], _ added: Int32) throws {
            try client.wait("the resources") {
                try client.explain(path)["resources"] == .strings(resources)
            }
            #expect(try client.explain(path)["would-set"] == .strings(would))
            #expect(try score(child.pid) == own + added)
        }
        try expect([], would: ["OOMScoreAdjust=200"], 0)
        try daemon.reconfigure("")
        try expect(["oom_score_adj=\(own + 200), was \(own) (1 process)"], would: [], 200)
        try daemon.reconfigure("[Daemon]\nMode=observe\n")
        try expect([], would: ["OOMScoreAdjust=200"], 0)
    }

    @Test(
        "the cgroup in front is marked for systemd-oomd, no other is, and the next daemon removes the mark",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func mark() throws {
        let scene = try CgroupScene()
        func expect(_ state: String, _ value: String) throws {
            try wait(for: scene.path, toBe: state, scene.client)
            try scene.client.wait("the mark") { try scene.cgroup.value(of: .avoid) == value }
        }
        try scene.client.setFocus(scene.app.pid)
        try expect("active", "1")
        #expect(
            try scene.client.explain(scene.path)["resources"]
                == .strings(["user.oomd_avoid=1, was not set"]))
        try scene.client.application(scene.path, "Suspend")
        try expect("suspended", "")
        try scene.client.application(scene.path, "Resume")
        try expect("active", "1")
        try scene.daemon.end(SIGKILL)
        #expect(try scene.daemon.release().waitForExit() == .exited(0))
        #expect(try scene.cgroup.value(of: .avoid) == "")
        try scene.cgroup.set(.avoid, to: "1")
        try scene.daemon.start()
        let client = try scene.daemon.subscriber()
        // A process that is not the application's enters: the cgroup is no longer its own.
        let stranger = try Child("sleep", ["1000"])
        try scene.home.take(stranger.pid)
        try client.application(scene.path, "Unregister")
        try client.wait("the former mark") { try scene.cgroup.value(of: .avoid) == "" }
    }

    @Test(
        "the unit's capabilities are enough to set the resources of another user's application",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func unit() throws {
        let daemon = try TestDaemon(withoutCapabilities: try Capabilities.allBut(Capabilities.ofUnit()))
        let client = try daemon.subscriber()
        let app = try App(daemon.bus, uid: App.nobody)
        let own = try score(app.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        try client.wait("the score") { try score(app.pid) == own + 900 }
        try client.application(path, "Unregister")
        try client.wait("its own score") { try score(app.pid) == own }
    }

    @Test(
        "without the capabilities no value is changed, the journal says why, and all else works",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func withoutCapabilities() throws {
        let daemon = try TestDaemon(withoutCapabilities: ["dac_override"])
        let client = try daemon.subscriber()
        let app = try App(daemon.bus, uid: App.nobody)
        let own = try score(app.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        try daemon.process.waitForLine(containing: "oom_score_adj")
        try client.application(path, "Resume")
        #expect(try client.state(path) == "inactive")
        #expect(try score(app.pid) == own)
    }
}
