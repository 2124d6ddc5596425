import AppStateBus
import AppStateContract
import Glibc
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// What the agent sends to the daemon and when, by the example of exemptions.
@Suite("The line to the daemon", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct DaemonLineTests {
    @Test("nothing is sent while a reply is pending; what changes meanwhile is sent as one change")
    func oneChange() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let exemptions = try daemon.exemptions()
        for pid in 1...5 as ClosedRange<Int32> { exemptions.report([.audio: [pid]]) }
        try daemon.run { daemon.told == [[1]] }
        exemptions.report([.audio: [6]])
        try daemon.settle()
        #expect(daemon.told == [[1]])
        daemon.answer()
        try daemon.run { daemon.told == [[1], [6]] }
        daemon.answer()
        exemptions.report([.audio: [6]])
        try daemon.settle()
        #expect(daemon.told == [[1], [6]])
    }

    @Test("without a daemon one call is sent, which may start it; nothing more until a daemon appears")
    func absent() throws {
        let daemon = try DaemonStandIn()
        let exemptions = try daemon.exemptions()
        exemptions.report([.audio: [1]])
        try daemon.settle()
        exemptions.report([.audio: [2]])
        try daemon.come()
        try daemon.run { daemon.told == [[2]] }
    }

    @Test("a daemon that refuses is sent nothing more; the next daemon is sent everything")
    func refusal() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let exemptions = try daemon.exemptions()
        exemptions.report([.audio: [1]])
        try daemon.run { daemon.told == [[1]] }
        daemon.answer(MethodError(ErrorName.accessDenied.rawValue, "no"))
        try daemon.settle()
        exemptions.report([.audio: [2]])
        try daemon.settle()
        #expect(daemon.told == [[1]])
        try daemon.go()
        try daemon.come()
        try daemon.run { daemon.told == [[1], [2]] }
    }

    @Test("the state is sent again after a missing reply, and to a daemon that appears while one is pending")
    func silence() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let exemptions = try daemon.exemptions()
        exemptions.report([.audio: [1]])
        try daemon.run { daemon.told == [[1]] }
        daemon.answer(MethodError("org.freedesktop.DBus.Error.NoReply", "slow"))
        try daemon.run { daemon.told == [[1], [1]] }
        try daemon.go()
        try daemon.come()
        try daemon.run { daemon.told == [[1], [1], [1]] }
    }

    @Test("what the daemon had no room for is sent again with the next report, not earlier")
    func noRoom() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let exemptions = try daemon.exemptions()
        exemptions.report([.audio: [1]])
        try daemon.run { daemon.told == [[1]] }
        daemon.answer(MethodError(ErrorName.limitsExceeded.rawValue, "full"))
        try daemon.settle()
        #expect(daemon.told == [[1]])
        exemptions.report([.audio: [1]])
        try daemon.run { daemon.told == [[1], [1]] }
        daemon.answer()
        try daemon.settle()
        exemptions.report([.audio: [1]])
        try daemon.settle()
        #expect(daemon.told == [[1], [1]])
    }
}

/// The list of applications, which the agent requests again whenever it may have missed a change.
@Suite("The registry of applications", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct RegistryTests {
    @Test("after signals were withheld the list is requested again, once the pending one was answered")
    func resync() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let told = Told()
        let registry = try daemon.registry(told)
        try daemon.run { daemon.lists == 1 }
        for _ in 0..<2 { try daemon.resync() }
        try daemon.settle()
        #expect(daemon.lists == 1)
        daemon.answer(applications: [(7, "background")])
        try daemon.run { daemon.lists == 2 }
        #expect(told.pids == [7] && registry.isKnown)
        daemon.answer(applications: [(8, "background"), (9, "inactive"), (10, "active")])
        try daemon.run { told.pids == [8, 9, 10] }
        // An application that rests while it is visible may be suspended as well.
        #expect(told.waiting == [8, 9])
        try daemon.settle()
        #expect(daemon.lists == 2)
        try daemon.resync()
        try daemon.run { daemon.lists == 3 }
    }

    @Test("the next daemon is asked for the list, also if the former one has not answered")
    func nextDaemon() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let told = Told()
        let registry = try daemon.registry(told)
        try daemon.run { daemon.lists == 1 }
        try daemon.go()
        try daemon.come()
        try daemon.run { daemon.lists == 2 }
        #expect(!registry.isKnown)
        daemon.answer(applications: [(7, "background")])
        try daemon.run { told.pids == [7] }
        try daemon.settle()
        #expect(daemon.lists == 2)
        #expect(registry.isKnown)
    }

    @Test(
        "an application that was unregistered while signals were withheld is told to be so before it is gone")
    func unregistered() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let told = Told()
        let registry = try daemon.registry(told)
        try daemon.run { daemon.lists == 1 }
        daemon.answer(applications: [(7, "suspended")])
        try daemon.run { told.pids == [7] }
        try daemon.resync()
        try daemon.run { daemon.lists == 2 }
        told.events = []
        daemon.answer(applications: [(8, "background")])
        try daemon.run { told.pids == [8] }
        #expect(told.events.prefix(2) == ["unregistered 7", "states of 8"] && registry.isKnown)
    }

    fileprivate final class Told {
        var pids: Set<Int32> = []
        var events: [String] = []
        var waiting: Set<Int32> = []
    }
}

