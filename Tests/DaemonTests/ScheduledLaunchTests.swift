import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Launches that applications have scheduled, with stand-ins for the session agent, NetworkManager and UPower.
@Suite("Scheduled launches", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ScheduledLaunchTests {
    private static let id = "org.example.Editor"

    /// A service with one property on the test's bus, which answers while `client` waits for something.
    private final class Service {
        private let bus: Bus
        private let name: String
        private let path: String
        private let property: String
        private var slots: [Slot] = []
        var value: Variant
        /// How often it was asked.
        private(set) var reads = 0

        static let network = "org.freedesktop.NetworkManager"
        static let power = "org.freedesktop.UPower"
        static let policy = [network, power].map {
            "<policy user=\"\(getuid())\"><allow own=\"\($0)\"/></policy>"
                + "<policy context=\"default\"><allow send_destination=\"\($0)\"/></policy>"
        }.joined()

        init(
            _ daemon: TestDaemon, _ client: Client, _ name: String, _ property: String, _ value: Variant
        ) throws {
            bus = try Bus.open(address: daemon.bus.address)
            try bus.attach(to: client.loop)
            self.name = name
            self.property = property
            self.value = value
            path = "/" + name.replacingOccurrences(of: ".", with: "/")
            let type = value == .bool(true) || value == .bool(false) ? "b" : "u"
            let interface = Interface(
                name,
                properties: [
                    Property(property, type, emits: .change) { [unowned self] message, _ in
                        reads += 1
                        switch self.value {
                        case .bool(let value): try message.append(value)
                        case .uint32(let value): try message.append(value)
                        default: break
                        }
                    }
                ])
            slots.append(try bus.add(interface, at: path))
            try bus.requestName(name)
        }

        func set(_ value: Variant) throws {
            self.value = value
            let signal = try bus.newSignal(
                path: path, interface: BusNames.properties, member: "PropertiesChanged", to: nil)
            try signal.append(name)
            try signal.appendDictionary([(property, value)])
            try signal.append(strings: [])
            try bus.send(signal)
        }
    }

    private func due(_ app: App, _ path: String) -> [String] {
        app.lines.filter { $0.hasPrefix("signal \(path) ") && $0.contains(" ScheduledLaunchDue") }
    }

    private func launches(_ client: Client) throws -> [[String: Variant]] {
        let reply = try client.call(BusNames.root, BusNames.manager, "ListScheduledLaunches")
        var all: [[String: Variant]] = []
        try reply.withEntered(.array, "a{sv}") {
            while !reply.atEnd {
                all.append(Dictionary(try reply.readDictionary().map { ($0.key, $0.value) }) { $1 })
            }
        }
        return all
    }

    @Test(
        "it survives the application, kill -9, a reboot and a missing agent, and launches in the background"
    )
    func survives() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.subscriber()
        do {
            let app = try App(daemon.bus)
            let path = try app.register(Self.id)
            try app.application(path, "FinishLaunching")
            let soon = UInt64(Date.now.timeIntervalSince1970 * 1_000_000)
            try app.application(path, "ScheduleLaunch s:time {name=s:refresh,at=t:\(soon + 3_600_000_000)}")
            #expect(try launches(client).map { $0["name"] } == [.string("refresh")])
            // The same name: it replaces the first.
            try app.application(path, "ScheduleLaunch s:time {name=s:refresh,at=t:\(soon)}")
            // It is due at once, and wakes the application itself.
            try client.wait("the signal") { due(app, path).count == 1 }
            try app.application(path, "ScheduleLaunch s:time {name=s:again,after=t:1}")
            try client.wait("the other signal") { due(app, path).count == 2 }
            try client.wait("nothing to be left") { try launches(client).isEmpty }
            let later = UInt64(Date.now.timeIntervalSince1970 * 1_000_000) + 2_000_000
            try app.application(path, "ScheduleLaunch s:time {name=s:refresh,at=t:\(later)}")
        }
        try daemon.end(SIGKILL)
        try daemon.start()
        let next = try daemon.subscriber()
        // Nobody is logged in.
        try next.wait("it to be due") { try launches(next).first?["due"] == .bool(true) }
        try daemon.end(SIGKILL)
        // A reboot leaves the state directory only.
        try FileManager.default.removeItem(atPath: daemon.runtimeDirectory)
        mkdir(daemon.runtimeDirectory, 0o700)
        try daemon.start()
        let agent = try AgentStandIn(try daemon.subscriber())
        let spare = try App(daemon.bus)
        agent.start = { _, _ in spare.pid }
        try agent.client.wait("the launch") { !agent.proceeded.isEmpty }
        #expect(agent.started == [["launch-mode": .string("background")]])
        let added = agent.client.received.first { $0.member == "ApplicationAdded" }
        let path = try #require(added?.arguments[0])
        guard
            case .dictionary(let options) = try agent.client.property(
                path, BusNames.application, "LaunchOptions")
        else { return }
        #expect(options["reason"] == .string("time"))
        #expect(options["launch-mode"] == .string("background"))
        #expect(due(spare, path).isEmpty)
        _ = try spare.register(Self.id)
        try spare.application(path, "FinishLaunching")
        try agent.client.wait("the signal") { due(spare, path).count == 1 }
        let words = due(spare, path)[0].split(separator: " ")
        #expect(words.suffix(2).first == "refresh")
        try spare.application(path, "EndBackgroundTask t:\(words.last ?? "")")
        try agent.client.wait("nothing to be left") { try launches(agent.client).isEmpty }
    }

    @Test("wrong arguments are refused and change nothing, and no moment is too far away")
    func refused() throws {
        let daemon = try TestDaemon(keeps: true)
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register(Self.id)
        for words in [
            "s:tide {}", "s:time {}", "s:time {at=t:1,after=t:1}", "s:time {at=s:now}", "s:network {at=t:1}",
            "s:time {after=t:\(UInt64.max)}", "s:power {when=t:1}",
        ] {
            let error = errorName { try app.application(path, "ScheduleLaunch \(words)") }
            #expect(error == ErrorName.invalidArgs.rawValue, "\(words)")
        }
        #expect(try launches(client).isEmpty)
        let other = try App(daemon.bus)
        let error = errorName { try other.application(path, "ScheduleLaunch s:time {at=t:1}") }
        #expect(error == ErrorName.notDelegate.rawValue)
        try app.application(path, "ScheduleLaunch s:time {at=t:\(UInt64.max)}")
        #expect(try launches(client).map { $0["at"] } == [.uint64(.max)])
        try app.application(path, "CancelLaunch s:")
        #expect(try launches(client).isEmpty)
    }

    @Test("the network and mains power launch what waits for them; nothing is watched before or after")
    func conditions() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n", policy: Service.policy, keeps: true)
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register(Self.id, "launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let cases: [(String, String, String, off: Variant, on: Variant)] = [
            ("network", Service.network, "State", .uint32(20), .uint32(70)),
            ("power", Service.power, "OnBattery", .bool(true), .bool(false)),
        ]
        for (type, name, property, off, on) in cases {
            try client.wait("to be suspended") { try client.state(path) == "suspended" }
            try client.call(path, BusNames.application, "Configure") {
                try $0.appendDictionary([("suspension", .string("manual"))])
            }
            try client.call(path, BusNames.application, "Resume")
            let error = errorName { try app.application(path, "ScheduleLaunch s:\(type) {}") }
            #expect(error == ErrorName.notSupported.rawValue)
            let service = try Service(daemon, client, name, property, off)
            try client.settle()
            #expect(service.reads == 0)
            let call = try app.begin(
                "\(path) \(BusNames.application) ScheduleLaunch s:\(type) {name=s:\(type)}")
            try client.wait("the answer") { app.answer(to: call) != nil }
            #expect(app.answer(to: call) == "ok")
            try client.wait("a reading") { service.reads == 1 }
            try client.call(path, BusNames.application, "Configure") { try $0.appendDictionary([]) }
            try client.wait("to be suspended again") { try client.state(path) == "suspended" }
            let before = due(app, path).count
            try service.set(on)
            try client.wait("the signal") { due(app, path).count > before }
            #expect(due(app, path).last?.contains(" \(type) ") == true)
            let task = due(app, path).last?.split(separator: " ").last ?? ""
            try app.application(path, "EndBackgroundTask t:\(task)")
            try client.wait("nothing to be left") { try launches(client).isEmpty }
            // Another change is not read.
            try service.set(off)
            try client.settle()
            #expect(service.reads == 1)
        }
    }
}
