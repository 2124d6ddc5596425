import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// What the journal records, with the real systemd-journald.
@Suite(
    "The journal", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: JournalDaemon.isAvailable, JournalDaemon.whatItNeeds))
struct JournalTests {
    private struct Scene {
        let daemon: TestDaemon
        let journal: JournalDaemon
        let client: Client

        init(logLevel: String? = nil) throws {
            daemon = try TestDaemon(
                // Memory pressure on the machine must not affect the tests.
                configuration: "[Pressure]\nSource=/nonexistent\n",
                environment: logLevel.map { ["SYSTEMD_LOG_LEVEL": $0] } ?? [:], hasSessions: true)
            journal = try JournalDaemon(of: daemon)
            client = try daemon.subscriber()
        }

        /// The lines about one application, once `text` has arrived.
        func story(of id: String, until text: String) throws -> [[String: String]] {
            try journal.wait(for: text).filter { $0["APPSTATE_APP_ID"] == id }
        }
    }

    private static func kinds(_ lines: [[String: String]]) -> [JournalMessage?] {
        lines.map { $0["MESSAGE_ID"].flatMap(JournalMessage.init) }
    }

    @Test("at log level debug the journal has every edge, with fields")
    func everything() throws {
        let scene = try Scene(logLevel: "debug")
        let process = try Child("sleep", ["1000"])
        let path = try scene.client.register("org.example.Story", process.pid)
        try scene.client.setFocus(process.pid)
        try scene.client.application(path, "Suspend")
        process.kill(SIGKILL)
        try scene.client.waitForRemoval(of: path)
        let lines = try scene.story(
            of: "org.example.Story", until: JournalMessage.applicationRemoved.rawValue)
        #expect(Self.kinds(lines).first == .applicationAdded)
        #expect(Self.kinds(lines).last == .applicationRemoved)
        let edges = lines.filter { $0["MESSAGE_ID"] == JournalMessage.stateChanged.rawValue }
        #expect(
            edges.map {
                "\($0["APPSTATE_FROM"] ?? "")→\($0["APPSTATE_TO"] ?? "") \($0["APPSTATE_REASON"] ?? "")"
            }
                == scene.client.received
                .filter { $0.interface == BusNames.application && $0.member == "StateChanged" }
                .map { "\($0.arguments[0])→\($0.arguments[1]) \($0.arguments[2])" })
        #expect(edges.count > 5)
        for line in lines {
            #expect(line["APPSTATE_APP"] == path.split(separator: "/").last.map(String.init))
            #expect(line["APPSTATE_PID"] == "\(process.pid)")
            #expect(line["APPSTATE_UID"] == "\(getuid())")
            #expect(line["MESSAGE"]?.hasPrefix("application 1 (org.example.Story): ") == true)
        }
        // journald adds fields for a process that lives. A process that has ended is not named to it.
        #expect(lines.first?["OBJECT_COMM"] == "sleep")
        #expect(lines.last?["OBJECT_PID"] == nil)
    }

    @Test("by default the journal has ends, and no line for each change of the focus")
    func quiet() throws {
        let scene = try Scene()
        let processes = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes.map { try scene.client.register("org.example.Quiet", $0.pid) }
        for turn in 0..<10 { try scene.client.setFocus(processes[turn % 2].pid) }
        try scene.client.application(paths[0], "Suspend")
        try scene.client.application(paths[0], "Resume")
        try scene.client.application(paths[0], "Unregister")
        try scene.client.terminate(paths[1], force: true)
        try scene.client.waitForRemoval(of: paths[1])
        let lines = try scene.story(of: "org.example.Quiet", until: "force-quit")
        #expect(Self.kinds(lines) == [.applicationRemoved])
        #expect(lines.map { $0["APPSTATE_REASON"] } == ["force-quit"])
        #expect(lines.map { $0["PRIORITY"] } == ["6"])
    }
}

@Suite("The journal's catalogue")
struct CatalogTests {
    private static let file = Programs.root + "/systemd/appstated.catalog"

    @Test("the catalogue explains each kind of line, and no others")
    func entries() throws {
        let text = try String(contentsOfFile: Self.file, encoding: .utf8)
        let ids = text.split(separator: "\n").filter { $0.hasPrefix("-- ") }.map { String($0.dropFirst(3)) }
        #expect(Set(ids) == Set(JournalMessage.allCases.map(\.rawValue)))
        #expect(ids.count == JournalMessage.allCases.count)
        let hexadecimal = Set("0123456789abcdef")
        for id in ids { #expect(id.count == 32 && id.allSatisfy(hexadecimal.contains), "\(id)") }
    }

    @Test("the catalogue shows only fields that exist")
    func fields() throws {
        let parts = try String(contentsOfFile: Self.file, encoding: .utf8).components(separatedBy: "@")
        let shown = Set(stride(from: 1, to: parts.count, by: 2).map { parts[$0] })
        #expect(shown.count > 5)
        #expect(shown.isSubset(of: JournalField.allCases.map(\.rawValue)), "\(shown)")
    }

    @Test(
        "journalctl accepts the catalogue",
        .enabled(if: Programs.inPath("journalctl") != nil, "needs journalctl"))
    func taken() throws {
        let root = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: root) }
        for directory in ["usr/lib/systemd/catalog", "var/lib/systemd/catalog"] {
            try FileManager.default.createDirectory(
                at: root.appendingPathComponent(directory), withIntermediateDirectories: true)
        }
        try FileManager.default.copyItem(
            atPath: Self.file, toPath: root.path + "/usr/lib/systemd/catalog/appstated.catalog")
        let update = try Child("journalctl", ["--root=\(root.path)", "--update-catalog"])
        #expect(try update.waitForExit() == .exited(0), "\(update.errors)")
        #expect(update.errors == "")
        let list = try Child("journalctl", ["--root=\(root.path)", "--list-catalog"])
        try list.waitForExit()
        #expect(list.output.split(separator: "\n").count == JournalMessage.allCases.count)
    }
}
