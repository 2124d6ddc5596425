import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport

/// The owner of appstated's name on a private bus, which sends one application what a test wants.
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
    /// What `LoadState` returns.
    var stored: [UInt8] = []
    /// The property `LaunchOptions`.
    var launchOptions: [(String, Variant)] = []
    /// The application's state, as reported when it asks for it.
    var state = "not-running"
    /// What happens once before a call of a method is answered.
    var before: [String: () throws -> Void] = [:]
    /// The errors with which calls of a method are refused, one after the other.
    var refusals: [String: [MethodError]] = [:]
    /// The calls of the application, in order, except those that the properties above cover.
    private(set) var calls: [String] = []
    /// All calls of the application about its object, in order.
    private(set) var order: [String] = []

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

    /// Gives up the service's name.
    func leave() throws { try connection.releaseName(BusNames.service) }

    /// Takes the name again.
    ///
    /// - Parameter knows: it still knows the application.
    func comeBack(knows: Bool = true) throws {
        if knows {
            refusals["Register", default: []].append(
                MethodError(ErrorName.alreadyRegistered.rawValue, "registered"))
        }
        try connection.requestName(BusNames.service)
    }

    /// A method that is recorded, and refused if a test wants that.
    private func method(
        _ name: String, in arguments: [(String, String)] = [], out results: [(String, String)] = [],
        _ handler: @escaping (borrowing Call) throws -> Void
    ) -> Method {
        Method(name, in: arguments, out: results) { [unowned self] call in
            try record(name)
            try handler(call)
        }
    }

    private func record(_ name: String) throws {
        order.append(name)
        try before.removeValue(forKey: name)?()
        if let refusal = refusals[name]?.first {
            refusals[name]?.removeFirst()
            throw refusal
        }
    }

    private var manager: Interface {
        let options = [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")]
        let register = method("Register", in: options, out: [("application", "o")]) { [unowned self] call in
            application = call.sender
            try call.reply { try $0.append(objectPath: Self.path) }
        }
        let process = method(
            "RegisterProcess", in: [("app_id", "s"), ("pidfd", "h"), ("options", "a{sv}")],
            out: [("application", "o")]
        ) { [unowned self] call in
            application = call.sender
            try call.reply { try $0.append(objectPath: Self.path) }
        }
        let find = method("GetApplicationByPID", in: [("pid", "u")], out: [("application", "o")]) { call in
            try call.reply { try $0.append(objectPath: Self.path) }
        }
        let named = method("GetApplicationByID", in: [("app_id", "s")], out: [("application", "o")]) { call in
            try call.reply { try $0.append(objectPath: Self.path) }
        }
        let list = method("ListApplications", out: [("applications", "a(osuus)")]) { [unowned self] call in
            let state = state
            try call.reply { message in
                try message.withContainer(.array, "(osuus)") {
                    try message.withContainer(.struct, "osuus") {
                        try message.append(objectPath: Self.path)
                        try message.append("org.example.LibraryActor")
                        for number in [UInt32(7), getuid()] { try message.append(number) }
                        try message.append(state)
                    }
                }
            }
        }
        return Interface(BusNames.manager, methods: [register, process, find, named, list])
    }

    private var object: Interface {
        let launch = method("FinishLaunching") { [unowned self] call in
            hasLaunched = true
            try call.reply()
        }
        let delegate = method("BecomeDelegate") { [unowned self] call in
            application = call.sender
            try call.reply()
        }
        let pings = Method("AnswerPings") { call in try call.reply() }
        let acknowledge = method("Acknowledge", in: [("serial", "t")]) { [unowned self] call in
            acknowledged.append(try call.read { message throws(BusFailure) in try message.readUInt64() })
            try call.reply()
        }
        let save = method("SaveState", in: [("state", "ay")]) { [unowned self] call in
            saved = try call.read { message throws(BusFailure) in try message.readBytes() }
            try call.reply()
        }
        let load = method("LoadState", out: [("state", "ay")]) { [unowned self] call in
            let stored = stored
            try call.reply { try $0.append(bytes: stored) }
        }
        let begin = method("BeginBackgroundTask", in: [("name", "s")], out: [("task", "t")]) { call in
            try call.reply { try $0.append(UInt64(1)) }
        }
        let end = method("EndBackgroundTask", in: [("task", "t")]) { call in try call.reply() }
        let open = method("Open", in: [("urls", "as"), ("options", "a{sv}")]) { call in try call.reply() }
        let activity = method("SetUserActivity", in: [("type", "s"), ("info", "a{sv}")]) {
            [unowned self] call in
            let type = try call.read { message throws(BusFailure) in try message.readString() }
            calls.append("SetUserActivity \(type)")
            try call.reply()
        }
        let transfer = method("FinishTransfer", in: [("id", "s")]) { [unowned self] call in
            let id = try call.read { message throws(BusFailure) in try message.readString() }
            calls.append("FinishTransfer \(id)")
            try call.reply()
        }
        return Interface(
            BusNames.application,
            methods: [
                launch, delegate, pings, acknowledge, save, load, begin, end, open, activity, transfer,
            ],
            properties: [
                Property("State", "s") { [unowned self] message, _ in try message.append(state) },
                Property("LaunchOptions", "a{sv}") { [unowned self] message, _ in
                    try record("LaunchOptions")
                    try message.appendDictionary(launchOptions)
                },
            ])
    }

    /// Sends the application a signal.
    func tell(_ signal: ApplicationSignal, _ body: (borrowing Message) throws -> Void = { _ in }) throws {
        let message = try connection.newSignal(
            path: Self.path, interface: BusNames.application, member: signal.rawValue, to: application)
        try body(message)
        try connection.send(message)
    }

    /// Tells the application that signals were withheld from it.
    func resync() throws {
        let message = try connection.newSignal(
            path: BusNames.root, interface: BusNames.manager, member: ManagerSignal.resync.rawValue,
            to: application)
        try connection.send(message)
    }

    /// Tells the application that it is in the background.
    func sendToBackground(_ serial: UInt64) throws {
        state = "background"
        try tell(.stateChanged) { message in
            for word in ["inactive", "background", "minimized"] { try message.append(word) }
        }
        try tell(.didEnterBackground, serial: serial)
    }

    /// Sends the application a signal that needs an acknowledgement.
    func tell(_ signal: ApplicationSignal, serial: UInt64) throws {
        try tell(signal) { message in
            try message.append(serial)
            try message.append(UInt64(0))
        }
    }

    /// Waits for the registration, and lets the application launch.
    func launch(_ options: [(String, Variant)] = []) throws {
        try wait("the registration") { application != nil }
        try tell(.willFinishLaunching) { try $0.appendDictionary(options) }
        try tell(.didFinishLaunching)
        try wait("the launch") { hasLaunched }
    }

    func wait(_ what: String, until done: () -> Bool) throws {
        try loop.run("\(what): \(order)", until: done)
    }
}
