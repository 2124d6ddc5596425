import AppStateBus
import AppStateContract
import LifeCycle

/// Calls that take longer than one event may. They are carried out in slices, with the loop's other events in between.
/// Further calls of the same connection wait meanwhile, so that its calls are carried out in order.
final class LongCalls {
    private final class Job {
        let connection: ConnectionName
        let user: UInt32
        /// Whether later calls of the connection wait for it.
        let holdsCalls: Bool
        /// Does a little of the work; returns whether the job is done.
        let step: () -> Bool

        init(
            _ connection: ConnectionName, _ user: UInt32, holdsCalls: Bool, _ step: @escaping () -> Bool
        ) {
            self.connection = connection
            self.user = user
            self.holdsCalls = holdsCalls
            self.step = step
        }
    }

    /// The waiting calls of each user.
    private final class Tally {
        private(set) var users: [UInt32: (calls: Int, bytes: Int)] = [:]

        func add(_ calls: Int, _ bytes: Int, of user: UInt32) {
            let before = users[user] ?? (0, 0)
            users[user] = before.calls + calls == 0 ? nil : (before.calls + calls, before.bytes + bytes)
        }
    }

    private final class Held {
        let message: Message
        /// Counts up in the order in which the calls came.
        let number: UInt64
        let user: UInt32
        /// The size of its arguments, in bytes.
        let size: Int
        /// The call is counted for as long as this object exists.
        private let tally: Tally

        init(_ message: borrowing Message, _ number: UInt64, _ size: Int, _ user: UInt32, _ tally: Tally) {
            self.message = message.retained()
            self.number = number
            self.size = size
            self.user = user
            self.tally = tally
            tally.add(1, size, of: user)
        }

        deinit { tally.add(-1, -size, of: user) }
    }

    /// How long the steps of a turn may occupy the loop.
    private static let slice: Microseconds = 300
    /// The most calls of one user that may wait.
    private static let mostHeld = 128
    /// This many calls of each connection may wait in any case, because one program must not block its user's
    /// other programs.
    private static let ownPlaces = 4
    /// The most bytes of arguments in the waiting calls of one user: two sets of windows of the largest size.
    private static let mostBytes = 2 << 20
    /// The pause between two checks whether calls can be given back.
    private static let pause: Microseconds = 500

    private let bus: Bus
    private let now: () -> Microseconds
    private var timer: Timer?
    /// In order of arrival; one for each connection.
    private var jobs: [Job] = []
    /// The number of each user's last turn.
    private var turns: [UInt32: UInt64] = [:]
    private var lastTurn: UInt64 = 0
    /// Calls that wait, behind their connection's job or for their user's share.
    private var waiting: [ConnectionName: [Held]] = [:]
    /// Calls that were given back to the bus and have not come again yet.
    private var returning: [ConnectionName: [Held]] = [:]
    private var lastHeld: UInt64 = 0
    private let tally = Tally()
    private let share: WorkShare
    /// The user for whom work is being done.
    private var caller: UInt32?
    /// Gives back the calls of users who had used more than their share.
    private var shareTimer: Timer?

    init(
        loop: EventLoop, bus: Bus, now: @escaping () -> Microseconds, background: Background
    ) throws(BusFailure) {
        self.bus = bus
        share = background.share
        self.now = now
        timer = try loop.timer { [weak self] in
            guard let self else { return }
            background.run(self) { [weak self] in self?.work() }
        }
        shareTimer = try loop.timer { [weak self] in self?.giveBackNext() }
        loop.dispatched = { [unowned self] span in
            guard let user = caller else { return }
            caller = nil
            share.spend(span, of: user, at: self.now())
        }
    }

    /// Begins a job for a connection that has no other job that holds its calls.
    ///
    /// - Parameter step: called repeatedly until it returns true, unless the connection leaves first.
    func begin(_ connection: Connection, holdsCalls: Bool = true, _ step: @escaping () -> Bool) {
        jobs.append(Job(connection.name, connection.user, holdsCalls: holdsCalls, step))
        timer?.arm(at: now())
    }

    /// Charges everything from here until the loop's next event to this user.
    func charge(_ user: UInt32) { caller = user }

    /// Whether a call must wait. If so, it comes again later.
    ///
    /// - Parameter size: of its arguments, in bytes.
    func holds(
        _ message: borrowing Message, of size: Int, from connection: Connection
    ) throws(MethodError) -> Bool {
        charge(connection.user)
        if jobs.isEmpty, returning.isEmpty, waiting.isEmpty, !isOverdrawn(connection.user) { return false }
        if let held = takeBack(message, connection.name) {
            guard isBusy(connection.name) || isOverdrawn(connection.user) || isPreceded(held, connection.name)
            else { return false }
            hold(held, of: connection.name)
            return true
        }
        guard
            waiting[connection.name] != nil || returning[connection.name] != nil
                || isBusy(connection.name) || isOverdrawn(connection.user)
        else { return false }
        try checkRoom(for: size, from: connection)
        lastHeld += 1
        let held = Held(message, lastHeld, size, connection.user, tally)
        if waiting[connection.name] == nil, returning[connection.name] != nil {
            // The calls that are on their way back came before this one.
            giveBack(held, of: connection.name)
        } else {
            hold(held, of: connection.name)
        }
        return true
    }

