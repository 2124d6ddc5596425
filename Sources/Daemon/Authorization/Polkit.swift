import AppStateBus
import LifeCycle
import Systemd

/// The authority of polkit(8). It is queried asynchronously, and it signals when its answers may no longer be
/// valid.
///
/// The bus starts polkit when it is asked. Where that fails there is no polkit until a process owns the name again.
final class Polkit {
    /// The actions that dbus/org.appstate1.policy declares.
    enum Action: String {
        case observe = "org.appstate1.observe"
        case manage = "org.appstate1.manage"
    }

    enum Verdict {
        case yes
        case no
        /// Yes, provided that the user authenticates, which could not be requested here.
        case challenge
        /// No answer came in time.
        case unanswered
    }

    /// One question.
    struct Question {
        let action: Action
        let connection: Connection
        /// The details that rules may use and that the authentication dialog shows to the caller's user.
        let details: [(String, String)]
        /// Whether the user may be asked to authenticate.
        let isInteractive: Bool
    }

    static let name = "org.freedesktop.PolicyKit1"
    private static let path = "/org/freedesktop/PolicyKit1/Authority"
    private static let authority = "org.freedesktop.PolicyKit1.Authority"
    /// AllowUserInteraction of CheckAuthorizationFlags.
    private static let allowInteraction: UInt32 = 1

    private let peer: BusPeer
    private let bus: Bus
    private let journal: Journal
    /// No process owns the name, and the bus could not start one. The daemon does not try again at every call.
    private(set) var isAway = false
    private var hasComplained = false
    /// Called when earlier answers may no longer be valid.
    var changed: () -> Void = {}

    init(bus: Bus, journal: Journal) {
        self.bus = bus
        self.journal = journal
        peer = BusPeer(Self.name, bus: bus, journal: journal)
    }

    func start() throws(BusFailure) {
        peer.onOwnerChange { [weak self] in
            guard let self, peer.owner != nil else { return }
            isAway = false
            hasComplained = false
            changed()
        }
        try peer.onSignal("path='\(Self.path)',interface='\(Self.authority)',member='Changed'") {
            [weak self] _ in self?.changed()
        }
        try peer.start()
    }

    /// polkit may have been installed meanwhile.
    func tryAgain() {
        guard isAway else { return }
        isAway = false
        changed()
    }

    /// Asks without waiting: CheckAuthorization of a connection by its unique name.
    ///
    /// - Parameters:
    ///   - id: of our own choice, to cancel the question by.
    ///   - answered: called once; not after the slot was released.
    func check(
        _ question: Question, id: String, answered: @escaping (Verdict) -> Void
    ) throws(BusFailure) -> Slot {
        let message = try newCall("CheckAuthorization")
        try message.withContainer(.struct, "sa{sv}") {
            try message.append("system-bus-name")
            try message.appendDictionary([("name", .string(question.connection.name))])
        }
        try message.append(question.action.rawValue)
        try message.withContainer(.array, "{ss}") {
            for (key, value) in question.details {
                try message.withContainer(.dictEntry, "ss") {
                    try message.append(key)
                    try message.append(value)
                }
            }
        }
        try message.append(question.isInteractive ? Self.allowInteraction : 0)
        try message.append(id)
        return try bus.callAsync(message, timeout: .max) { [weak self] reply in
            guard let self else { return }
            answered(verdict(of: reply))
        }
    }

    /// Withdraws a question. An authentication dialog that it opened closes.
    func cancel(id: String) {
        journal.attempt(.warning, "cannot withdraw a question to polkit") {
            let message = try newCall("CancelCheckAuthorization")
            try message.append(id)
            try bus.send(message)
        }
    }

    private func newCall(_ member: String) throws(BusFailure) -> Message {
        try bus.newCall(destination: Self.name, path: Self.path, interface: Self.authority, member: member)
    }

    private func verdict(of reply: borrowing Message) -> Verdict {
        if let error = reply.error {
            // An error from the bus itself: polkit is not there. But a polkit that left while it was asked will be
            // started again.
            isAway =
                reply.sender == Bus.driver && error.name != "org.freedesktop.DBus.Error.NoReply"
                && peer.owner == nil
            if isAway {
                journal.log(
                    .info, "polkit is not available: users manage only their own, root everything (\(error))")
            } else {
                // For example an action that polkit does not know: the error is the same at every question.
                journal.log(hasComplained ? .debug : .warning, "polkit has not decided: \(error)")
                hasComplained = true
            }
            return .no
        }
        do {
            return try reply.withEntered(.struct, "bba{ss}") {
                let (isAuthorized, isChallenge) = (try reply.readBool(), try reply.readBool())
                while !reply.atEnd { try reply.skip("a{ss}") }
                return isAuthorized ? .yes : isChallenge ? .challenge : .no
            }
        } catch {
            journal.log(.warning, "cannot read polkit's answer: \(error)")
            return .no
        }
    }
}
