import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// ReplaceObjections: the applications that policy must not suspend, as a reporter lists them.
@Suite(
    "Objections over the bus", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ObjectionTests {
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    private func tell(_ client: Client, _ rows: [(UInt32, String)]) throws {
        try client.reporter("ReplaceObjections") { message in
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

    @Test("ListObjections and Explain name an objection for as long as it is reported")
    func exempt() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("manual"))])
        try tell(client, [(UInt32(process.pid), "audio")])
        #expect(try client.listObjections(path) == ["reported audio"])
        #expect(try client.explain(path)["objections"] == .strings(["reported audio"]))
        try tell(client, [])
        #expect(try client.listObjections(path) == [])
    }

    @Test(
        "a report about an orphan in the application's own unit counts for the application",
        .enabled(if: UnitWithOrphan.isAvailable, Comment(rawValue: UnitWithOrphan.whatIsMissing)))
    func orphan() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let unit = try UnitWithOrphan()
        let orphan = UInt32(unit.orphan)
        let path = try client.register(
            "org.example.Player", unit.main.pid, [("suspension", .string("automatic"))])
        try client.wait(for: path, toBe: "suspended")
        #expect(try unit.home.cgroup.isFrozen())
        try tell(client, [(orphan, "clipboard")])
        try client.wait(for: path, toBe: "background")
        #expect(try client.listObjections(path) == ["reported clipboard"])
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
        let before = try client.listObjections(path)
        #expect(!before.contains("reported audio"))
        try tell(client, [(orphan, "clipboard")])
        let after = try client.listObjections(path)
        #expect(!after.contains("reported clipboard"))
    }
}
