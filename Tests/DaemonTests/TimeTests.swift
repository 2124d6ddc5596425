import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Daemon

/// Which changes of the time are announced, and to which clients.
@Suite("Changes of the time")
struct TimeTests {
    private static let second: Int64 = 1_000_000
    private static let zone = Array("Europe/Berlin".utf8)

    private func reading(
        real: Int64 = 0, boot: Int64 = 0, monotonic: Int64 = 0, at moment: Int64 = 0, zone: [UInt8] = zone
    ) -> TimeReading {
        TimeReading(real: real, boot: boot, monotonic: monotonic, local: LocalTime(at: moment), zone: zone)
    }

    @Test("passing time is no change, but a set clock, a resume from sleep and another time zone are")
    func changes() {
        let (second, before) = (Self.second, reading())
        func changes(_ now: TimeReading) -> [TimeChange] { now.changes(since: before) }
        #expect(changes(before) == [])
        #expect(changes(reading(real: 9 * second, boot: 9 * second, monotonic: 9 * second)) == [])
        // The clocks are read one after the other.
        #expect(changes(reading(real: 9 * second + 999, boot: 9 * second, monotonic: 9 * second - 999)) == [])
        #expect(changes(reading(real: 9 * second, boot: 8 * second, monotonic: 8 * second)) == [.clockSet])
        #expect(changes(reading(real: -9 * second, boot: second, monotonic: second)) == [.clockSet])
        #expect(changes(reading(real: 9 * second, boot: 9 * second, monotonic: second)) == [.resume])
        #expect(changes(reading(real: 90 * second, boot: 9 * second, monotonic: 1)) == [.resume, .clockSet])
        #expect(changes(reading(zone: [])) == [.timeZone])
        let day = 86_400 * second
        #expect(changes(reading(real: day, boot: day, monotonic: day, at: 86_400 * 2)) == [.midnight])
        #expect(changes(reading(real: day, boot: day, monotonic: 1, at: 86_400 * 2)) == [.resume, .midnight])
        // To set the clock or the zone is to set the day, too.
        #expect(changes(reading(real: day, at: 86_400 * 2)) == [.clockSet])
        #expect(changes(reading(at: 86_400 * 2, zone: [])) == [.timeZone])
    }

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
