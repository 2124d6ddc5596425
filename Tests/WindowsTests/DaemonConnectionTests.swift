import AppStateBus
import AppStateContract
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// What the agent tells the daemon.
@Suite("The connection to the daemon", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct DaemonConnectionTests {
    @Test("a change is one call with all windows, and a change of a title alone waits for the next one")
    func changes() throws {
        let daemon = try FakeDaemon()
        daemon.connection.windows = try [window(1, isFocused: true), window(2)]
        daemon.connection.reconcile()
        try daemon.run { daemon.sets == [[1, 2]] && daemon.focused == 1 }
        daemon.connection.windows = try [window(1, title: "0:01"), window(2, isFocused: true), window(3)]
        daemon.connection.reconcile()
        // While the call is on its way, all that changes becomes one call.
        daemon.connection.windows = []
        daemon.connection.reconcile()
        daemon.connection.windows = try [window(2, title: "a"), window(3, isFocused: true)]
        daemon.connection.reconcile()
        try daemon.run { daemon.sets.count == 3 && daemon.focused == 3 }
        daemon.connection.windows = try [window(2, title: "b"), window(3, isFocused: true)]
        daemon.connection.reconcile()
        daemon.connection.windows = try [window(2, title: "*b", isFocused: true), window(3)]
        daemon.connection.reconcile()
        try daemon.run { daemon.focused == 2 }
        #expect(daemon.sets == [[1, 2], [1, 2, 3], [2, 3], [2, 3]])
        #expect(daemon.title(of: 2) == "*b")
    }

    @Test("another daemon is told everything anew")
    func anew() throws {
        let daemon = try FakeDaemon()
        daemon.connection.windows = try [window(1)]
        daemon.connection.objections = [Objection(pid: 7, reason: .audio)]
        daemon.connection.rules = ["/org/appstate1/application/1": nil]
        daemon.connection.reconcile()
        let everything = ["ReplaceObjections", "ReplaceWindows", "Configure", "ListApplications"]
        try daemon.run { Set(everything).isSubset(of: daemon.calls) }
        try daemon.restart()
        try daemon.run { Set(everything).isSubset(of: daemon.calls) }
        let order = daemon.calls.filter { ["ReplaceObjections", "ReplaceWindows"].contains($0) }
        #expect(order == ["ReplaceObjections", "ReplaceWindows"])
    }

    @Test("of several focused windows the first counts, and each window once")
    func oneFocus() throws {
        let windows = try [window(1), window(2, isFocused: true), window(3, isFocused: true), window(1)]
        #expect(ReportedWindow.withOneFocus(windows).map(\.observed.focused) == [false, true, false])
        #expect(ReportedWindow(ObservedWindow(number: 1, process: nil), of: .x11) == nil)
        let away = ObservedWindow(number: 1, process: 1, focused: true, visible: true, minimized: true)
        #expect(!away.visible && !away.focused)
    }

    private func window(
        _ number: UInt64, title: String = "", isFocused: Bool = false
    ) throws -> ReportedWindow {
        let window = ObservedWindow(number: number, process: 7, title: title, focused: isFocused)
        return try #require(ReportedWindow(window, of: .x11))
    }
}

/// Owns the daemon's name on a private bus, keeps a limited number of windows, and notes what it is told.
private final class FakeDaemon {
    let connection: DaemonConnection
    private(set) var calls: [String] = []
    /// The numbers of the windows in each set that it has accepted.
    private(set) var sets: [[UInt64]] = []
    private var windows: [UInt64: [(key: String, value: Variant)]] = [:]
    private let bus: PrivateBus
    private let loop: EventLoop
    private var service: Bus
    private var slots: [Slot] = []

    init() throws {
        loop = try EventLoop()
        bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_destination="*"/>\
                <allow send_type="method_call"/></policy>
                """)
        service = try Bus.open(address: bus.address)
        connection = try DaemonConnection(
            loop: loop, session: nil, registrations: [], journal: Journal(identifier: "test"), log: nil)
        try serve()
        try connection.use(try Bus.open(address: bus.address))
    }

    func restart() throws {
        calls = []
        slots = []
        service = try Bus.open(address: bus.address)
        try serve()
    }

    var focused: UInt64? { windows.first { $0.value.contains { $0 == ("focused", .bool(true)) } }?.key }

    func title(of number: UInt64) -> String? {
        guard case .string(let title)? = windows[number]?.first(where: { $0.key == "title" })?.value else {
            return nil
        }
        return title
    }

    private func serve() throws {
        try service.attach(to: loop)
        let replaceWindows = Method("ReplaceWindows", in: [("windows", "a(tua{sv})")]) {
            [unowned self] call in
            calls.append("ReplaceWindows")
            let rows = try call.read(Self.rows)
            windows = Dictionary(uniqueKeysWithValues: rows)
            sets.append(rows.map(\.0))
            try call.reply()
        }
        let manager = [
            noted("Subscribe"),
            noted("ListApplications", out: [("applications", "a(osuus)")]) { reply in
                try reply.withContainer(.array, "(osuus)") {}
            },
        ]
        let reporter = [replaceWindows, noted("ReplaceObjections", in: [("objections", "a(us)")])]
        slots = [
            try service.add(Interface(BusNames.reporter, methods: reporter), at: BusNames.root),
            try service.add(Interface(BusNames.manager, methods: manager), at: BusNames.root),
            try service.add(
                Interface(
                    BusNames.application, methods: [noted("Configure", in: [("settings", "a{sv}")])]),
                at: "/org/appstate1/application/1"),
        ]
        try service.requestName(BusNames.service)
    }

    private func noted(
        _ name: String, in arguments: [(String, String)] = [], out results: [(String, String)] = [],
        _ answer: @escaping (borrowing Message) throws -> Void = { _ in }
    ) -> Method {
        Method(name, in: arguments, out: results) { [unowned self] call in
            calls.append(name)
            try call.reply(answer)
        }
    }

    private static func rows(
        _ message: borrowing Message
    ) throws -> [(UInt64, [(key: String, value: Variant)])] {
        var rows: [(UInt64, [(key: String, value: Variant)])] = []
        _ = try message.enter(.array, "(tua{sv})")
        while try message.enter(.struct, "tua{sv}") {
            let number = try message.readUInt64() & (1 << 48 - 1)
            try message.skip("u")
            rows.append((number, try message.readDictionary()))
            try message.exit()
        }
        try message.exit()
        return rows
    }

    /// Waits until all calls are answered, and the condition holds.
    func run(until done: () -> Bool) throws {
        try loop.run("what it should know: it knows \(sets), and was called \(calls)") {
            connection.isSettled && done()
        }
    }
}
