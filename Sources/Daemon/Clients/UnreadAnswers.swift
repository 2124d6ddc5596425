import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// Counts the bytes of our answers that wait in the bus because their callers do not read them.
///
/// dbus-daemon stops reading from a client that has 127 MiB in transit (dbus-daemon(1),
/// `max_incoming_bytes`), regardless of the recipients. Without a limit for each user, the calls of one user
/// would silence the daemon for all users. The size of an answer is estimated when its call comes. If a
/// user's estimate grows too large, the bus is asked how much really waits
/// (`org.freedesktop.DBus.Debug.Stats`). If the bus does not support that, nothing is refused: dbus-broker
/// charges the readers.
final class UnreadAnswers {
    /// If more than this may wait for a user, the bus is asked.
    private static let suspect = 4 << 20
    /// If more than this waits for a user, calls are refused, ...
    private static let most = 8 << 20
    /// ... and if this much waits, they are not even answered.
    private static let mostWithRefusals = 12 << 20
    /// The same for all users together, because one person may have many user ids, ...
    private static let (mostOfAll, mostOfAllWithRefusals) = (24 << 20, 32 << 20)
    /// ... except that each user may always have this much.
    private static let least = 512 << 10
    static let sizeOfRefusal = 512
    /// A descriptor counts like this many bytes: dbus-daemon also stops reading from a client that has 64 descriptors
    /// in transit (`max_incoming_unix_fds`).
    static let sizeOfDescriptor = 512 << 10

    private struct Account {
        let user: UInt32
        var unread = 0
        /// Bytes of answers that are not sent yet, and of which the bus knows nothing.
        var coming = 0
        /// Bytes charged since the bus was last asked.
        var unchecked = 0
    }

    private let inquiries: Bus
    private let share: WorkShare
    private let journal: Journal
    private var accounts: [ConnectionName: Account] = [:]
    private var sums: [UInt32: Int] = [:]
    /// Of all users, from each at most `most`.
    private var all = 0
    /// Users about whom the bus is being asked.
    private var questions: [UInt32: Slot] = [:]
    /// The bus does not report how much waits.
    private var isBlind = false

    /// - Parameter inquiries: a separate connection, because the main one may already be silenced.
    init(inquiries: Bus, share: WorkShare, journal: Journal) {
        self.inquiries = inquiries
        self.share = share
        self.journal = journal
    }

    enum Admission {
        case admitted
        case refused
        /// Not even an error is sent.
        case ignored
    }

    /// The most for each user now, if this much waits or is to come for all users.
    private static func limit(whereAllHave all: Int) -> Int { all < mostOfAll ? most : least }

    /// Whether so much waits for all users that estimates must not add up: the bus is asked earlier, and about everybody.
    private var isScarce: Bool { all >= Self.mostOfAll / 2 }
    private var suspect: Int { isScarce ? Self.least / 2 : Self.suspect }

    /// Whether a call is answered, given the approximate size of the answer in bytes.
    func admit(_ size: Int, from connection: Connection) -> Admission {
        let sum = sums[connection.user, default: 0]
        if sum >= suspect { ask(about: connection.user) }
        askAboutOthers()
        if isBlind || sum < Self.limit(whereAllHave: all) {
            charge(size, to: connection)
            return .admitted
        }
        guard sum < Self.mostWithRefusals, all < Self.mostOfAllWithRefusals else { return .ignored }
        charge(Self.sizeOfRefusal, to: connection)
        return .refused
    }

    /// The error for a call that is refused.
    static func refusal(of user: UInt32) -> MethodError {
        MethodError(
            .limitsExceeded,
            "User \(user) has more than \(most) bytes of unread answers, or more than \(least) while all users "
                + "have more than \(mostOfAll)")
    }

    /// Whether a long answer, whose call has been admitted, may be written for a user now; nil: not before the bus has
    /// answered how much really waits.
    func admitsLongAnswer(to user: UInt32) -> Bool? {
        if isBlind || sums[user, default: 0] < Self.limit(whereAllHave: all) { return true }
        let isUnchecked = accounts.values.contains { $0.user == user && $0.unchecked > 0 }
        if questions[user] == nil, isUnchecked { ask(about: user) }
        return questions[user] == nil ? false : nil
    }

    /// Charges for an answer of this many bytes, which the bus must forward.
    func chargeAnswer(of size: Int, to connection: Connection) {
        charge(size, to: connection)
        share.charge(handingOn: size, to: connection.user, at: Clock.monotonicMicroseconds)
    }

    /// Announces a later answer of this many bytes, which the bus must forward. It counts from now on.
    func expectAnswer(of size: Int, to connection: Connection) {
        share.charge(handingOn: size, to: connection.user, at: Clock.monotonicMicroseconds)
        expect(size, to: connection)
    }

    /// Announces a later answer with a descriptor. Forwarding it costs the bus no more than any short answer.
    func expectDescriptor(to connection: Connection) { expect(Self.sizeOfDescriptor, to: connection) }

    private func expect(_ size: Int, to connection: Connection) {
        if isBlind { return }
        accounts[connection.name, default: Account(user: connection.user)].coming += size
    }