/// The demands for suspended applications.
@Suite("Demands, to the daemon", .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct DemandReportTests {
    @Test("a request to end is reported although the application was needed a moment before")
    func ends() throws {
        let daemon = try DaemonStandIn()
        try daemon.come()
        let demands = try daemon.demands()
        demands.report(7, .call, by: 0)
        try daemon.run { daemon.demanded == ["7 call"] }
        try daemon.settle()
        demands.report(7, .close, by: 0)
        try daemon.run { daemon.demanded == ["7 call", "7 close"] }
    }

    @Test("of several demands that wait, a request to end is the one that is reported")
    func first() throws {
        let daemon = try DaemonStandIn()
        let demands = try daemon.demands()
        demands.report(7, .close, by: 0)
        demands.report(7, .call, by: 0)
        try daemon.come()
        try daemon.run { daemon.demanded == ["7 close"] }
    }
}

/// Owns the daemon's name on a private bus and answers when the test says so.
private final class DaemonStandIn {
    /// The processes of each set that it received.
    private(set) var told: [[UInt32]] = []
    private let bus: PrivateBus
    private let loop: EventLoop
    private let connection: Bus
    private let client: Bus
    private var slots: [Slot] = []
    private var calls: [PendingCall] = []
    /// How often the list of applications was requested.
    private(set) var lists = 0
    private var listCalls: [PendingCall] = []
    /// The processes that were needed, each with the reason.
    private(set) var demanded: [String] = []

    init() throws {
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
                    BusNames.manager,
                    methods: [
                        Method("Subscribe") { call in try call.reply() },
                        Method("ListApplications", out: [("applications", "a(osuus)")]) {
                            [unowned self] call in
                            lists += 1
                            listCalls.append(call.deferred())
                        },
                    ], signals: [Signal("Resync")]), at: BusNames.root))
        slots.append(
            try connection.add(
                Interface(
                    BusNames.reporter,
                    methods: [
                        Method("ReplaceExemptions", in: [("exemptions", "a(us)")]) { [unowned self] call in
                            keep(try call.read(Self.processes), call.deferred())
                        },
                        Method("ReportDemand", in: [("pid", "u"), ("reason", "s"), ("caller", "u")]) {
                            [unowned self] call in
                            demanded.append(try call.read(Self.demand))
                            try call.reply()
                        },
                    ]), at: BusNames.root))
    }

    private func keep(_ processes: [UInt32], _ call: PendingCall) {
        told.append(processes)
        calls.append(call)
    }

    private static func processes(_ message: borrowing Message) throws -> [UInt32] {
        var processes: [UInt32] = []
        try message.withEntered(.array, "(us)") {
            while !message.atEnd {
                try message.withEntered(.struct, "us") {
                    processes.append(try message.readUInt32())
                    try message.skip("s")
                }
            }
        }
        return processes
    }

    private static func demand(_ message: borrowing Message) throws -> String {
        "\(try message.readUInt32()) \(try message.readString())"
    }

    func demands() throws -> Demands {
        try Demands(
            bus: client, loop: loop, deaf: { Issue.record("the bus refused a match: \($0)") }, due: [:],
            journal: Journal(identifier: "test"), log: nil)
    }

    func exemptions() throws -> Exemptions {
        try Exemptions(
            bus: client, loop: loop, deaf: { Issue.record("the bus refused a match: \($0)") },
            journal: Journal(identifier: "test"), log: nil)
    }

    fileprivate func registry(_ told: RegistryTests.Told) throws -> Registry {
        try Registry(
            bus: client, loop: loop, deaf: { Issue.record("the bus refused a match: \($0)") },
            journal: Journal(identifier: "test"), tell: { told.pids = Set($0.keys) },
            unregistered: { told.events.append("unregistered \($0)") }, resting: { told.waiting = $1 },
            states: { states in
                told.events.append(
                    "states of \(states.keys.sorted().map(String.init).joined(separator: " "))")
            },
            restsInSight: { $0 == 9 })
    }

    func resync() throws {
        try connection.send(
            connection.newSignal(
                path: BusNames.root, interface: BusNames.manager, member: ManagerSignal.resync.rawValue))
    }

    /// Answers all pending requests for the list.
    func answer(applications: [(pid: Int32, state: String)]) {
        for call in listCalls {
            call.reply { message in
                try message.withContainer(.array, "(osuus)") {
                    for (pid, state) in applications {
                        try message.withContainer(.struct, "osuus") {
                            try message.append(objectPath: BusNames.path(ofApplication: UInt32(pid)))
                            try message.append("org.example.App\(pid)")
                            try message.append(UInt32(pid))
                            try message.append(UInt32(getuid()))
                            try message.append(state)
                        }
                    }
                }
            }
        }
        listCalls = []
    }

    func come() throws { try connection.requestName(BusNames.service) }

    func go() throws { try connection.releaseName(BusNames.service) }

    /// Answers all pending calls.
    func answer(_ error: MethodError? = nil) {
        for call in calls { if let error { call.fail(error) } else { call.reply() } }
        calls = []
    }

    func run(until done: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !done() {
            guard ContinuousClock.now < deadline else { throw TestFailure("received: \(told)") }
            try loop.runOnce(timeout: 100_000)
        }
    }

    /// Lets both connections process all that was sent so far: each makes two round trips to the other.
    func settle() throws {
        for one in [client, connection, client, connection] {
            var isAnswered = false
            let question = try one.callAsync(try one.newDriverCall("GetId")) { _ in isAnswered = true }
            try withExtendedLifetime(question) { try run { isAnswered } }
        }
    }
}
