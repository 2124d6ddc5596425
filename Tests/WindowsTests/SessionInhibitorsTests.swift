import AppStateBus
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// Which processes inhibit something through the session bus, on a real bus.
@Suite(
    "Inhibitors of the session", .enabled(if: Programs.inPath("dbus-daemon") != nil, "needs dbus-daemon"))
struct SessionInhibitorsTests {
    private static let screenSaver = "org.freedesktop.ScreenSaver"
    private static let portal = "org.freedesktop.portal.Desktop"

    /// A bus, its monitor, and a service.
    private final class Scene {
        let loop: EventLoop
        let bus: PrivateBus
        private(set) var told: Set<Int32> = []
        let monitor: SessionMonitor
        private var watch: SessionInhibitors?
        private var slots: [Slot] = []

        init() throws {
            loop = try EventLoop()
            bus = try PrivateBus(
                policy:
                    "<policy user=\"\(getuid())\"><allow own=\"*\"/><allow send_type=\"method_call\"/></policy>"
            )
            let journal = Journal(identifier: "test")
            let session = appstate_session.SessionBus(address: bus.address, loop: loop, journal: journal)
            monitor = try SessionMonitor(session: session, loop: loop, journal: journal)
            watch = try SessionInhibitors(session: session, monitor: monitor, loop: loop, journal: journal) {
                [unowned self] in told = $0
            }
        }

        /// A connection with a name that answers nothing.
        func serve(_ name: String) throws -> Bus {
            let service = try connect()
            try service.requestName(name)
            return service
        }

        func connect() throws -> Bus { try Bus.open(address: bus.address) }

        func call(
            _ caller: Bus, _ name: String, _ path: String, _ interface: String, _ member: String,
            _ write: (borrowing Message) throws -> Void = { _ in }
        ) throws {
            let message = try caller.newCall(
                destination: name, path: path, interface: interface, member: member)
            try write(message)
            slots.append(try caller.callAsync(message) { _ in })
            try caller.flush()
        }

        func inhibit(_ caller: Bus, _ name: String = screenSaver) throws {
            try call(caller, name, "/org/freedesktop/ScreenSaver", screenSaver, "Inhibit") {
                try $0.append("Player")
                try $0.append("a film")
            }
        }

        func uninhibit(_ caller: Bus) throws {
            try call(caller, screenSaver, "/org/freedesktop/ScreenSaver", screenSaver, "UnInhibit") {
                try $0.append(UInt32(7))
            }
        }

        func wait(for expected: Set<Int32>) throws {
            try loop.run("\(expected): it told \(told)") { told == expected }
        }

        /// Checks that nothing else is told for a while.
        func stays(_ expected: Set<Int32>, at place: SourceLocation = #_sourceLocation) throws {
            for _ in 0..<20 { try loop.runOnce(timeout: 10_000) }
            #expect(told == expected, sourceLocation: place)
        }

        /// Waits until the monitor is connected: from then on all calls are seen.
        func begin() throws {
            let caller = try connect()
            let deadline = ContinuousClock.now + .seconds(300)
            while told.isEmpty {
                guard ContinuousClock.now < deadline else { throw TestFailure("no call is seen") }
                try inhibit(caller)
                try loop.runOnce(timeout: 10_000)
            }
            caller.close()
            try wait(for: [])
        }
    }

    @Test("a process inhibits until it has ended each of its inhibitors or leaves the bus")
    func counts() throws {
        let scene = try Scene()
        let service = try scene.serve(Self.screenSaver)
        try scene.begin()
        let player = try scene.connect()
        try scene.inhibit(player)
        try scene.wait(for: [getpid()])
        try scene.inhibit(player, service.uniqueName)
        try scene.uninhibit(player)
        // Another connection's inhibitor, which is seen after the end of the first.
        let marker = try scene.connect()
        try scene.inhibit(marker)
        marker.close()
        try scene.stays([getpid()])
        try scene.uninhibit(player)
        try scene.wait(for: [])
        try scene.inhibit(player)
        try scene.wait(for: [getpid()])
        player.close()
        try scene.wait(for: [])
    }

    @Test("calls count once while one monitor takes the place of another")
    func renewal() throws {
        let scene = try Scene()
        let service = try scene.serve(Self.screenSaver)
        try scene.begin()
        let player = try scene.connect()
        let other = scene.monitor.listen(rules: []) { _ in
        } changed: { _ in
        }
        for number in 0..<20 {
            other.rules = ["type='signal',member='Before\(number)'"]
            try scene.inhibit(player)
            try scene.loop.runOnce(timeout: 1_000)
        }
        for number in 0..<19 {
            other.rules = ["type='signal',member='After\(number)'"]
            try scene.uninhibit(player)
            try scene.loop.runOnce(timeout: 1_000)
        }
        try scene.stays([getpid()])
        try scene.uninhibit(player)
        try scene.wait(for: [])
        withExtendedLifetime(service) {}
    }

