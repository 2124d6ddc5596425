import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Checks for objections to a suspension that was not requested, and reports them (§ 2). It decides nothing.
final class ObjectionSensor {
    private let proc: Proc
    private let worker: Worker
    private let core: Core
    private let table: ApplicationTable
    private let standings: Standings
    private let handed: HandedOver
    private let loop: EventLoop
    private let now: () -> Microseconds
    private let inhibitors: Inhibitors
    private let locks: LockSensor
    /// Policy's check that is under way, one for each application: the result of an earlier one is discarded.
    private var awaited: [ApplicationNumber: UInt64] = [:]
    private var lastCheck: UInt64 = 0
    /// The time until applications that transfer something are checked again.
    private var pauses: [ApplicationNumber: Timer] = [:]
    /// The time over which the rate is measured.
    private static let measure: Microseconds = 1_000_000

    init(
        loop: EventLoop, proc: Proc, worker: Worker, now: @escaping () -> Microseconds, core: Core,
        table: ApplicationTable, standings: Standings, handed: HandedOver, inhibitors: Inhibitors
    ) throws {
        self.loop = loop
        self.worker = worker
        self.now = now
        self.inhibitors = inhibitors
        self.proc = proc
        self.core = core
        self.table = table
        self.standings = standings
        self.handed = handed
        locks = try LockSensor(loop: loop, proc: proc, worker: worker, now: now, handed: handed) {
            core.report(.objected($0, $1))
        }
    }

    /// The kernel's events do not cover some CPU.
    func renewEvents() { locks.renew() }

    // MARK: Policy's check

    /// Begins a check.
    ///
    /// - Returns: a closure that says whether the result is still awaited. After that call it no longer is.
    private func begin(_ number: ApplicationNumber) -> () -> Bool {
        lastCheck += 1
        let check = lastCheck
        awaited[number] = check
        pauses[number] = nil
        return { [weak self] in
            guard let self, awaited[number] == check else { return false }
            awaited[number] = nil
            return table[number] != nil
        }
    }

    /// Checks, and reports `checked`. From then on the file locks that a stopped application holds are watched.
    ///
    /// - Parameter stands: all of its processes were stopped. No kind of work is looked for then, because no process
    ///   works.
    func check(_ application: Registered, stands: Bool) {
        let number = application.number
        guard stands else { return measure(application, since: nil) }
        let isAwaited = begin(number)
        run(application, Check.Work()) { [weak self] found in
            guard let self, isAwaited() else { return }
            if let why = found.reasons.first { return core.report(.checked(number, .objection(why))) }
            let stillStands = standings.stands(number) != false
            if stillStands { locks.watch(number, found.pids) }
            core.report(.checked(number, .clear(stands: stillStands)))
        }
    }

    /// Checks before a stop. If the application may be at work, its work is measured until the next check.
    private func measure(_ application: Registered, since earlier: WorkSample?) {
        let number = application.number
        let isAwaited = begin(number)
        look(at: application, isMeasured: true, since: earlier) { [weak self] found in
            guard let self, isAwaited() else { return }
            if let why = found.reasons.first { return core.report(.checked(number, .objection(why))) }
            if !found.sample.isEmpty, pause(application, found.sample) { return }
            core.report(.checked(number, .clear(stands: true)))
        }
    }

    /// Checks again a moment later. Returns false if there is no timer.
    private func pause(_ application: Registered, _ sample: WorkSample) -> Bool {
        let number = application.number
        let isAwaited = begin(number)
        let timer = try? loop.timer { [weak self] in
            if isAwaited() { self?.measure(application, since: sample) }
        }
        guard let timer else { return false }
        timer.arm(at: now() + Self.measure)
        pauses[number] = timer
        return true
    }

    /// The application is released or no longer registered, so no check is needed.
    func forget(_ number: ApplicationNumber) {
        awaited[number] = nil
        pauses[number] = nil
        locks.unwatch(number)
    }

    // MARK: Questions

    /// What a check finds that measures nothing. Policy's own check goes on.
    func look(at application: Registered, _ answer: @escaping (_ reasons: [String]) -> Void) {
        look(at: application, isMeasured: false, since: nil) { answer($0.reasons) }
    }

    /// Whether something waits to be read by a stopped application; true also if that cannot be determined. A later
    /// check of the application, or the end of its stop, leaves this without an answer.
    func lookForUnread(_ application: Registered, _ answer: @escaping (Bool) -> Void) {
        let isAwaited = begin(application.number)
        let check = check(of: application)
        worker.run {
            check.hasUnread()
        } then: {
            if isAwaited() { answer($0) }
        }
    }

    private func look(
        at application: Registered, isMeasured: Bool, since earlier: WorkSample?,
        _ answer: @escaping (Check.Findings) -> Void
    ) {
        inhibitors.read { [weak self] list in
            guard let self else { return }
            var work = Check.Work(inhibitors: list, isMeasured: isMeasured, earlier: earlier)
            specify(&work, of: application.number)
            run(application, work, answer)
        }
    }

    /// Determines which kinds of work count, in the current state.
    private func specify(_ work: inout Check.Work, of number: ApplicationNumber) {
        work.networkRate = core.machine.settings.networkRate
        work.diskRate = core.machine.settings.diskRate
        // An application that is stopped does not work: bytes that the kernel accepts for it are not its own work.
        guard let known = core.application(number), !known.isStopped || known.isBeingDrained else { return }
        work.kinds = Set(ObjectionReason.allCases.filter(known.counts))
        work.isAnswering = known.isAnswering(at: now())
    }

    private func run(
        _ application: Registered, _ work: Check.Work, _ answer: @escaping (Check.Findings) -> Void
    ) {
        let check = check(of: application)
        worker.run({ check.findings(work) }, then: answer)
    }

    private func check(of application: Registered) -> Check {
        Check(
            proc: proc, main: application.process, owner: application.user,
            cgroup: table.ownCgroup(of: application), foreign: table.foreign, handed: handed)
    }
}
