import AppStateBus
import AppStateContract
import LifeCycle
import Systemd

/// The permission that a call needs beyond access to its user's own applications.
enum Demand {
    /// None: it is dispatched even if other calls wait.
    case nothing
    /// None, but it keeps its place behind the waiting calls of its connection.
    case turn
    /// To see other users' applications.
    case sight
    /// To manage another user's application.
    case management(Target, details: [(String, String)])
}

/// The subject of a management call.
enum Target: Hashable {
    /// The number in an object path, whether or not such an application exists.
    case application(UInt32)
    case process(ProcessID, user: UInt32)
    case configuration
}

/// Holds calls until polkit has answered, and then dispatches them again, so that the decision is available
/// to handlers, enumerators and property getters.
final class Gate {
    private final class Held {
        let message: Message
        /// It waits for polkit's answer, not only behind other calls that wait.
        let awaitsAnswer: Bool
        /// It was already given back to the bus. If it were given back twice, it would be carried out twice.
        var isOnItsWay = false

        init(_ message: borrowing Message, awaitsAnswer: Bool = true) {
            self.message = message.retained()
            self.awaitsAnswer = awaitsAnswer
        }
    }

    /// A call that manages, and polkit's verdict on it, once there is one.
    private final class Managing {
        let held: Held
        let connection: ConnectionName
        let target: Target
        var verdict: Polkit.Verdict?

        init(_ message: borrowing Message, _ connection: ConnectionName, _ target: Target) {
            held = Held(message)
            self.connection = connection
            self.target = target
        }
    }

    /// The most calls held for each user: 4 MiB of arguments at most.
    private static let mostHeld = 64

    private let bus: Bus
    private let polkit: Polkit
    private let questions: Questions
    private let connections: Connections
    private let journal: Journal
    /// Calls that wait until it is decided what their connection may see, or that are on their way back; in
    /// order.
    private var lines: [ConnectionName: [Held]] = [:]
    private var managing: [Managing] = []
    /// The call being dispatched, if polkit was asked about it.
    private var current: Managing?
    /// Called when a connection that is notified of changes may see more than before, or less.
    var sightChanged: (Connection) -> Void = { _ in }

    init(bus: Bus, polkit: Polkit, questions: Questions, connections: Connections, journal: Journal) {
        self.bus = bus
        self.polkit = polkit
        self.questions = questions
        self.connections = connections
        self.journal = journal
        polkit.changed = { [weak self] in self?.lookAgain() }
    }

    /// polkit's answer about the call that is being dispatched; nil if polkit was not asked, or was asked
    /// about something else.
    func verdict(on target: Target, for connection: Connection) -> Polkit.Verdict? {
        guard let current, current.target == target, current.connection == connection.name else { return nil }
        return current.verdict
    }

    /// Whether a call must be dispatched now. If not, it will be dispatched again later.
    func admits(
        _ message: borrowing Message, of connection: Connection, _ demand: () -> Demand
    ) throws(MethodError) -> Bool {
        current = nil
        if let index = managing.firstIndex(where: { $0.verdict != nil && $0.held.message.isSame(as: message) }
        ) {
            current = managing.remove(at: index)
            return true
        }
        let held = leavesLine(message, connection)
        let isBack = held != nil
        // polkit's answer arrives over another connection, so it may overtake calls that were sent before it.
        let isBehind = !isBack && lines[connection.name] != nil
        switch demand() {
        case .nothing:
            return true
        case .turn:
            guard lines[connection.name] != nil, !isBack || connection.sight == .asked else { return true }
        case .sight:
            // The answer that the call waited for applies to it, even if polkit would answer differently by now. But
            // the call may have waited for the answer to a question that allowed less.
            let asksAgain = connection.sight == .challenge && message.allowsInteraction
            let hasWaited = held?.awaitsAnswer == true
            if !isBehind, connection.sight == .open && !hasWaited || asksAgain {
                askSight(of: [connection], isInteractive: message.allowsInteraction)
            }
            guard connection.sight == .asked || isBehind else { return true }
        case .management(let target, let details):
            return try !ask(to: target, details, message, connection)
        }
        try lineUp(message, connection)
        return false
    }

    /// Whether this is a call that has waited for polkit and now comes again. It was counted the first time.
    func isReturning(_ message: borrowing Message, of connection: Connection) -> Bool {
        managing.contains { $0.verdict != nil && $0.held.message.isSame(as: message) }
            || lines[connection.name]?.contains { $0.message.isSame(as: message) } == true
    }

    /// Forgets a call that was refused when it came again. It does not come another time.
    func forget(_ message: borrowing Message, of connection: Connection) {
        managing.removeAll { $0.verdict != nil && $0.held.message.isSame(as: message) }
        _ = leavesLine(message, connection)
    }

    /// Forgets the waiting calls of a connection that has left.
    func departed(_ name: ConnectionName) {
        lines[name] = nil
        managing.removeAll { $0.connection == name }
        questions.cancel(of: name)
    }

    // MARK: Sight

