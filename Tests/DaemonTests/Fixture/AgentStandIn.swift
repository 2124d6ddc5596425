import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport

/// A session agent that starts what a test says, on the connection of a client. It answers while that client waits.
final class AgentStandIn {
    let client: Client
    /// Starts the program and returns its PID.
    var start: (_ id: String, _ options: [String: Variant]) throws -> Int32 = { id, _ in
        throw MethodError(ErrorName.noSuchApplication.rawValue, "No desktop entry \(id)")
    }
    /// Whether the started program waits at a gate.
    var isHeld = true
    var openError: MethodError?
    /// Whether the application has a window to present.
    var hasWindow = true
    /// Its answers have a wrong type.
    var answersNonsense = false
    /// The error with which Proceed fails; the started program does not go on then.
    var proceedError: MethodError?
    /// It does not answer.
    var isSilent = false
    private(set) var unanswered: [PendingCall] = []
    private(set) var started: [[String: Variant]] = []
    private(set) var presented: [(id: String, pid: UInt32, options: [String: Variant])] = []
    private(set) var opened: [(id: String, pid: UInt32, options: [String: Variant])] = []
    /// The applications that were to leave the front.
    private(set) var left: [Left] = []
    /// The last such call, which a test answers.
    private(set) var leaving: PendingCall?

    struct Left: Equatable {
        let pid: UInt32
        let minimize: Bool
    }
    private(set) var proceeded: [UInt64] = []
    private(set) var cancelled: [UInt64] = []
    private var slots: [Slot] = []

    /// - Parameter roles: the calls with which it registers.
    init(_ client: Client, _ roles: [ManagerMethod] = [.registerLauncher, .registerPresenter]) throws {
        self.client = client
        slots = [
            try client.bus.add(launcher(), at: BusNames.agentPath),
            try client.bus.add(presenter(), at: BusNames.agentPath),
        ]
        for role in roles {
            try client.call(BusNames.root, BusNames.manager, role.rawValue) { try $0.append("") }
        }
    }

    private func launcher() -> Interface {
        Interface(
            BusNames.launcher,
            methods: [
                Method(
                    LauncherMethod.start.rawValue, in: [("app_id", "s"), ("options", "a{sv}")],
                    out: [("launch", "t"), ("pidfd", "h"), ("held", "b"), ("unit", "s")]
                ) { [unowned self] call in
                    let id = try call.message.readString()
                    let options = Self.dictionary(try call.message.readDictionary())
                    if isSilent {
                        unanswered.append(call.deferred())
                        return
                    }
                    started.append(options)
                    if answersNonsense {
                        let process = try PidFD(pid: getpid())
                        // sd-bus refuses an answer without the method's signature, but checks that only for answers
                        // sent from within the method.
                        call.deferred().reply { reply throws(BusFailure) in
                            try reply.append(UInt64(1))
                            try reply.append(descriptor: process.rawValue)
                            try reply.append("no")
                        }
                        return
                    }
                    let process = try PidFD(pid: try start(id, options))
                    try call.reply {
                        try $0.append(UInt64(started.count))
                        try $0.append(descriptor: process.rawValue)
                        try $0.append(isHeld)
                        try $0.append("")
                    }
                },
                Method(LauncherMethod.proceed.rawValue, in: [("launch", "t")]) { [unowned self] call in
                    proceeded.append(try call.message.readUInt64())
                    if let proceedError { throw proceedError }
                    try call.reply()
                },
                Method(LauncherMethod.cancel.rawValue, in: [("launch", "t")]) { [unowned self] call in
                    cancelled.append(try call.message.readUInt64())
                    try call.reply()
                },
                Method(
                    LauncherMethod.open.rawValue, in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")]
                ) { [unowned self] call in
                    if isSilent {
                        unanswered.append(call.deferred())
                        return
                    }
                    opened.append(try Self.request(call.message))
                    if let openError { throw openError }
                    try call.reply()
                },
            ])
    }

    private func presenter() -> Interface {
        Interface(
            BusNames.presenter,
            methods: [
                Method(
                    PresenterMethod.present.rawValue,
                    in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")], out: [("raised", "b")]
                ) { [unowned self] call in
                    if isSilent {
                        unanswered.append(call.deferred())
                        return
                    }
                    presented.append(try Self.request(call.message))
                    try call.reply { try $0.append(hasWindow) }
                },
                Method(
                    PresenterMethod.leave.rawValue, in: [("app_id", "s"), ("pid", "u"), ("minimize", "b")]
                ) { [unowned self] call in
                    _ = try call.message.readString()
                    left.append(
                        Left(pid: try call.message.readUInt32(), minimize: try call.message.readBool()))
                    leaving = call.deferred()
                },
            ])
    }

    private static func request(
        _ message: borrowing Message
    ) throws -> (id: String, pid: UInt32, options: [String: Variant]) {
        (try message.readString(), try message.readUInt32(), dictionary(try message.readDictionary()))
    }

    private static func dictionary(_ entries: [(key: String, value: Variant)]) -> [String: Variant] {
        Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
    }

    /// A call whose answer may come later.
    final class Begun {
        fileprivate(set) var answer: Result<String, MethodError>?
        fileprivate var slot: Slot?
    }

    /// Calls a method of the daemon, and does not wait.
    func begin(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Begun {
        let begun = Begun()
        let message = try client.bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        begun.slot = try client.bus.callAsync(message, timeout: 300_000_000) { [weak begun] reply in
            if let error = reply.error {
                begun?.answer = .failure(error)
            } else {
                begun?.answer = .success((try? reply.readObjectPath()) ?? "")
            }
        }
        try client.bus.flush()
        return begun
    }

    /// Calls a method of the daemon, and serves the daemon meanwhile.
    ///
    /// - Returns: the object path in the answer, if any.
    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> String {
        let begun = try begin(path, interface, member, body)
        try client.wait("the answer to \(member)") { begun.answer != nil }
        return try begun.answer?.get() ?? ""
    }

    /// Calls `Launch`, and returns the object's path.
    func launch(_ id: String, _ options: [(String, Variant)] = []) throws -> String {
        try call(BusNames.root, BusNames.manager, "Launch") {
            try $0.append(id)
            try $0.appendDictionary(options)
        }
    }

    func open(_ path: String, _ urls: [String], _ options: [(String, Variant)] = []) throws {
        try call(path, BusNames.application, "Open") {
            try $0.append(strings: urls)
            try $0.appendDictionary(options)
        }
    }
}
