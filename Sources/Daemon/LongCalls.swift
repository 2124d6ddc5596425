import AppStateBus
import AppStateContract
import LifeCycle

/// Calls that take longer than one event may: done in slices, with the loop's other events in between. What the same
/// connection calls meanwhile waits, so that its calls are carried out in order.
final class LongCalls {
    private final class Job {
        let connection: ConnectionName
        let user: UInt32
        /// Does a little; answers whether that was all.
        let step: () -> Bool

        init(_ connection: ConnectionName, _ user: UInt32, _ step: @escaping () -> Bool) {
            self.connection = connection
            self.user = user
            self.step = step
        }
    }

    private final class Held {
        let message: Message

        init(_ message: borrowing Message) { self.message = message.retained() }
    }

    /// How long steps may keep the loop, and how long others then have it to themselves.
    private static let slice: Microseconds = 1_000
    private static let rest: Microseconds = 1_000
    /// More calls of one user do not wait.
    private static let mostHeld = 64

    private let bus: Bus
    private let now: () -> Microseconds
    private var timer: Timer?
    /// In the order in which they came; one of each connection.
    private var jobs: [Job] = []
    /// When a user had the last turn.
    private var turns: [UInt32: UInt64] = [:]
    private var lastTurn: UInt64 = 0
    /// Calls of a connection behind its job.
    private var waiting: [ConnectionName: [Held]] = [:]
    /// Those that were given back to the bus and have not come again yet.
    private var returning: [ConnectionName: [Held]] = [:]

    init(loop: EventLoop, bus: Bus, now: @escaping () -> Microseconds) throws(BusFailure) {
        self.bus = bus
        self.now = now
        timer = try loop.timer { [weak self] in self?.work() }
    }

    /// Begins a job of a connection that has none.
    ///
    /// - Parameter step: called again and again until it answers true, unless the connection leaves before.
    func begin(_ connection: Connection, _ step: @escaping () -> Bool) {
        jobs.append(Job(connection.name, connection.user, step))
        timer?.arm(at: now())
    }

    /// Whether a call has to wait; it comes again then.
    func holds(_ message: borrowing Message, of connection: Connection) throws(MethodError) -> Bool {
        if jobs.isEmpty, returning.isEmpty { return false }
        return try holds(Held(message), of: connection)
    }

    private func holds(_ held: Held, of connection: Connection) throws(MethodError) -> Bool {
        let name = connection.name
        let isBack = leavesLine(held, name)
        if !isBack, returning[name] != nil {
            // Those that are on their way back came before it.
            try checkRoom(for: connection)
            giveBack(held, of: name)
            return true
        }
        guard jobs.contains(where: { $0.connection == name }) else { return false }
        if !isBack { try checkRoom(for: connection) }
        waiting[name, default: []].append(held)
        return true
    }

    func departed(_ name: ConnectionName) {
        for job in jobs where job.connection == name { forget(job) }
        waiting[name] = nil
        returning[name] = nil
    }

    private func work() {
        let begin = now()
        repeat {
            guard let index = nextJob() else { return }
            let job = jobs[index]
            lastTurn += 1
            turns[job.user] = lastTurn
            if job.step() { finish(job) }
        } while now() - begin < Self.slice
        if !jobs.isEmpty { timer?.arm(at: now() + Self.rest) }
    }

    /// Users take turns.
    private func nextJob() -> Int? {
        jobs.indices.min { left, right in
            (turns[jobs[left].user] ?? 0, left) < (turns[jobs[right].user] ?? 0, right)
        }
    }

    private func forget(_ job: Job) {
        jobs.removeAll { $0 === job }
        if !jobs.contains(where: { $0.user == job.user }) { turns[job.user] = nil }
    }

    private func finish(_ job: Job) {
        forget(job)
        for held in waiting.removeValue(forKey: job.connection) ?? [] { giveBack(held, of: job.connection) }
    }

    private func giveBack(_ held: Held, of name: ConnectionName) {
        do {
            try bus.dispatchAgain(held.message)
            returning[name, default: []].append(held)
        } catch {
            held.message.refuse(.failed("\(error)"))
        }
    }

    private func leavesLine(_ held: Held, _ name: ConnectionName) -> Bool {
        guard let line = returning[name],
            let index = line.firstIndex(where: { $0.message.isSame(as: held.message) })
        else { return false }
        returning[name]?.remove(at: index)
        if line.count == 1 { returning[name] = nil }
        return true
    }

    private func checkRoom(for connection: Connection) throws(MethodError) {
        let name = connection.name
        let held = (waiting[name]?.count ?? 0) + (returning[name]?.count ?? 0)
        guard held < Self.mostHeld else {
            throw MethodError(
                .limitsExceeded, "More than \(Self.mostHeld) calls of \(name) wait for one before them")
        }
    }
}