    /// Refuses to prepare more answers for a user than may wait. The disk may be slow, and the user's other calls must
    /// not suffer from that.
    func checkExpected(of user: UInt32) throws(MethodError) {
        let coming = accounts.values.reduce((own: 0, all: 0)) {
            ($0.own + ($1.user == user ? $1.coming : 0), $0.all + $1.coming)
        }
        let limit = Self.limit(whereAllHave: all + coming.all)
        guard coming.own + sums[user, default: 0] < limit else {
            throw MethodError(
                .limitsExceeded, "More than \(limit) bytes for user \(user) are unread or not sent yet")
        }
    }

    /// Records that an expected answer was sent.
    func sentAnswer(of size: Int, to connection: Connection) {
        // The connection may have left, or the answer may have been expected before the bus turned out to report
        // nothing.
        guard let account = accounts[connection.name], account.coming >= size else { return }
        accounts[connection.name]?.coming -= size
        charge(size, to: connection)
    }

    private func charge(_ size: Int, to connection: Connection) {
        if isBlind { return }
        accounts[connection.name, default: Account(user: connection.user)].unread += size
        accounts[connection.name]?.unchecked += size
        add(size, to: connection.user)
    }

    /// The answers for a connection that has left are gone.
    func departed(_ name: ConnectionName) {
        guard let account = accounts.removeValue(forKey: name) else { return }
        add(-account.unread, to: account.user)
    }

    private func set(_ unread: Int, of name: ConnectionName) {
        guard let account = accounts[name] else { return }
        accounts[name]?.unread = unread
        add(unread - account.unread, to: account.user)
    }

    /// The bus also counts what others have sent to a connection. A user who sends a lot to themselves must not use up
    /// what all users have together.
    private func add(_ bytes: Int, to user: UInt32) {
        let before = sums[user, default: 0]
        let sum = max(0, before + bytes)
        sums[user] = sum > 0 ? sum : nil
        all += min(sum, Self.most) - min(before, Self.most)
    }

    /// Where little is left for all users, asks about the connection with the most unchecked bytes, until none has any:
    /// otherwise answers that were read long ago would leave others without room.
    private func askAboutOthers() {
        guard isScarce, questions.isEmpty,
            let account = accounts.values.max(by: { $0.unchecked < $1.unchecked }), account.unchecked > 0
        else { return }
        ask(about: account.user)
    }

    /// Asks about the connection of the user's with the most unchecked bytes.
    private func ask(about user: UInt32) {
        guard !isBlind, questions[user] == nil,
            let (name, account) = accounts.filter({ $0.value.user == user }).max(by: {
                ($0.value.unchecked, $0.value.unread) < ($1.value.unchecked, $1.value.unread)
            })
        else { return }
        journal.attempt(.warning, "cannot ask the bus how much \(name) has not read") {
            let call = try inquiries.newCall(
                destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus.Debug.Stats", member: "GetConnectionStats")
            try call.append(name)
            accounts[name]?.unchecked = 0
            questions[user] = try inquiries.callAsync(call) { [weak self] reply in
                self?.questions[user] = nil
                self?.note(reply, of: name, asked: account.unread)
            }
        }
    }

    private func note(_ reply: borrowing Message, of name: ConnectionName, asked: Int) {
        // The connection may have left meanwhile.
        guard let account = accounts[name] else { return }
        let waiting: Int
        switch Self.outgoing(reply) {
        case .bytes(let bytes): waiting = bytes
        case .notThisTime: return
        case .never:
            isBlind = true
            (accounts, sums, all) = ([:], [:], 0)
            journal.log(.debug, "the bus does not report unread messages: unread answers are not limited")
            return
        }
        // Answers that were charged since the query was sent may not have reached the bus yet.
        set(waiting + max(0, account.unread - asked), of: name)
        let isSuspect = sums[account.user, default: 0] >= suspect
        if isSuspect, accounts.contains(where: { $0.value.user == account.user && $0.value.unchecked > 0 }) {
            ask(about: account.user)
        }
        askAboutOthers()
    }

    private enum Outgoing {
        case bytes(Int)
        /// For example, because the connection left before the bus was asked.
        case notThisTime
        /// This bus has no statistics, or does not give them to the daemon.
        case never
    }

    private static func outgoing(_ reply: borrowing Message) -> Outgoing {
        if let error = reply.error { return refusals.contains(error.name) ? .never : .notThisTime }
        guard let statistics = try? reply.readDictionary(),
            case .uint32(let bytes)? = statistics.first(where: { $0.key == "OutgoingBytes" })?.value
        else { return .never }
        guard case .uint32(let descriptors)? = statistics.first(where: { $0.key == "OutgoingFDs" })?.value
        else { return .bytes(Int(bytes)) }
        return .bytes(Int(bytes) + Int(descriptors) * sizeOfDescriptor)
    }

    /// Any other error concerns a single question, and a caller could provoke it: it must not end the limit. dbus-broker
    /// answers `Failed` for a method that it does not have; dbus-daemon never answers that.
    private static let refusals = Set(
        ["AccessDenied", "Failed", "NotSupported", "UnknownInterface", "UnknownMethod", "UnknownObject"]
            .map { "org.freedesktop.DBus.Error." + $0 })
}