    private func askSight(of connections: [Connection], isInteractive: Bool) {
        if polkit.isAway {
            for connection in connections { settle(connection, .no, wasInteractive: isInteractive) }
            return
        }
        var asked: [(Polkit.Question, (Polkit.Verdict) -> Void)] = []
        for connection in connections {
            connection.sight = .asked
            let question = Polkit.Question(
                action: .observe, connection: connection, details: [], isInteractive: isInteractive)
            asked.append(
                (question, { [weak self] in self?.settle(connection, $0, wasInteractive: isInteractive) }))
        }
        questions.ask(asked)
    }

    private func settle(_ connection: Connection, _ verdict: Polkit.Verdict, wasInteractive: Bool) {
        // Something has changed since polkit was asked, so the answer is valid for the waiting calls only.
        let isStale = connection.isSightStale
        connection.isSightStale = false
        switch verdict {
        case _ where isStale: connection.sight = .open
        // A question without interaction may be repeated with it. After an interactive question a challenge means that
        // no user was there to authenticate, so polkit is not asked again.
        case .challenge where !wasInteractive: connection.sight = .challenge
        case .challenge, .yes, .no, .unanswered: connection.sight = .settled
        }
        let isNew = connection.mayObserve != (verdict == .yes)
        connection.mayObserve = verdict == .yes
        if isNew, connection.isSubscriber { sightChanged(connection) }
        for held in lines[connection.name] ?? [] { dispatchAgain(held) }
        if isStale, connection.isSubscriber { askSight(of: [connection], isInteractive: false) }
    }

    /// polkit's answers may no longer be valid, so polkit is asked again before the next call. A connection
    /// that is notified of applications without calling is asked about at once, and is notified of other
    /// users' until polkit says otherwise.
    private func lookAgain() {
        var asked: [Connection] = []
        for connection in connections.all {
            if connection.sight == .asked {
                connection.isSightStale = true
                continue
            }
            connection.sight = .open
            if connection.mayObserve || connection.isSubscriber && connection.hasRightsByPolkit {
                asked.append(connection)
            }
        }
        askSight(of: asked, isInteractive: false)
    }

    private func lineUp(_ message: borrowing Message, _ connection: Connection) throws(MethodError) {
        try checkRoom(for: connection)
        let held = Held(message, awaitsAnswer: connection.sight == .asked)
        lines[connection.name, default: []].append(held)
        // The waiting calls are already on their way back, so this call goes behind them.
        if connection.sight != .asked { dispatchAgain(held) }
    }

    private func leavesLine(_ message: borrowing Message, _ connection: Connection) -> Held? {
        guard let line = lines[connection.name],
            let index = line.firstIndex(where: { $0.message.isSame(as: message) })
        else { return nil }
        lines[connection.name]?.remove(at: index)
        if line.count == 1 { lines[connection.name] = nil }
        return line[index]
    }

    // MARK: Management

    /// Whether polkit is asked, and the call waits.
    private func ask(
        to target: Target, _ details: [(String, String)], _ message: borrowing Message,
        _ connection: Connection
    ) throws(MethodError) -> Bool {
        if polkit.isAway { return false }
        guard questions.hasPlace(for: connection.user) else {
            throw MethodError(
                .limitsExceeded,
                "Too many questions to polkit are open, for user \(connection.user) or in total")
        }
        let call = Managing(message, connection.name, target)
        managing.append(call)
        let question = Polkit.Question(
            action: .manage, connection: connection, details: details,
            isInteractive: message.allowsInteraction)
        questions.ask(question) { [weak self] verdict in
            call.verdict = verdict
            guard let self else { return }
            tell(verdict, details, connection)
            dispatchAgain(call.held)
        }
        return true
    }

    /// Logs every permitted action on another user's application, and the first refusal of each connection.
    private func tell(
        _ verdict: Polkit.Verdict, _ details: [(String, String)], _ connection: Connection
    ) {
        func detail(_ key: String) -> String { details.first { $0.0 == key }?.1 ?? "" }
        let isAllowed = verdict == .yes
        if !isAllowed, connection.wasRefused { return }
        if !isAllowed { connection.wasRefused = true }
        journal.log(
            isAllowed ? .notice : .info,
            "user \(connection.user) (pid \(connection.pid)) \(isAllowed ? "may" : "may not") "
                + "\(detail("method")): \(detail("target"))",
            as: isAllowed ? .managementAllowed : .managementRefused,
            [(.callerUser, String(connection.user)), (.callerPID, String(connection.pid))])
    }

    // MARK: Calls that wait

    private func checkRoom(for connection: Connection) throws(MethodError) {
        let held = connections.all.filter { $0.user == connection.user }
            .reduce(0) { $0 + (lines[$1.name]?.count ?? 0) }
        guard held < Self.mostHeld else {
            throw MethodError(
                .limitsExceeded, "More than \(Self.mostHeld) calls of user \(connection.user) wait for polkit"
            )
        }
    }

    private func dispatchAgain(_ held: Held) {
        if held.isOnItsWay { return }
        held.isOnItsWay = true
        do {
            try bus.dispatchAgain(held.message)
        } catch {
            for (name, line) in lines { lines[name] = line.filter { $0 !== held } }
            lines = lines.filter { !$0.value.isEmpty }
            managing.removeAll { $0.held === held }
            bus.refuse(held.message, .failed("\(error)"))
        }
    }
}