    /// Whether an earlier call of the connection is still outstanding. Calls come back in the order in which they were
    /// given back, and they may have been given back at different times.
    private func isPreceded(_ held: Held, _ name: ConnectionName) -> Bool {
        [waiting[name], returning[name]].contains { $0?.contains { $0.number < held.number } == true }
    }

    private func hold(_ held: Held, of name: ConnectionName) {
        let line = waiting[name] ?? []
        let place = line.lastIndex { $0.number < held.number }.map { $0 + 1 } ?? 0
        waiting[name, default: []].insert(held, at: place)
        armShare()
    }

    private func isBusy(_ name: ConnectionName) -> Bool {
        jobs.contains { $0.connection == name && $0.holdsCalls }
    }

    private func isOverdrawn(_ user: UInt32) -> Bool { share.due(of: user) > now() }

    /// Gives back one call of each connection that has no job and whose user has a share of the time left.
    /// The cost of that call is known before the next one follows.
    private func giveBackNext() {
        let now = now()
        let idle = waiting.keys.filter { !isBusy($0) }
        for name in idle where returning[name] == nil {
            guard let held = waiting[name]?.first, share.due(of: held.user) <= now else { continue }
            waiting[name]?.removeFirst()
            if waiting[name]?.isEmpty == true { waiting[name] = nil }
            giveBack(held, of: name)
        }
        armShare()
    }

    private func armShare() {
        let idle = waiting.filter { !isBusy($0.key) }
        guard let due = idle.values.lazy.compactMap(\.first).map({ [self] in share.due(of: $0.user) }).min()
        else { return }
        // Calls on their way back come first.
        shareTimer?.arm(at: max(due, now() + Self.pause))
    }

    func departed(_ name: ConnectionName) {
        for job in jobs where job.connection == name { forget(job) }
        waiting[name] = nil
        returning[name] = nil
    }

    private func work() {
        let begin = now()
        repeat {
            guard let index = nextJob() else { break }
            let job = jobs[index]
            lastTurn += 1
            turns[job.user] = lastTurn
            let begin = now()
            let isDone = job.step()
            share.spend(now() - begin, of: job.user, at: now())
            if isDone { finish(job) }
        } while now() - begin < Self.slice
        if let due = jobs.lazy.map({ [self] in share.due(of: $0.user) }).min() {
            timer?.arm(at: max(due, now()))
        }
    }

    /// Users take turns.
    private func nextJob() -> Int? {
        let now = now()
        return jobs.indices.filter { share.due(of: jobs[$0].user) <= now }.min { left, right in
            (turns[jobs[left].user] ?? 0, left) < (turns[jobs[right].user] ?? 0, right)
        }
    }

    private func forget(_ job: Job) {
        jobs.removeAll { $0 === job }
        if !jobs.contains(where: { $0.user == job.user }) { turns[job.user] = nil }
    }

    private func finish(_ job: Job) {
        forget(job)
        guard job.holdsCalls else { return }
        for held in waiting.removeValue(forKey: job.connection) ?? [] { giveBack(held, of: job.connection) }
    }

    private func giveBack(_ held: Held, of name: ConnectionName) {
        do {
            try bus.dispatchAgain(held.message)
            returning[name, default: []].append(held)
        } catch {
            bus.refuse(held.message, .failed("\(error)"))
        }
    }

    /// nil: the call was not given back.
    private func takeBack(_ message: borrowing Message, _ name: ConnectionName) -> Held? {
        guard let line = returning[name] else { return nil }
        var index = line.startIndex
        while index < line.endIndex, !line[index].message.isSame(as: message) { index += 1 }
        guard index < line.endIndex else { return nil }
        returning[name] = line.count == 1 ? nil : Array(line[..<index] + line[(index + 1)...])
        return line[index]
    }

    private func checkRoom(for size: Int, from connection: Connection) throws(MethodError) {
        let user = connection.user
        let held = tally.users[user] ?? (0, 0)
        let own = (waiting[connection.name]?.count ?? 0) + (returning[connection.name]?.count ?? 0)
        guard held.calls < Self.mostHeld || own < Self.ownPlaces else {
            throw MethodError(
                .limitsExceeded, "More than \(Self.mostHeld) calls of user \(user) wait for earlier calls"
            )
        }
        guard held.bytes + size <= Self.mostBytes else {
            throw MethodError(
                .limitsExceeded,
                "Calls of user \(user) that wait for earlier calls have more than \(Self.mostBytes) bytes"
            )
        }
    }
}
