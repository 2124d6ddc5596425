import AppStateBus
import LifeCycle
import Linux
import Systemd

/// All connections that have called the daemon, until they leave.
final class Connections {
    private let bus: Bus
    /// A separate connection: an awaited answer must not queue behind everything that other processes have
    /// sent to the daemon.
    private let inquiries: Bus
    private let proc: Proc
    private let journal: Journal
    /// Called when a connection has left the bus.
    var left: (ConnectionName) -> Void = { _ in }
    /// Called with the user of a new connection before its process is examined.
    var willLook: (_ user: UInt32) -> Void = { _ in }
    /// Called with a new connection and the number of its calls that were answered before the user to charge was known.
    var wasAnswered: (Connection, _ count: Int) -> Void = { _, _ in }
    private var known: [ConnectionName: Connection] = [:]
    private var watches: [ConnectionName: [Slot]] = [:]
    /// One rule for all connections, once there are more than `ownRules`.
    private var generalWatch: [Slot]?
    /// Queries to the bus whether a connection is really gone, if its disconnection was not reported in order
    /// with its calls.
    private var questions: [ConnectionName: Slot] = [:]
    /// Everything that was read while an answer was awaited at startup has been dispatched.
    private var hasCaughtUp = false
    /// Connections whose first call waits until the bus has identified them.
    private var strangers = Strangers()
    /// Connections that left before their first call was read. They are kept so that the bus is not asked about their
    /// further calls.
    private var gone = RecentNames()

    /// dbus-daemon's `max_match_rules_per_connection` is 512 on a system bus; the rest is for other rules.
    private static let ownRules = 256

    /// - Parameters:
    ///   - bus: the connection on which calls arrive.
    ///   - inquiries: a connection that no client calls.
    init(bus: Bus, inquiries: Bus, proc: Proc, journal: Journal) {
        self.bus = bus
        self.inquiries = inquiries
        self.proc = proc
        self.journal = journal
    }

    var all: Dictionary<ConnectionName, Connection>.Values { known.values }

    subscript(_ name: ConnectionName) -> Connection? { known[name] }

    /// Whether it left before its first call was read, so that no client can receive an answer.
    func isGone(_ name: ConnectionName) -> Bool { gone.contains(name) }

    /// The sender of a call.
    enum Caller {
        case known(Connection)
        /// The call is dispatched again once its sender is known, and dropped if that connection has left.
        case awaited
        /// The call does not wait for that. It may be answered, unless enough answers were sent that no user is charged
        /// for.
        case unknown(mayBeAnswered: Bool)
    }

    /// The connection that sent a call.
    ///
    /// A stranger's call waits for the bus's answer, but the loop does not: otherwise connections that come and go
    /// would keep the loop from all other calls.
    ///
    /// - Parameter size: of the call's arguments, in bytes; nil: the call must not be kept.
    /// - Throws: a `BusFailure` if the bus cannot be asked, and a `KernelFailure` if the process cannot be examined for
    ///   now.
    func caller(_ name: ConnectionName, of message: borrowing Message, _ size: Int?) throws -> Caller {
        if let connection = known[name] { return .known(connection) }
        // At startup further calls of the same connection may have been read: a call that is given back would come
        // behind them.
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

    /// The error for a caller whose identity could not be determined.
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

    /// The calls come before anything that the bus still has for the daemon.
    private func giveBack(_ calls: [Strangers.Call]) {
        for call in calls {
            do {
                try bus.dispatchAgain(call.message)
            } catch {
                bus.refuse(call.message, .failed("\(error)"))
            }
        }
    }

    /// The connection with this name. If it is new, this waits for the bus to identify it.
    ///
    /// Throws a `BusFailure` if the bus cannot be asked, and a `KernelFailure` if the process cannot be examined for
    /// now.
    ///
    /// - Returns: the connection; nil: it has left.
    func connection(named name: ConnectionName) throws -> Connection? {
        if let connection = known[name] { return connection }
        if gone.contains(name) { return nil }
        // The watch is set up before the query, so that the connection cannot end unnoticed between the two.
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

    /// On the connection that receives calls, the disconnection is reported after the last call. On
    /// `inquiries` it is reported in any case.
    private func watchDeparture(of name: ConnectionName?) throws(BusFailure) -> [Slot] {
        [
            try watchDeparture(of: name, on: bus) { [weak self] in self?.departed($0) },
            try watchDeparture(of: name, on: inquiries) { [weak self] in self?.confirmDeparture(of: $0) },
        ]
    }

    /// An unhandled error about a rule that the bus refuses would close the connection.
    private func watchDeparture(
        of name: ConnectionName?, on bus: Bus, _ handler: @escaping (ConnectionName) -> Void
    ) throws(BusFailure) -> Slot {
        try bus.watchOwner(
            of: name, onlyLost: true,
            failed: { [journal] error in
                journal.log(
                    .error, "cannot watch for clients that leave the bus (\(name ?? "all")): \(error)")
            },
            handler: { name, _ in handler(name) })
    }

    /// The answer arrives after all calls that the connection has made.
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

    /// The general rule stays while a connection has no rule of its own, or while a stranger may be about to become
    /// known.
    private func stillNeeded() -> [Slot]? {
        !strangers.isEmpty || known.keys.contains { watches[$0] == nil } ? generalWatch : nil
    }
}

/// The most recently inserted names. A bus gives no unique name twice (D-Bus specification, "Unique Connection Name").
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

/// Connections whose identity is not known yet, and their calls meanwhile.
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

    /// For all strangers together: the user to charge is not known.
    private static let mostCalls = 4_096
    private static let mostBytes = 32 << 20
    /// For each stranger, which must not take the place of the others.
    private static let mostOwnCalls = 128
    private static let mostOwnBytes = 2 << 20
    /// A stranger with fewer calls than this finds room for a small one even when others have filled the normal limit.
    private static let fewCalls = 4
    private static let smallCall = 8 << 10
    /// Answers to one stranger while no user is charged for them.
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

    /// Whether a call that does not wait is answered.
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

    /// Its calls in the order of arrival, and the number of its other calls that were answered.
    mutating func remove(_ name: ConnectionName) -> (calls: [Call], answers: Int) {
        guard let stranger = all.removeValue(forKey: name) else { return ([], 0) }
        calls -= stranger.calls.count
        size -= stranger.size
        return (stranger.calls, stranger.answers)
    }
}