    @Test("closing its request, and no other request, ends an inhibitor of the portal")
    func portal() throws {
        let scene = try Scene()
        let services = (try scene.serve(Self.screenSaver), try scene.serve(Self.portal))
        try scene.begin()
        let player = try scene.connect()
        let root = "/org/freedesktop/portal/desktop"
        func inhibit(_ options: [(String, Variant)], flags: UInt32 = 8) throws {
            try scene.call(player, Self.portal, root, "org.freedesktop.portal.Inhibit", "Inhibit") {
                try $0.append("")
                try $0.append(flags)
                try $0.appendDictionary(options)
            }
        }
        let sender = player.uniqueName.dropFirst().split(separator: ".").joined(separator: "_")
        func close(_ path: String) throws {
            try scene.call(
                player, Self.portal, "\(root)/request/\(sender)/\(path)", "org.freedesktop.portal.Request",
                "Close")
        }
        // The end of the session alone, as for unsaved changes, does not count.
        try inhibit([("handle_token", .string("unsaved"))], flags: 1)
        try inhibit([("handle_token", .string("film"))])
        try scene.wait(for: [getpid()])
        try close("chooser")
        try scene.stays([getpid()])
        try close("film")
        try scene.wait(for: [])

        // GTK 3 gives no token. The paths are those that the portal then returns.
        try inhibit([])
        try inhibit([])
        try scene.wait(for: [getpid()])
        try close("t/1804289383")
        try scene.stays([getpid()])
        try close("t")
        try scene.wait(for: [])
        withExtendedLifetime(services) {}
    }

    @Test("a call that fails inhibits nothing")
    func failure() throws {
        let scene = try Scene()
        let service = try scene.serve(Self.screenSaver)
        try scene.begin()
        let player = try scene.connect()
        try scene.inhibit(player)
        try scene.wait(for: [getpid()])
        // sd-bus answers that the object is unknown.
        while try service.process() {}
        try service.flush()
        try scene.wait(for: [])
    }

    @Test(
        "an inhibitor of a Flatpak counts for the application, although its proxy is the caller",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: TestCgroup.isAvailable, "needs root and a writable mount of cgroup2"),
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"),
        .enabled(if: Programs.inPath("xdg-dbus-proxy") != nil, "needs xdg-dbus-proxy"))
    func flatpak() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let session = try SessionBus()
        let service = try Bus.open(address: session.address)
        try service.requestName(Self.screenSaver)
        let station = try Station()
        try station.startAgent(
            environment: display.environment.merging(["DBUS_SESSION_BUS_ADDRESS": session.address]) { $1 })
        let base = try #require(TestCgroup.base)
        let units = try (0..<2).map { _ in
            try TestCgroup(
                "app-flatpak-org.example.App-\(UUID().uuidString.filter(\.isHexDigit)).scope", below: base)
        }
        let life = try PipeEnds()
        let socket = session.directory + "/proxy"
        let proxy = try Child(
            "xdg-dbus-proxy", ["--fd=3", session.address, socket], descriptors: [3: life.write])
        var byte: UInt8 = 0
        try #require(read(life.read, &byte, 1) == 1)
        let application = try Child("sleep", ["1000"])
        for pid in [proxy.pid, application.pid] { try units[0].take(pid) }
        let path = try station.register("org.example.App", application.pid, suspension: "manual")
        let word = "reported inhibitor"
        // The agent's monitor sees calls from the moment it is connected.
        let marker = try Bus.open(address: session.address)
        var slots: [Slot] = []
        try station.wait("the monitor") {
            let message = try marker.newCall(
                destination: Self.screenSaver, path: "/ScreenSaver", interface: Self.screenSaver,
                member: "Inhibit")
            try message.append("Player")
            try message.append("a film")
            slots.append(try marker.callAsync(message) { _ in })
            try marker.flush()
            _ = station.agent?.advance()
            return station.agent?.output.contains("inhibitor pid \(getpid())") == true
        }
        marker.close()
        // Not by libsystemd, whose connections this proxy refuses. It waits for the reply.
        let client = try Child(
            "gdbus",
            [
                "call", "--address", "unix:path=\(socket)", "--timeout", "1000", "--dest", Self.screenSaver,
                "--object-path", "/ScreenSaver", "--method", "\(Self.screenSaver).Inhibit", "Player",
                "a film",
            ])
        try station.wait("the objection") { try station.objections(to: path).contains(word) }
        client.kill(SIGKILL)
        try station.wait("its end") { try !station.objections(to: path).contains(word) }

        // A second sandbox of the application has a unit of its own.
        let second = try Child("sleep", ["1000"])
        try units[1].take(second.pid)
        #expect(Proc().applications(of: second.pid, among: [application.pid]) == [application.pid])
        #expect(Proc().applications(of: proxy.pid, among: [application.pid]) == [application.pid])
        #expect(Proc().applications(of: getpid(), among: [application.pid]) == [])
        withExtendedLifetime((service, life)) {}
    }
}
