import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport

/// Clients that do everything to many processes in random order, while witnesses keep their ledgers.
///
/// All have connections of their own and share one loop. Each client has one call under way. Now and then
/// all wait until the witnesses have read what they were sent: a subscriber that lags behind by more than
/// the flow control allows gets a Resync, and its sequence would have a gap.
final class Soak {
    /// A process and its plan: the deeds that are done to it, from first to last.
    private final class Subject {
        let process: ProcessIdentity
        var path = ""
        var plan: [Deed]
        init(_ process: ProcessIdentity, _ plan: [Deed]) {
            self.process = process
            self.plan = plan
        }
        var pid: Int32 { process.pid }
    }

    private final class Actor {
        let bus: Bus
        var call: Slot?
        /// The deed whose answer it waits for.
        var deed = ""
        init(_ bus: Bus) { self.bus = bus }
    }

    let witnesses: [Witness]
    private(set) var failures: [String] = []
    private(set) var deeds = 0
    private let daemon: TestDaemon
    private let loop: EventLoop
    private let actors: [Actor]
    private var dice: Dice
    /// Subjects that have deeds left and wait for no earlier one.
    private var ready: [Subject] = []
    private var busy = 0
    private var sinceBarrier = 0
    private var behind = 0

    /// The number of deeds between two barriers. A deed makes some ten signals; a subscriber may lag by 512.
    private static let stride = 20

    init(_ daemon: TestDaemon, clients: Int = 10, witnesses: Int = 3, dice: Dice) throws {
        self.daemon = daemon
        let loop = try EventLoop()
        self.loop = loop
        self.dice = dice
        self.witnesses = try (0..<witnesses).map { _ in try Witness(daemon.bus, on: loop) }
        actors = try (0..<clients).map { _ in
            let bus = try Bus.open(address: daemon.bus.address)
            try bus.attach(to: loop)
            return Actor(bus)
        }
    }

    /// Registers a new herd, runs its plans and ends it. Half of it ends while the others live on. For those the
    /// test checks, before they end, that the announced states are the real ones.
    func round(of count: Int) throws {
        let herd = try Herd(count)
        let subjects = herd.processes.map { process in
            var plan = Deed.life.shuffled(using: &dice)
            if Bool.random(using: &dice) { plan += [Deed.ends.randomElement(using: &dice) ?? .kill] }
            return Subject(process, [.register] + plan)
        }
        try live(subjects)
        try settle()
        try agree(subjects)
        for subject in subjects where state(of: subject) != nil {
            subject.plan = [Deed.ends.randomElement(using: &dice) ?? .kill]
        }
        try live(subjects.filter { !$0.plan.isEmpty })
        // An unregistered process lives on, and a stopped process has not handled its SIGTERM.
        for process in herd.processes { signal(SIGKILL, to: process) }
        try wait("the last to be removed") { witnesses.allSatisfy(\.ledger.isClosed) }
        if !herd.disperse() { failures.append("a child of an application was left stopped") }
    }

    private func live(_ subjects: [Subject]) throws {
        ready = subjects
        for actor in actors { try proceed(actor) }
        try wait("the deeds to be done") { ready.isEmpty && busy == 0 && behind == 0 }
    }

    /// Starts the next deed of one client, or nothing at a barrier, which starts all of them again.
    private func proceed(_ actor: Actor) throws {
        while behind == 0, sinceBarrier < Self.stride, !ready.isEmpty {
            let index = Int.random(in: ready.indices, using: &dice)
            let subject = ready[index]
            let deed = subject.plan.removeFirst()
            if subject.plan.isEmpty || deed == .register {
                ready.swapAt(index, ready.count - 1)
                ready.removeLast()
            }
            deeds += 1
            sinceBarrier += 1
            if let number = deed.signal {
                signal(number, to: subject.process)
            } else {
                try call(deed, on: subject, by: actor)
                return
            }
        }
        if busy == 0, behind == 0, sinceBarrier >= Self.stride { try hold() }
    }

    private func call(_ deed: Deed, on subject: Subject, by actor: Actor) throws {
        busy += 1
        actor.deed = "\(deed) of \(subject.pid)"
        let message = try deed.call(on: actor.bus, pid: subject.pid, path: subject.path)
        actor.call = try actor.bus.callAsync(message, timeout: 300_000_000) { [unowned self] reply in
            busy -= 1
            actor.deed = ""
            do {
                if let error = reply.error {
                    if !deed.mayFail(with: error) { note("\(deed) of \(subject.pid): \(error)") }
                } else if deed == .register {
                    subject.path = try reply.readObjectPath()
                    ready.append(subject)
                }
                try proceed(actor)
            } catch {
                note("\(deed) of \(subject.pid): \(error)")
            }
        }
    }

    /// Makes all clients wait for the witnesses.
    private func hold() throws {
        behind = witnesses.count
        // This reads the daemon's log, so that it can be shown when something fails.
        if let ending = daemon.process.advance() { throw TestFailure("the daemon ended: \(ending)") }
        for witness in witnesses {
            try witness.whenCaughtUp { [unowned self] in
                behind -= 1
                guard behind == 0 else { return }
                sinceBarrier = 0
                do {
                    for actor in actors { try proceed(actor) }
                } catch {
                    note("\(error)")
                }
            }
        }
    }

    private func settle() throws {
        try hold()
        try wait("the witnesses") { behind == 0 }
    }

    /// Checks, with nothing under way, that the announced states agree with the daemon's and with the processes.
    private func agree(_ subjects: [Subject]) throws {
        let client = try daemon.client()
        let deadline = ContinuousClock.now + .seconds(300)
        while true {
            try settle()
            let disagreements = try disagreements(subjects, client)
            if disagreements.isEmpty { return }
            // The daemon finds stops, and retries them, within a second.
            guard ContinuousClock.now < deadline else {
                failures += disagreements.prefix(5)
                return
            }
            try loop.runOnce(timeout: 100_000)
        }
    }

    private func disagreements(_ subjects: [Subject], _ client: Client) throws -> [String] {
        var found = try client.list().compactMap { row -> String? in
            let fields = row.split(separator: " ").map(String.init)
            for witness in witnesses where witness.ledger.states[fields[0]]?.rawValue != fields.last {
                return "listed: \(row), told: \(witness.ledger.states[fields[0]]?.rawValue ?? "nothing")"
            }
            guard let explanation = try? client.explain(fields[0]) else {
                return "\(row) has ended meanwhile"
            }
            return explanation["state"] == explanation["target"] ? nil : "\(row) in between: \(explanation)"
        }
        for subject in subjects {
            guard let state = state(of: subject), let isStopped = try? isStopped(subject.pid),
                isStopped != (state == .suspended)
            else { continue }
            found.append("\(subject.path) (\(subject.pid)) is \(state.rawValue), stopped: \(isStopped)")
        }
        return found
    }

    private func state(of subject: Subject) -> LifeCycleState? {
        witnesses.first?.ledger.states[subject.path]
    }

    private func wait(_ what: String, until done: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !done() {
            guard ContinuousClock.now < deadline else {
                throw TestFailure(
                    "\(what): not within 300 s; under way: \(actors.map(\.deed).filter { !$0.isEmpty }); \(behind) witnesses behind, "
                        + "\(ready.count) processes with something to do, \(failures)")
            }
            try loop.runOnce(timeout: 100_000)
        }
    }

    private func note(_ what: String) {
        if failures.count < 20 { failures.append(what) }
    }
}
