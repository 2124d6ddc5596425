import AppStateBus
import Desktop
import Foundation
import Glibc
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// Which names on the session bus are services for other clients, and which processes own them.
@Suite(
    "Names on the session bus", .serialized,
    .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct SessionNameTests {
    /// Data directories with desktop entries of these ids. They are removed when it is released.
    private final class Entries {
        let directory = NSTemporaryDirectory() + "entries.\(getpid())." + UUID().uuidString

        init(_ ids: String...) throws {
            let applications = directory + "/applications"
            try FileManager.default.createDirectory(
                atPath: applications, withIntermediateDirectories: true)
            for id in ids {
                try "[Desktop Entry]\nType=Application\nName=x\nExec=true\n".write(
                    toFile: "\(applications)/\(id).desktop", atomically: true, encoding: .utf8)
            }
        }

        deinit { try? FileManager.default.removeItem(atPath: directory) }

        var classifier: SessionName { SessionName(entries: DesktopEntries(directories: [directory])) }
    }

    @Test(
        "other names, and those of tray icons, are services",
        arguments: [
            "org.freedesktop.Notifications", "org.example.EditorService", "org.example.Files",
            "org.kde.StatusNotifierItem-1234-1", "org.example", "editor", "",
        ])
    func service(_ name: String) throws {
        let entries = try Entries("org.example.Editor", "org.example", "editor")
        let classifier = entries.classifier
        let isService = classifier.isService(name)
        #expect(isService)
    }

    /// A session bus on which every client may own every name.
    private func sessionBus(_ more: String = "") throws -> PrivateBus {
        try PrivateBus(policy: "<policy user=\"\(getuid())\"><allow own=\"*\"/>\(more)</policy>")
    }

    @Test(
        "the agent reports owners of services where the bus does not let it monitor calls",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func agent() throws {
        let display = try Display(try #require(WindowManager.present.first))
        // This process is registered below, and nothing restores the values that a killed daemon has set on it.
        let station = try Station(
            configuration: "[State background]\nOOMScoreAdjust=\n")
        let bus = try sessionBus("<deny send_interface=\"org.freedesktop.DBus.Monitoring\"/>")
        let owner = try Bus.open(address: bus.address)
        try owner.requestName("org.freedesktop.Notifications")
        try station.startAgent(
            environment: display.environment.merging(["DBUS_SESSION_BUS_ADDRESS": bus.address]) { $1 })
        // This process, which must not be suspended.
        let path = try station.register("org.example.Tests", getpid(), suspension: "manual")
        let word = "reported bus-name"
        try station.wait("the objection") { try station.objections(to: path).contains(word) }
        try owner.releaseName("org.freedesktop.Notifications")
        try station.wait("its end") { try !station.objections(to: path).contains(word) }
    }
}
