import AppStateBus
import LifeCycle
import Linux
import Systemd

/// All connections that have called us, until they leave.
final class Connections {
    private let bus: Bus
    /// A connection of its own: an answer that is waited for must not come behind all that others have sent us.
    private let inquiries: Bus
    private let proc: Proc
    private let journal: Journal
    /// Called when one of them has left the bus.
    var left: (ConnectionName) -> Void = { _ in }
    /// Called with the user whose new connection is about to be looked at.
    var willLook: (_ user: UInt32) -> Void = { _ in }
    /// Called with a new connection, and how many of its calls were answered before it was known whom to charge.
    var wasAnswered: (Connection, _ count: Int) -> Void = { _, _ in }
    private var known: [ConnectionName: Connection] = [:]
    private var watches: [ConnectionName: [Slot]] = [:]
    /// One rule for all, once there are more than `ownRules`.
    private var generalWatch: [Slot]?
    /// Questions whether those are gone indeed of whom it was heard beside the calls.
    private var questions: [ConnectionName: Slot] = [:]
    /// All that was read while an answer was waited for at the start has been dispatched.
    private var hasCaughtUp = false
    /// Those whose first call waits until the bus has said who they are.
    private var strangers = Strangers()
    /// Those who had left before their first call was read, so that none of their further calls is asked about.
    private var gone = RecentNames()

    /// dbus-daemon's `max_match_rules_per_connection` is 512 on a system bus; the rest is for others.
    private static let ownRules = 256

    /// - Parameters:
    ///   - bus: the connection on which calls come.
    ///   - inquiries: one that nobody calls.
    init(bus: Bus, inquiries: Bus, proc: Proc, journal: Journal) {
        self.bus = bus
        self.inquiries = inquiries
        self.proc = proc
        self.journal = journal
    }

    var all: Dictionary<ConnectionName, Connection>.Values { known.values }

    subscript(_ name: ConnectionName) -> Connection? { known[name] }

    /// Whether it had left before its first call was read: nobody is there to be answered.
    func isGone(_ name: ConnectionName) -> Bool { gone.contains(name) }

    /// Who has sent a call.
    enum Caller {
        case known(Connection)
        /// The call is dispatched again once it is known who has sent it, and dropped if that connection has left.
        case awaited
        /// The call does not wait for that. It may be answered, or there are answers enough that nobody is charged for.
        case unknown(mayBeAnswered: Bool)
    }

    /// The connection that has sent a call.
    ///
    /// A stranger's call waits for the bus's answer, and the loop does not: whoever has connections that come and go would
    /// keep it from everybody's calls.
    ///
    /// - Parameter size: of the call's arguments, in bytes; nil: it is not to be kept.
    /// - Throws: a `BusFailure` when it cannot be asked for, and a `KernelFailure` when it cannot be looked at for now.
    func caller(_ name: ConnectionName, of message: borrowing Message, _ size: Int?) throws -> Caller {
        if let connection = known[name] { return .known(connection) }
        // At the start further calls of its own may have been read: a call that is given back would come behind them.
        if !hasCaughtUp, bus.hasQueued {
            return try connection(named: name).map(Caller.known) ?? .unknown(mayBeAnswered: false)
        }
        hasCaughtUp = true
        if !strangers.contains(name) { try ask(who: name) }
        guard let size, strangers.hasRoom(for: size, of: name) else {
            return .unknown(mayBeAnswered: strangers.takeAnswer(of: name))
        }
        strangers.hold(message, size, of: name)
        return .awaited
    }

    /// What a caller is told about whom we could not learn who it is.
    static func refusal(_ error: any Error) -> MethodError {
        (error as? KernelFailure).map(MethodError.exhausted) ?? .failed("\(error)")
    }

    private func refuse(_ calls: [Strangers.Call], because error: any Error) {
        for call in calls { bus.refuse(call.message, Self.refusal(error)) }
    }

    private func ask(who name: ConnectionName) throws(BusFailure) {
        try watch(name)
        do throws(BusFailure) {
            let question = try inquiries.askCredentials(
                of: name,
                found: { [weak self] in self?.meet(name, &$0) },
                failed: { [weak self] in self?.isNotMet(name, $0) })
            strangers.add(name, question)
        } catch {
            watches[name] = nil
            throw error
        }
    }

    private func meet(_ name: ConnectionName, _ credentials: inout Credentials) {
        let (calls, answers) = strangers.remove(name)
        if known[name] != nil { return giveBack(calls) }
        willLook(credentials.uid)
        do {
            let connection = try Connection(name: name, credentials: &credentials, proc: proc)
            known[name] = connection
            if answers > 0 { wasAnswered(connection, answers) }
            giveBack(calls)
        } catch {
            watches[name] = nil
            refuse(calls, because: error)
        }
    }

    private func isNotMet(_ name: ConnectionName, _ failure: BusFailure) {
        let calls = strangers.remove(name).calls
        if known[name] != nil { return giveBack(calls) }
        watches[name] = nil
        if failure.isNobody { return gone.insert(name) }
        refuse(calls, because: failure)
    }

    /// Nothing that the bus has still for us overtakes them.
    private func giveBack(_ calls: [Strangers.Call]) {
        for call in calls {
            do {
                try bus.dispatchAgain(call.message)
            } catch {
                bus.refuse(call.message, .failed("\(error)"))
            }
        }
    }

