import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

@testable import Daemon
@testable import Linux

/// The resources that applications get in each state, on real processes.
@Suite(
    "Resources by state",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Capabilities.has(.sysNice), "needs CAP_SYS_NICE: a nice value is put back by lowering it"))
struct ResourceTests {
    /// Nice value, I/O priority and score of a process, as the kernel reports them.
    private struct Values: Equatable {
        var nice: Int32
        var io: IOPriority
        var score: Int32

        init(_ pid: Int32) throws {
            nice = try Niceness.read(pid)
            io = try IOPriority.read(pid)
            score = try OOMScoreAdjustment.read(pid, proc: Proc())
        }

        init(_ own: Values, nice: Int32 = 0, io: IOPriority? = nil, score: Int32 = 0) {
            self.nice = own.nice + nice
            self.io = io ?? own.io
            self.score = own.score + score
        }
    }

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
        let own = try Values(child.pid)
        let background = Values(own, nice: 7, io: IOPriority(.idle), score: 200)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try Values(child.pid) == background }
        try client.setFocus(child.pid)
        try wait(for: path, toBe: "active", client)
        try client.wait("the values") { try Values(child.pid) == own }
        try client.setFocus(0)
        try wait(for: path, toBe: "inactive", client)
        try client.wait("the values") { try Values(child.pid) == own }
        try client.setMinimized(child.pid, true)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try Values(child.pid) == background }
        try client.application(path, "Suspend")
        try client.settle()
        try client.wait("the values") {
            try Values(child.pid) == Values(own, nice: 7, io: IOPriority(.idle), score: 900)
        }
        try client.application(path, "Resume")
        try client.settle()
        try client.wait("the values") { try Values(child.pid) == background }
        child.kill(SIGSTOP)
        try wait(for: path, toBe: "suspended", client)
        try client.wait("the score") { try Values(child.pid).score == own.score + 900 }
    }

    @Test("configured values apply, and an empty value leaves the resource alone")
    func table() throws {
        let daemon = try TestDaemon(
            configuration: """
                [State active]
                Nice=2
                OOMScoreAdjust=10
                IOSchedulingClass=best-effort
                [State background]
                Nice=
                OOMScoreAdjust=50
                IOSchedulingClass=
                """)
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try Values(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try Values(child.pid) == Values(own, score: 50) }
        try client.setFocus(child.pid)
        try wait(for: path, toBe: "active", client)
        try client.wait("the values") {
            try Values(child.pid) == Values(own, nice: 2, io: IOPriority(.bestEffort, level: 4), score: 10)
        }
        #expect(own.io == IOPriority(.none))
    }

    @Test("a nice value set by another program is left alone, and the journal says so once")
    func renice() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try Values(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") {
            try Values(child.pid) == Values(own, nice: 7, io: IOPriority(.idle), score: 200)
        }
        #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(child.pid), 15) == 0)
        try client.setFocus(child.pid)
        try wait(for: path, toBe: "active", client)
        var expected = own
        expected.nice = 15
        try client.wait("the values") { try Values(child.pid) == expected }
        try daemon.process.waitForLine(containing: "another program has set it to 15: left alone")
        try client.application(path, "Unregister")
        try client.wait("the values") { try Values(child.pid) == expected }
        daemon.process.kill(SIGTERM)
        try daemon.process.waitForExit()
        #expect(daemon.process.errors.split(separator: "\n").filter { $0.contains("left alone") }.count <= 1)
    }

    @Test("children get the values too, later ones at the next change, and Unregister restores all")
    func children() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let first = try app.make("fork")
        let own = try Values(app.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.setMinimized(app.pid, true)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") {
            try Values(first) == Values(own, nice: 7, io: IOPriority(.idle), score: 200)
        }
        let second = try app.make("fork")
        try client.application(path, "Suspend")
        for pid in [app.pid, first, second] {
            try client.wait("the values") {
                try Values(pid) == Values(own, nice: 7, io: IOPriority(.idle), score: 900)
            }
        }
        try client.application(path, "Resume")
        try client.settle()
        let third = try app.make("fork")
        try client.application(path, "Unregister")
        for pid in [app.pid, first, second, third] {
            try client.wait("the values") { try Values(pid) == own }
        }
    }

    @Test("an orderly end of the daemon restores all values", arguments: [SIGTERM, SIGINT])
    func endOfDaemon(_ signal: Int32) throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let other = try Child("sleep", ["1000"])
        let own = try Values(other.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        let otherPath = try client.register("org.example.Editor", other.pid)
        try wait(for: otherPath, toBe: "background", client)
        try client.wait("the values") { try Values(app.pid) != own && Values(other.pid) != own }
        daemon.process.kill(signal)
        #expect(try daemon.process.waitForExit() == .exited(0))
        #expect(try Values(app.pid) == own)
        #expect(try Values(other.pid) == own)
    }

    @Test("the next daemon gives every application what its state requires", arguments: [SIGTERM, SIGKILL])
    func nextDaemon(_ signal: Int32) throws {
        let daemon = try TestDaemon()
        let child = try Child("sleep", ["1000"])
        let own = try Values(child.pid)
        let slowed = Values(own, nice: 7, io: IOPriority(.idle), score: 200)
        var client = try daemon.subscriber()
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try Values(child.pid) == slowed }
        try daemon.end(signal)
        try daemon.start()
        client = try daemon.subscriber()
        try client.wait("the values of its state") { try Values(child.pid) == slowed }
        try daemon.end(signal)
        try daemon.configure("[Daemon]\nMode=observe\n")
        try daemon.start()
        client = try daemon.subscriber()
        try client.wait("its own values") { try Values(child.pid) == own }
        #expect(try client.state(path) == "background")
    }

    @Test(
        "a daemon that is killed between record and writes leaves nothing that the next one cannot restore",
        .enabled(if: Family.isAvailable, "needs python3"), arguments: ["active", "suspended"])
    func killedBetweenRecordAndWrites(_ state: String) throws {
        let daemon = try TestDaemon()
        let family = try Family(60)
        let scores = { try family.all.map { try OOMScoreAdjustment.read($0.pid, proc: Proc()) } }
        let own = try scores()
        let nice = try Niceness.read(family.pid)
        var client = try daemon.subscriber()
        let path = try client.register("org.example.Editor", family.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try scores() == own.map { $0 + 200 } }
        let record = "\(daemon.runtimeDirectory)/resources/\(path.split(separator: "/").last ?? "")"
        let watch = try PathWatch(path: record, isFile: true)
        if state == "active" {
            try client.setFocus(family.pid)
        } else {
            try client.application(path, "Suspend")
        }
        var ready = pollfd(fd: watch.descriptor, events: Int16(POLLIN), revents: 0)
        #expect(poll(&ready, 1, 300_000) == 1)
        try daemon.end(SIGKILL)
        try daemon.start()
        client = try daemon.subscriber()
        if state == "active" { try client.setFocus(family.pid) }
        try client.wait("the values of its state") {
            try scores() == own.map { $0 + (state == "active" ? 0 : 900) }
        }
        try client.application(path, "Unregister")
        try client.wait("its own values") { try scores() == own }
        try client.wait("its own nice values") { family.count(nice: nice) == family.all.count }
    }

    @Test("Mode=observe sets no values, and a change to it restores the own values")
    func observe() throws {
        let daemon = try TestDaemon(configuration: "[Daemon]\nMode=observe\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try Values(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        try client.wait("the values") { try Values(child.pid) == own }
        try daemon.reconfigure("")
        try client.wait("the values") {
            try Values(child.pid) == Values(own, nice: 7, io: IOPriority(.idle), score: 200)
        }
        try daemon.reconfigure("[Daemon]\nMode=observe\n")
        try client.wait("the values") { try Values(child.pid) == own }
    }

    @Test("Explain says what is set, what is left alone, and with Mode=observe what would be set")
    func explained() throws {
        let daemon = try TestDaemon(
            configuration: "[Daemon]\nMode=observe\n[State background]\nIOSchedulingClass=\n")
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let own = try Values(child.pid)
        let path = try client.register("org.example.Editor", child.pid)
        try wait(for: path, toBe: "background", client)
        func expectResources(_ lines: [String]) throws {
            try client.wait("the resources") { try client.explain(path)["resources"] == .strings(lines) }
        }
        #expect(try client.explain(path)["resources"] == .strings([]))
        #expect(try client.explain(path)["would-set"] == .strings(["OOMScoreAdjust=200", "Nice=7"]))
        try daemon.reconfigure("[State background]\nIOSchedulingClass=\n")
        try expectResources([
            "Nice=\(own.nice + 7), was \(own.nice) (1 thread)",
            "OOMScoreAdjust=\(own.score + 200), was \(own.score) (1 process)",
        ])
        #expect(try client.explain(path)["would-set"] == .strings([]))
        #expect(setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(child.pid), 11) == 0)
        try client.application(path, "Suspend")
        try wait(for: path, toBe: "suspended", client)
        try expectResources([
            "IOSchedulingClass=idle, was \(own.io) (1 thread)",
            "Nice was set by another program, left alone (1 thread)",
            "OOMScoreAdjust=\(own.score + 900), was \(own.score) (1 process)",
        ])
        try client.setFocus(child.pid)
        try client.application(path, "Resume")
        try wait(for: path, toBe: "active", client)
        try expectResources(["Nice was set by another program, left alone (1 thread)"])
    }

    @Test(
        "the unit's capabilities are enough to set the resources of another user's application",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func unit() throws {
        let daemon = try TestDaemon(withoutCapabilities: try Capabilities.allBut(Capabilities.ofUnit()))
        let client = try daemon.subscriber()
        let app = try App(daemon.bus, uid: App.nobody)
        let own = try Values(app.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        try client.wait("the values") {
            try Values(app.pid) == Values(own, nice: 7, io: IOPriority(.idle), score: 900)
        }
        try client.application(path, "Unregister")
        try client.wait("the values") { try Values(app.pid) == own }
    }

    @Test(
        "without the capabilities no value is changed, the journal says why, and all else works",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func withoutCapabilities() throws {
        let daemon = try TestDaemon(withoutCapabilities: ["sys_nice", "dac_override"])
        let client = try daemon.subscriber()
        let app = try App(daemon.bus, uid: App.nobody)
        let own = try Values(app.pid)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.application(path, "Suspend")
        try client.wait("the values") { try Values(app.pid) == own }
        for word in ["setpriority", "ioprio_set", "oom_score_adj"] {
            try daemon.process.waitForLine(containing: word)
        }
        try client.application(path, "Resume")
        #expect(try client.state(path) == "inactive")
        try client.wait("the values") { try Values(app.pid) == own }
    }
}
