import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport

/// Who owns appstated's name on a bus of its own, and says to one application what a test wants.
final class StandIn {
    let bus: PrivateBus
    private let loop: EventLoop
    private let connection: Bus
    private var slots: [Slot] = []
    private static let path = BusNames.path(ofApplication: 7)
    /// The application, once it has registered itself.
    private(set) var application: String?
    private(set) var hasLaunched = false
    private(set) var acknowledged: [UInt64] = []
    private(set) var saved: [UInt8]?
    /// What the application called, in order, but for what is counted above.
    private(set) var calls: [String] = []

    init() throws {
        bus = try PrivateBus(
            policy: "<policy context=\"default\"><allow own=\"*\"/><allow send_destination=\"*\"/></policy>")
        loop = try EventLoop()
        connection = try Bus.open(address: bus.address)
        try connection.attach(to: loop)
        slots = [
            try connection.add(manager, at: BusNames.root), try connection.add(object, at: Self.path),
        ]
        try connection.requestName(BusNames.service)
    }

    private var manager: Interface {
        let register = Method(
            "Register", in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")], out: [("application", "o")]
        ) { [unowned self] call in
            application = call.sender
            try call.reply { try $0.append(objectPath: Self.path) }
        }
        return Interface(BusNames.manager, methods: [register])
    }

    private var object: Interface {
        let launch = Method("FinishLaunching") { [unowned self] call in
            hasLaunched = true
            try call.reply()
        }
        let acknowledge = Method("Acknowledge", in: [("serial", "t")]) { [unowned self] call in
            acknowledged.append(try call.read { message throws(BusFailure) in try message.readUInt64() })
            try call.reply()
        }
        let save = Method("SaveState", in: [("state", "ay")]) { [unowned self] call in
            saved = try call.read { message throws(BusFailure) in try message.readBytes() }
            try call.reply()
        }
        let activity = Method("SetUserActivity", in: [("type", "s"), ("info", "a{sv}")]) {
            [unowned self] call in
            let type = try call.read { message throws(BusFailure) in try message.readString() }
            calls.append("SetUserActivity \(type)")
            try call.reply()
        }
        return Interface(BusNames.application, methods: [launch, acknowledge, save, activity])
    }

    /// Sends the application a signal.
    func tell(_ signal: ApplicationSignal, _ body: (borrowing Message) throws -> Void = { _ in }) throws {
        let message = try connection.newSignal(
            path: Self.path, interface: BusNames.application, member: signal.rawValue, to: application)
        try body(message)
        try connection.send(message)
    }

    /// Waits for the registration, and has the application launch.
    func launch(_ options: [(String, Variant)] = []) throws {
        try wait("the registration") { application != nil }
        try tell(.willFinishLaunching) { try $0.appendDictionary(options) }
        try tell(.didFinishLaunching)
        try wait("the launch") { hasLaunched }
    }

    func wait(_ what: String, until done: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !done() {
            guard ContinuousClock.now < deadline else { throw TestFailure("\(what) did not come") }
            try loop.runOnce(timeout: 100_000)
        }
    }
}