    /// The connection of that name; waits for the bus to say who it is when it is new.
    ///
    /// Throws a `BusFailure` when it cannot be asked for, and a `KernelFailure` when it cannot be looked at for now.
    ///
    /// - Returns: nil: it has left.
    func connection(named name: ConnectionName) throws -> Connection? {
        if let connection = known[name] { return connection }
        if gone.contains(name) { return nil }
        // Watched before it is asked for, so that its end cannot fall between the two.
        try watch(name)
        do {
            var credentials = try inquiries.credentials(of: name)
            willLook(credentials.uid)
            let connection = try Connection(name: name, credentials: &credentials, proc: proc)
            known[name] = connection
            return connection
        } catch let failure as BusFailure where failure.isNobody {
            watches[name] = nil
            gone.insert(name)
            return nil
        } catch {
            watches[name] = nil
            throw error
        }
    }

    private func watch(_ name: ConnectionName) throws(BusFailure) {
        guard watches[name] == nil else { return }
        if watches.count < Self.ownRules {
            watches[name] = try watchDeparture(of: name)
        } else if generalWatch == nil {
            generalWatch = try watchDeparture(of: nil)
        }
    }

    /// Its end is told behind its last call, where calls come; and where it is asked for, so that it is told in any case.
    private func watchDeparture(of name: ConnectionName?) throws(BusFailure) -> [Slot] {
        [
            try watchDeparture(of: name, on: bus) { [weak self] in self?.departed($0) },
            try watchDeparture(of: name, on: inquiries) { [weak self] in self?.confirmDeparture(of: $0) },
        ]
    }

    /// A rule that the bus refuses would close the connection where nobody takes the error.
    private func watchDeparture(
        of name: ConnectionName?, on bus: Bus, _ handler: @escaping (ConnectionName) -> Void
    ) throws(BusFailure) -> Slot {
        try bus.watchOwner(
            of: name, onlyLost: true,
            failed: { [journal] error in
                journal.log(.error, "the bus does not tell who leaves it (\(name ?? "all")): \(error)")
            },
            handler: { name, _ in handler(name) })
    }

    /// The answer comes behind all calls that it has made.
    private func confirmDeparture(of name: ConnectionName) {
        guard known[name] != nil, questions[name] == nil else { return }
        questions[name] = try? bus.askProcess(of: name) { [weak self] _ in self?.departed(name) }
    }

    private func departed(_ name: ConnectionName) {
        questions[name] = nil
        guard known.removeValue(forKey: name) != nil else { return }
        watches[name] = nil
        if known.count < Self.ownRules / 2 { generalWatch = generalWatch.flatMap { _ in stillNeeded() } }
        left(name)
    }

    /// The general rule stays while a connection without one of its own is left, or may be about to be known.
    private func stillNeeded() -> [Slot]? {
        !strangers.isEmpty || known.keys.contains { watches[$0] == nil } ? generalWatch : nil
    }
}

/// The names that were put in last. A bus gives no unique name twice (D-Bus specification, "Unique Connection Name").
private struct RecentNames {
    private static let most = 1_024

    private var names: Set<ConnectionName> = []
    private var inOrder: [ConnectionName] = []
    private var oldest = 0

    func contains(_ name: ConnectionName) -> Bool { names.contains(name) }

    mutating func insert(_ name: ConnectionName) {
        guard names.insert(name).inserted else { return }
        guard inOrder.count == Self.most else { return inOrder.append(name) }
        names.remove(inOrder[oldest])
        inOrder[oldest] = name
        oldest = (oldest + 1) % Self.most
    }
}

/// Connections of which it is not known yet who they are, and what they have called meanwhile.
private struct Strangers {
    final class Call {
        let message: Message

        init(_ message: borrowing Message) { self.message = message.retained() }
    }

    private struct Stranger {
        let question: Slot
        var calls: [Call] = []
        var size = 0
        var answers = 0
    }

    /// Of all strangers: it is not known which user to charge.
    private static let mostCalls = 4_096
    private static let mostBytes = 32 << 20
    /// Of one: it must not take the place of the others.
    private static let mostOwnCalls = 128
    private static let mostOwnBytes = 2 << 20
    /// Who has fewer than these finds a place for a small one when others have filled all.
    private static let fewCalls = 4
    private static let smallCall = 8 << 10
    /// Answers to one while nobody is charged for them.
    private static let mostAnswers = 128

    private var all: [ConnectionName: Stranger] = [:]
    private var calls = 0
    private var size = 0

    var isEmpty: Bool { all.isEmpty }

    func contains(_ name: ConnectionName) -> Bool { all[name] != nil }

    func hasRoom(for size: Int, of name: ConnectionName) -> Bool {
        guard let own = all[name] else { return false }
        let times = own.calls.count < Self.fewCalls && size <= Self.smallCall ? 2 : 1
        return own.calls.count < Self.mostOwnCalls && own.size + size <= Self.mostOwnBytes
            && calls < times * Self.mostCalls && self.size + size <= times * Self.mostBytes
    }

    /// Whether one is answered that waits for nothing.
    mutating func takeAnswer(of name: ConnectionName) -> Bool {
        guard let stranger = all[name], stranger.answers < Self.mostAnswers else { return false }
        all[name]?.answers += 1
        return true
    }

    mutating func add(_ name: ConnectionName, _ question: Slot) { all[name] = Stranger(question: question) }

    mutating func hold(_ call: borrowing Message, _ size: Int, of name: ConnectionName) {
        all[name]?.calls.append(Call(call))
        all[name]?.size += size
        calls += 1
        self.size += size
    }

    /// Its calls, in the order in which they came, and how many others were answered.
    mutating func remove(_ name: ConnectionName) -> (calls: [Call], answers: Int) {
        guard let stranger = all.removeValue(forKey: name) else { return ([], 0) }
        calls -= stranger.calls.count
        size -= stranger.size
        return (stranger.calls, stranger.answers)
    }
}
