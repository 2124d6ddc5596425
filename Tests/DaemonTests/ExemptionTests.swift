import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// ReplaceExemptions: the applications that policy must not suspend, as a reporter lists them.
@Suite(
    "Exemptions over the bus", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ExemptionTests {
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    private func tell(_ client: Client, _ rows: [(UInt32, String)]) throws {
        try client.reporter("ReplaceExemptions") { message in
            try message.withContainer(.array, "(us)") {
                for row in rows {
                    try message.withContainer(.struct, "us") {
                        try message.append(row.0)
                        try message.append(row.1)
                    }
                }
            }
        }
    }

    @Test("CanSuspend and Explain name an exemption for as long as it is reported")
    func exempt() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("manual"))])
        try tell(client, [(UInt32(process.pid), "audio")])
        #expect(try client.canSuspend(path) == ["reported audio"])
        #expect(try client.explain(path)["exemptions"] == .strings(["reported audio"]))
        try tell(client, [])
        #expect(try client.canSuspend(path) == [])
    }

    @Test("a reporter's exemptions end with its connection, and the application is suspended then")
    func connection() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        var teller: Client? = try daemon.client()
        try tell(try #require(teller), [(UInt32(process.pid), "clipboard"), (UInt32(process.pid), "audio")])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("automatic"))])
        try client.waitForTheGrace(of: path)
        #expect(try client.state(path) == "background")
        #expect(try client.canSuspend(path) == ["reported audio", "reported clipboard"])
        teller = nil
        try client.wait(for: path, toBe: "suspended")
        #expect(try client.holds(path) == ["policy appstated"])
    }

    @Test("a suspended application that becomes exempt is resumed")
    func resumed() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("automatic"))])
        try client.wait(for: path, toBe: "suspended")
        try tell(client, [(UInt32(process.pid), "audio")])
        try client.wait(for: path, toBe: "background")
        #expect(try !isStopped(process.pid))
    }

    @Test("reported exemptions survive when the daemon is killed")
    func killed() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        try tell(client, [(UInt32(process.pid), "audio")])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("automatic"))])
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try client.canSuspend(path) == ["reported audio"])
        #expect(try client.state(path) == "background")
    }

    @Test(
        "a report about an orphan in the application's own unit counts for the application",
        .enabled(if: UnitWithOrphan.isAvailable, Comment(rawValue: UnitWithOrphan.whatIsMissing)))
    func orphan() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let unit = try UnitWithOrphan()
        let orphan = UInt32(unit.orphan)
        // Before the registration.
        try tell(client, [(orphan, "audio")])
        let path = try client.register(
            "org.example.Player", unit.main.pid, [("suspension", .string("automatic"))])
        try client.settle()
        #expect(try client.canSuspend(path) == ["reported audio"])
        try tell(client, [])
        try client.wait(for: path, toBe: "suspended")
        #expect(try unit.home.cgroup.isFrozen())
        // After it.
        try tell(client, [(orphan, "clipboard")])
        try client.wait(for: path, toBe: "background")
        #expect(try client.canSuspend(path) == ["reported clipboard"])
        try tell(client, [])
        try client.wait(for: path, toBe: "suspended")
        try client.reporter("ReportDemand") { message in
            try message.append(orphan)
            try message.append("call")
            try message.append(UInt32(0))
        }
        #expect(try client.explain(path)["last-demand"] == .string("call"))
    }

    @Test(
        "a report about another user's orphan in the application's own unit does not count for the application",
        .enabled(if: UnitWithOrphan.isAvailable, Comment(rawValue: UnitWithOrphan.whatIsMissing)))
    func othersOrphan() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let unit = try UnitWithOrphan(
            "os.setuid(65534); print('changed', flush=True)\nwhile True: signal.pause()")
        _ = try unit.main.waitForLine(containing: "changed")
        let orphan = UInt32(unit.orphan)
        try tell(client, [(orphan, "audio")])
        let path = try client.register(
            "org.example.Player", unit.main.pid, [("suspension", .string("automatic"))])
        try client.settle()
        let before = try client.canSuspend(path)
        #expect(!before.contains("reported audio"))
        try tell(client, [(orphan, "clipboard")])
        let after = try client.canSuspend(path)
        #expect(!after.contains("reported clipboard"))
    }

    @Test(
        "a visible window of an orphan in the application's own unit keeps the application from being suspended",
        .enabled(if: UnitWithOrphan.isAvailable, Comment(rawValue: UnitWithOrphan.whatIsMissing)))
    func orphansWindow() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let unit = try UnitWithOrphan()
        try client.setFocus(unit.orphan)
        let path = try client.register(
            "org.example.Player", unit.main.pid, [("suspension", .string("automatic"))])
        try client.wait(for: path, toBe: "active")
    }

    @Test("invalid exemptions are refused and change nothing")
    func refused() throws {
        let stage = try Stage()
        let pid = UInt32(stage.process.pid)
        try tell(stage.client, [(pid, "audio")])
        for word in ["", "Audio", "two words", "a\n", "ü", String(repeating: "x", count: 65)] {
            try stage.refuses(.invalidArgs, "the reason \"\(word)\"") {
                try tell(stage.client, [(pid, "clipboard"), (pid, word)])
            }
        }
        try stage.refuses(.invalidArgs, "pid 0") { try tell(stage.client, [(pid, "audio"), (0, "audio")]) }
        try stage.refuses(.limitsExceeded, "more than there can be") {
            try tell(stage.client, (0..<1_025).map { (pid, "reason-\($0)") })
        }
        try stage.refuses(.invalidArgs, "without arguments") {
            try stage.client.reporter("ReplaceExemptions")
        }
        try stage.refuses(.invalidArgs, "of another type") {
            try stage.client.reporter("ReplaceExemptions") { try $0.append(0.5) }
        }
        #expect(try stage.client.canSuspend(stage.path).contains("reported audio"))
    }

    @Test("exemptions of processes that have ended are skipped, and the others are applied")
    func gone() throws {
        let stage = try Stage()
        let child = try Child("true")
        try child.waitForExit()
        try tell(
            stage.client, [(UInt32(child.pid), "audio"), (.max, "audio"), (UInt32(stage.process.pid), "x-1")])
        #expect(try stage.client.canSuspend(stage.path).contains("reported x-1"))
    }

    @Test(
        "a reporter can exempt only its own user's applications, and root can exempt all",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func anothers() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let before = try stage.client.picture()
        try nobody.reporter("ReplaceExemptions a(us):\(stage.process.pid)=audio")
        #expect(try stage.client.picture() == before)
        let path = try stage.client.register("org.example.Other", nobody.pid)
        try nobody.reporter("ReplaceExemptions a(us):\(stage.process.pid)=audio+\(nobody.pid)=audio")
        #expect(try stage.client.canSuspend(path) == ["reported audio"])
        #expect(try !stage.client.canSuspend(stage.path).contains("reported audio"))
        try nobody.reporter("ReplaceExemptions a(us):")
        try tell(stage.client, [(UInt32(nobody.pid), "clipboard")])
        #expect(try stage.client.canSuspend(path) == ["reported clipboard"], "root speaks for all")
    }
}
