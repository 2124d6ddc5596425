import AppStateBus
import AppStateContract
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// How the agent reports windows to a daemon that has no room for all of them.
@Suite("The reporter", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct ReporterTests {
    @Test("windows that replace others are all reported, although the daemon has no room for both")
    func replaced() throws {
        let daemon = try NarrowDaemon(room: 100)
        let reporter = try daemon.reporter()
        // More than are sent at once.
        for numbers in [1...100, 101...200] as [ClosedRange<UInt64>] {
            let windows = try numbers.map { try Self.window($0) }
            reporter.report(windows)
            try daemon.run { daemon.windows == Set(windows.map(\.number)) }
        }
    }

    @Test("of more windows than the daemon has room for, the focused one is reported, and most others")
    func leftOut() throws {
        let daemon = try NarrowDaemon(room: 100)
        let reporter = try daemon.reporter()
        let windows = try (1...150).map { try Self.window($0, isFocused: $0 == 150) }
        let last = windows[149].number
        reporter.report(windows)
        try daemon.run { daemon.windows.contains(last) && daemon.windows.count > 80 }
        // All that are left have room.
        let left = Array(windows.suffix(90))
        reporter.report(left)
        try daemon.run { daemon.windows == Set(left.map(\.number)) }
        #expect(Set(daemon.removed).isDisjoint(with: left.map(\.number)))
    }

    private static func window(
        _ number: UInt64, process: Int32 = 7, isShared: Bool = false, isFocused: Bool = false
    ) throws -> Report.Window {
        let window = ObservedWindow(
            number: number, process: process, focused: isFocused, isShared: isShared)
        return try #require(Report.Window(window, of: .x11))
    }
}

/// Owns the daemon's name on a private bus and keeps a limited number of windows.
private final class NarrowDaemon {
    /// The windows that it knows, by their numbers.
    private(set) var windows: Set<UInt64> = []
    /// The windows that were removed one by one.
    private(set) var removed: [UInt64] = []
    private let room: Int
    private let bus: PrivateBus
    private let loop: EventLoop
    private let connection: Bus
    private let client: Bus
    private var slots: [Slot] = []

    init(room: Int) throws {
        self.room = room
        bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_destination="*"/>\
                <allow send_type="method_call"/></policy>
                """)
        loop = try EventLoop()
        connection = try Bus.open(address: bus.address)
        client = try Bus.open(address: bus.address)
        for one in [connection, client] { try one.attach(to: loop) }
        slots.append(
            try connection.add(
                Interface(
                    BusNames.reporter,
                    methods: [
                        Method("ReplaceWindows", in: [("windows", "a(tua{sv})")]) { [unowned self] call in
                            let numbers = try call.read(Self.numbers)
                            try checkRoom(for: numbers.count)
                            windows = numbers
                            try call.reply()
                        },
                        Method("UpdateWindow", in: [("window", "t"), ("pid", "u"), ("state", "a{sv}")]) {
                            [unowned self] call in
                            try add(try call.read { try $0.readUInt64() })
                            try call.reply()
                        },
                        Method("RemoveWindow", in: [("window", "t")]) { [unowned self] call in
                            remove(try call.read { try $0.readUInt64() })
                            try call.reply()
                        },
                    ]), at: BusNames.root))
        try connection.requestName(BusNames.service)
    }

    private func checkRoom(for count: Int) throws {
        if count > room {
            throw MethodError(ErrorName.limitsExceeded.rawValue, "no room for \(count) windows")
        }
    }

    private func add(_ number: UInt64) throws {
        try checkRoom(for: windows.union([number]).count)
        windows.insert(number)
    }

    private func remove(_ number: UInt64) {
        windows.remove(number)
        removed.append(number)
    }

    private static func numbers(_ message: borrowing Message) throws -> Set<UInt64> {
        var numbers: Set<UInt64> = []
        try message.withEntered(.array, "(tua{sv})") {
            while !message.atEnd {
                try message.withEntered(.struct, "tua{sv}") {
                    numbers.insert(try message.readUInt64())
                    try message.skip("ua{sv}")
                }
            }
        }
        return numbers
    }

    func reporter() throws -> Reporter {
        try Reporter(
            bus: client, loop: loop, deaf: { Issue.record("the bus refused a match: \($0)") }, session: nil,
            journal: Journal(identifier: "test"), log: nil)
    }

    func run(until done: () -> Bool) throws {
        try loop.run("what it should know: it knows \(windows.sorted())", until: done)
    }
}
