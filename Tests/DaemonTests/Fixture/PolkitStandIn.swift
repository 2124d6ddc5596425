import AppStateBus
import Glibc
import TestSupport

/// A small polkit on the test's own bus: its name, and an answer to each question when the test wants it. It answers
/// while `client` waits for something.
final class PolkitStandIn {
    static let name = "org.freedesktop.PolicyKit1"
    private static let path = "/org/freedesktop/PolicyKit1/Authority"
    private static let authority = "org.freedesktop.PolicyKit1.Authority"
    /// What the bus must allow it and others; on a real bus, polkit's own policy does.
    static let policy =
        "<policy user=\"\(getuid())\"><allow own=\"\(name)\"/></policy>"
        + "<policy context=\"default\"><allow send_destination=\"\(name)\"/></policy>"

    enum Word {
        case yes, no, challenge
    }

    /// One CheckAuthorization.
    final class Question {
        /// The connection that the question is about.
        let subject: String
        let action: String
        let details: [String: String]
        let isInteractive: Bool
        fileprivate let id: String
        fileprivate let call: PendingCall
        fileprivate(set) var isCancelled = false

        fileprivate init(_ call: borrowing Call) throws {
            let message = call.message.retained()
            var subject = ""
            try message.withEntered(.struct, "sa{sv}") {
                let kind = try message.readString()
                guard kind == "system-bus-name",
                    case .string(let name)? = try message.readDictionary().first(where: { $0.key == "name" })?
                        .value
                else { throw TestFailure("polkit is asked about \(kind)") }
                subject = name
            }
            self.subject = subject
            action = try message.readString()
            var details: [String: String] = [:]
            try message.withEntered(.array, "{ss}") {
                while !message.atEnd {
                    try message.withEntered(.dictEntry, "ss") {
                        details[try message.readString()] = try message.readString()
                    }
                }
            }
            self.details = details
            isInteractive = try message.readUInt32() == 1
            id = try message.readString()
            self.call = call.deferred()
        }

        func answer(_ word: Word) {
            call.reply { reply in
                try reply.withContainer(.struct, "bba{ss}") {
                    try reply.append(word == .yes)
                    try reply.append(word == .challenge)
                    try reply.withContainer(.array, "{ss}") {}
                }
            }
        }
    }

    private let bus: Bus
    private var slot: Slot?
    /// All questions so far, in order.
    private(set) var questions: [Question] = []
    /// The answer that it gives at once; nil: the test gives it later.
    var rule: (Question) -> Word? = { _ in nil }

    init(_ daemon: TestDaemon, _ client: Client) throws {
        bus = try Bus.open(address: daemon.bus.address)
        try bus.attach(to: client.loop)
        let interface = Interface(
            Self.authority,
            methods: [
                Method(
                    "CheckAuthorization",
                    in: [
                        ("subject", "(sa{sv})"), ("action_id", "s"), ("details", "a{ss}"), ("flags", "u"),
                        ("cancellation_id", "s"),
                    ], out: [("result", "(bba{ss})")]
                ) { [unowned self] call in
                    let question = try Question(call)
                    questions.append(question)
                    if let word = rule(question) { question.answer(word) }
                },
                Method("CancelCheckAuthorization", in: [("cancellation_id", "s")]) { [unowned self] call in
                    let id = try call.message.readString()
                    guard let question = questions.first(where: { $0.id == id && !$0.call.isAnswered }) else {
                        throw MethodError("org.freedesktop.PolicyKit1.Error.Failed", "No such id \(id)")
                    }
                    question.isCancelled = true
                    question.call.fail(
                        MethodError("org.freedesktop.PolicyKit1.Error.Cancelled", "Cancelled"))
                    try call.reply()
                },
            ], signals: [Signal("Changed")])
        slot = try bus.add(interface, at: Self.path)
        try come()
    }

    func come() throws { try bus.requestName(Self.name) }

    func leave() throws { try bus.releaseName(Self.name) }

    /// Announces that its earlier answers may no longer be valid.
    func change() throws {
        try bus.send(try bus.newSignal(path: Self.path, interface: Self.authority, member: "Changed"))
    }

    func forget() { questions = [] }

    /// The same signal from a connection that is not polkit.
    static func change(by stranger: Bus, to destination: String) throws {
        try stranger.send(
            try stranger.newSignal(path: path, interface: authority, member: "Changed", to: destination))
    }
}
