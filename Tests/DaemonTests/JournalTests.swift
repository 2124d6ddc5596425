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
}
