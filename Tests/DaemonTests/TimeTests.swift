import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Which changes of the time are announced, and to which clients.
@Suite("Changes of the time")
struct TimeTests {
    @Test(
        "delegates and subscribers are notified of a new time zone, suspended ones once they resume",
        .enabled(
            if: App.isAvailable && TestDaemon.canHaveSessions
                && access("/usr/share/zoneinfo/Asia/Tokyo", R_OK) == 0,
            Comment(rawValue: "needs root, mount namespaces and tzdata")))
    func timeZone() throws {
        let etc = NSTemporaryDirectory() + "etc.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: etc) }
        try FileManager.default.createDirectory(atPath: etc, withIntermediateDirectories: true)
        for name in ["passwd", "group", "nsswitch.conf"] {
            try? FileManager.default.copyItem(atPath: "/etc/" + name, toPath: "\(etc)/\(name)")
        }
        func set(_ zone: String) throws {
            try FileManager.default.createSymbolicLink(
                atPath: etc + "/new", withDestinationPath: "/usr/share/zoneinfo/" + zone)
            rename(etc + "/new", etc + "/localtime")
        }
        try set("Europe/Berlin")
        let daemon = try TestDaemon(environment: ["TZ": ":/etc/localtime"], etc: etc)
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        func causes() -> [String] {
            client.signals(of: path).filter { $0.member == "SignificantTimeChange" }.compactMap(
                \.arguments.first)
        }
        try set("Asia/Tokyo")
        try client.wait("the zone") { causes() == ["time-zone"] }
        try app.settle()
        #expect(try app.last("SignificantTimeChange", of: path) == ["time-zone"])
        let told = app.story(of: path).filter { $0 == "SignificantTimeChange" }.count
        try client.application(path, "Suspend")
        // As ln -sf does without a rename. The daemon does not see the moment without a zone, which would be one more.
        daemon.process.kill(SIGSTOP)
        daemon.process.waitUntilStopped()
        unlink(etc + "/localtime")
        try FileManager.default.createSymbolicLink(
            atPath: etc + "/localtime", withDestinationPath: "/usr/share/zoneinfo/Europe/Berlin")
        daemon.process.kill(SIGCONT)
        try client.wait("the zone") { causes().count >= 2 }
        // The same zone again is no change, and neither is another file.
        let before = causes().count
        try set("Europe/Berlin")
        try "x".write(toFile: etc + "/other", atomically: false, encoding: .utf8)
        try client.settle()
        #expect(causes().count == before)
        // It gets one signal for all changes that it has missed.
        try client.application(path, "Resume")
        try app.settle()
        #expect(app.story(of: path).filter { $0 == "SignificantTimeChange" }.count == told + 1)
    }
}
