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
        "an application's own name and a player's remote control are not services",
        arguments: [
            "org.example.Editor", "org.example.Editor-1234", "org.example.Editor.instance_1_2",
            "org.example.Editor_beta", "org.mpris.MediaPlayer2.vlc", "org.freedesktop.DBus",
        ])
    func own(_ name: String) throws {
        let entries = try Entries("org.example.Editor", "org.example", "editor")
        var classifier = entries.classifier
        let isService = classifier.isService(name)
        #expect(!isService)
    }

    @Test(
        "other names, and those of tray icons, are services",
        arguments: [
            "org.freedesktop.Notifications", "org.example.EditorService", "org.example.Files",
            "org.kde.StatusNotifierItem-1234-1", "org.example", "editor", "",
        ])
    func service(_ name: String) throws {
        let entries = try Entries("org.example.Editor", "org.example", "editor")
        var classifier = entries.classifier
        let isService = classifier.isService(name)
        #expect(isService)
    }

    /// A session bus on which every client may own every name.
    private func sessionBus(_ more: String = "") throws -> PrivateBus {
        try PrivateBus(policy: "<policy user=\"\(getuid())\"><allow own=\"*\"/>\(more)</policy>")
    }

    @Test("an owner is known, also one that was there before, until it releases the name or ends")
    func owners() throws {
        let bus = try sessionBus()
        let entries = try Entries("org.example.Editor")
        let loop = try EventLoop()
        var seen: [Set<Int32>] = []
        func wait(_ what: String, _ isSo: (Set<Int32>) -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isSo(seen.last ?? []) {
                guard ContinuousClock.now < deadline else { throw TestFailure("\(what): \(seen)") }
                try loop.runOnce(timeout: 100_000)
            }
        }
        var owner: Bus? = try Bus.open(address: bus.address)
        try owner?.requestName("org.freedesktop.Notifications")
        let names = try SessionNames(
            address: bus.address, loop: loop, journal: Journal(identifier: "test"),
            classifier: entries.classifier
        ) { seen.append($0) }
        try wait("one that was there") { $0 == [getpid()] }
        try owner?.releaseName("org.freedesktop.Notifications")
        try wait("given up") { $0.isEmpty }
        try owner?.requestName("org.example.Editor")
        try owner?.requestName("org.example.Files")
        try wait("a new one") { $0 == [getpid()] }
        try owner?.releaseName("org.example.Files")
        try wait("only the application's own is left") { $0.isEmpty }
        try owner?.requestName("org.kde.StatusNotifierItem-1-1")
        try wait("an icon in the tray") { $0 == [getpid()] }
        owner = nil
        try wait("gone") { $0.isEmpty }
        withExtendedLifetime(names) {}
    }

    @Test("a late bus is found; after a lost bus another is found, and the owners count until then")
    func lost() throws {
        let (first, second) = (try sessionBus(), try sessionBus())
        let socket = second.directory + "/socket"
        func lead(to bus: PrivateBus) { symlink(bus.directory + "/system_bus_socket", socket) }
        let loop = try EventLoop()
        var seen: [Set<Int32>] = []
        func wait(_ what: String, _ isSo: () -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isSo() {
                guard ContinuousClock.now < deadline else { throw TestFailure("\(what): \(seen)") }
                try loop.runOnce(timeout: 100_000)
            }
        }
        let owners = try [first, second].map { bus in
            let owner = try Bus.open(address: bus.address)
            try owner.requestName("org.example.Files")
            return owner
        }
        let names = try SessionNames(
            address: "unix:path=" + socket, loop: loop, journal: Journal(identifier: "test"),
            classifier: SessionName(entries: DesktopEntries(directories: []))
        ) { seen.append($0) }
        #expect(seen == [])
        lead(to: first)
        try wait("the first") { !seen.isEmpty }
        unlink(socket)
        lead(to: second)
        first.stop()
        try wait("the second") { seen.count > 1 }
        #expect(seen == [[getpid()], [getpid()]])
        try owners[1].releaseName("org.example.Files")
        try wait("given up there") { seen.last == [] }
        withExtendedLifetime(names) {}
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
        try station.wait("the exemption") { try station.objections(to: path).contains(word) }
        try owner.releaseName("org.freedesktop.Notifications")
        try station.wait("its end") { try !station.objections(to: path).contains(word) }
    }
}
