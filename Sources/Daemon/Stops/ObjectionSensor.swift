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
    private let stopReader: StopReader
    private let handed: HandedOver
    private let loop: EventLoop
    private let now: () -> Microseconds
    private let inhibitors: Inhibitors
    private let locks: LockSensor
    /// Policy's check that is under way, one for each application: the result of an earlier one is discarded.
    private var awaited: [ApplicationNumber: UInt64] = [:]
    private var lastCheck: UInt64 = 0
    /// The time until applications that may be at work are checked again.
    private var pauses: [ApplicationNumber: Timer] = [:]
    /// Where the measurement of their work began: at the beginning of the background, or at the last objection.
    private var samples: [ApplicationNumber: WorkSample] = [:]
    /// The time over which work is measured, at least. A sample that is much older says little about the present.
    private static let span: Microseconds = 5_000_000
    private static let longestSpan: Microseconds = 60_000_000
    /// The same for an application that has just been needed, or that is drained: it was not at work before.
    private static let briefSpan: Microseconds = 1_000_000
    /// The same for one that has just been needed for an answer: it is at rest if it did nothing for so long.
    private static let answerSpan: Microseconds = 200_000

    init(
        loop: EventLoop, proc: Proc, worker: Worker, now: @escaping () -> Microseconds, core: Core,
        table: ApplicationTable, stopReader: StopReader, handed: HandedOver, inhibitors: Inhibitors
    ) throws {
        self.loop = loop
        self.worker = worker
        self.now = now
        self.inhibitors = inhibitors
        self.proc = proc
        self.core = core
        self.table = table
        self.stopReader = stopReader
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
    /// - Parameter isStopped: all of its processes were stopped. No kind of work is checked then, because no process
    ///   works.
    func check(_ application: Registered, isStopped: Bool) {
        let number = application.number
        guard isStopped else {
            let oldest = span(number) == Self.span ? Self.longestSpan : 2 * span(number)
            let begun = samples[number].flatMap { $0.time + oldest > now() ? $0 : nil }
            return measure(application, since: begun)
        }
        let isAwaited = begin(number)
        run(application, Check.Work()) { [weak self] found in
            guard let self, isAwaited() else { return }
            if let why = found.reasons.first { return core.report(.checked(number, .objection(why))) }
            let isStillStopped = stopReader.isStopped(number) != false
            if isStillStopped { locks.watch(number, found.pids) }
            core.report(.checked(number, .clear(isStopped: isStillStopped)))
        }
    }

    /// An application has entered or left the background. In the background, its work is measured from now on.
    func noteState(_ application: Registered) {
        let number = application.number
        samples[number] = nil
        // At the end of a long grace period, it would be too old.
        guard let end = core.application(number)?.graceDeadline, end < now() + Self.longestSpan else {
            return
        }
        let (check, work) = (check(of: application), work(of: number))
        worker.run {
            check.sample(work)
        } then: { [weak self] sample in
            guard let self, sample.mayWork, samples[number] == nil, table[number] != nil else { return }
            if core.application(number)?.graceDeadline != nil { samples[number] = sample }
        }
    }

    /// For how long its work is measured, at least.
    private func span(_ number: ApplicationNumber) -> Microseconds {
        guard let application = core.application(number) else { return Self.span }
        if application.isAnsweringOnly(at: now()) { return Self.answerSpan }
        return application.isAnswering(at: now()) || application.isBeingDrained ? Self.briefSpan : Self.span
    }

    /// Checks before a stop. If the application may be at work, its work is measured until the next check.
    ///
    /// - Parameter earlier: where the measurement began; nil: it begins now.
    private func measure(_ application: Registered, since earlier: WorkSample?) {
        let number = application.number
        let span = span(number)
        let due = earlier.map { $0.time + span }
        if let due, due > now(), pause(application, until: due, since: earlier) { return }
        let isAwaited = begin(number)
        examine(application, isMeasured: true, since: earlier) { [weak self] found in
            guard let self, isAwaited() else { return }
            samples[number] = nil
            if let why = found.reasons.first {
                if span != Self.briefSpan { samples[number] = found.sample }
                core.report(.checked(number, .objection(why)))
            } else if earlier == nil, let sample = found.sample, sample.mayWork {
                measure(application, since: sample)
            } else {
                core.report(.checked(number, .clear(isStopped: true)))
            }
        }
    }

    /// Checks again at this time. Returns false if there is no timer.
    private func pause(
        _ application: Registered, until due: Microseconds, since earlier: WorkSample?
    ) -> Bool {
        let number = application.number
        let isAwaited = begin(number)
        let timer = try? loop.timer { [weak self] in
            if isAwaited() { self?.measure(application, since: earlier) }
        }
        guard let timer else { return false }
        timer.arm(at: due)
        pauses[number] = timer
        return true
    }

    /// The application is released or no longer registered, so no check is needed.
    func forget(_ number: ApplicationNumber) {
        awaited[number] = nil
        pauses[number] = nil
        samples[number] = nil
        locks.unwatch(number)
    }

    // MARK: Questions

    /// What a check finds that measures nothing. Policy's own check goes on.
    func examine(_ application: Registered, _ answer: @escaping (_ reasons: [String]) -> Void) {
        examine(application, isMeasured: false, since: nil) { answer($0.reasons) }
    }

    /// Whether something waits to be read by a stopped application; true also if that cannot be determined. A later
    /// check of the application, or the end of its stop, leaves this without an answer.
    func checkUnread(_ application: Registered, _ answer: @escaping (Bool) -> Void) {
        let isAwaited = begin(application.number)
        let check = check(of: application)
        worker.run {
            (try? check.hasUnread()) ?? true
        } then: {
            if isAwaited() { answer($0) }
        }
    }

    private func examine(
        _ application: Registered, isMeasured: Bool, since earlier: WorkSample?,
        _ answer: @escaping (Check.Findings) -> Void
    ) {
        inhibitors.read { [weak self] list in
            guard let self else { return }
            var work = work(of: application.number)
            (work.inhibitors, work.isMeasured, work.earlier) = (list, isMeasured, earlier)
            run(application, work, answer)
        }
    }

    /// Determines which kinds of work count, in the current state.
    private func work(of number: ApplicationNumber) -> Check.Work {
        let settings = core.machine.settings
        var work = Check.Work(networkRate: settings.networkRate, diskRate: settings.diskRate)
        // An application that is stopped does not work: bytes that the kernel accepts for it are not its own work.
        guard let known = core.application(number), !known.isStopped || known.isBeingDrained else {
            return work
        }
        work.kinds = Set(ObjectionReason.allCases.filter { $0.isWork && known.counts($0) })
        work.isAnswering = known.isAnswering(at: now())
        work.owesAnswer = known.isAnsweringOnly(at: now())
        return work
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
