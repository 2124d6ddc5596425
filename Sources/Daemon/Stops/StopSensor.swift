import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Finds stops and continuations by others, by signal or by freezing. It decides when an application is
/// checked, and reports the result.
///
/// With the kernel's help there is a hint for every job-control signal that the kernel generates (StopTrace), and for
/// each freeze of a cgroup. A check confirms each hint, because a stop is complete a little after its signal
/// is generated. Without the trace, the registered processes are checked at intervals of 50 ms to 1 s.
///
/// A process that is suspended is needed when another process asks it to exit, because it cannot exit before it runs.
///
/// Any user can send any number of signals and so keep a loop of this kind busy. Therefore a burst of hints
/// is read from the kernel at intervals (`wakeUps`), several hints about one application cause one check
/// (HintQueue), threads of unknown processes are looked up within limits, and all checks are made in slices,
/// with the loop's other events in between. Stops whose hints are lost in a flood are found by a walk over
/// all registered processes, also in slices, which is repeated less and less often while the flood lasts.
final class StopSensor {
    /// The pause between two looks without a trace, shortly after something changed.
    static let shortestPoll: Microseconds = 50_000
    static let longestPoll: Microseconds = 1_000_000
    /// How long to wait for a stop after SIGSTOP: only uninterruptible sleep can delay it.
    private static let longPatience: Microseconds = 60_000_000
    /// How long to wait after a signal that the process may catch or ignore.
    private static let shortPatience: Microseconds = 1_000_000

    private let loop: EventLoop
    private let proc: Proc
    private let now: () -> Microseconds
    private let core: Core
    private let standing: (ApplicationNumber) throws(KernelFailure) -> Standing?
    private let handed: HandedOver
    private var trace: StopTrace?
    private var sources: [Source] = []
    private let retries: Retries<ApplicationNumber>
    private var watched: [ApplicationNumber: ProcessIdentity] = [:]
    private var numbers: [Int32: ApplicationNumber] = [:]
    /// The signals that were reported as demands, and are still pending as far as is known. A process may block one for
    /// as long as it lives, and must not be continued again and again because of it.
    private var demands: [ApplicationNumber: Int32] = [:]
    private var pollTimer: Timer?
    private var pause = StopSensor.shortestPoll
    /// Called when `detection` has changed.
    var detectionChanged: () -> Void = {}

    /// How long checks may occupy the loop, and how long other events then have it to themselves.
    private static let slice: Microseconds = 300
    private static let rest: Microseconds = 700
    /// A burst wakes the daemon this many times, and then once in each interval.
    private static let wakeUps = 512
    private static let wakeUpInterval: Microseconds = 5_000
    /// The most threads of unknown processes that are looked up at one wake-up: in all, and for one sender.
    private static let mostLookups = 32
    private static let mostLookupsOfSender = 8
    /// The pause between two walks while hints are lost: before the second one, and at most.
    private static let shortestLull: Microseconds = 50_000
    private static let longestLull: Microseconds = 500_000
    /// The least pause between two walks for which nothing but time is a reason.
    static let routine: Microseconds = 60_000_000
    /// Walks take at most one part in this many of the time.
    private static let walkShare: Microseconds = 10

    private var wakeUpPace = Pace(
        credit: StopSensor.wakeUpInterval * Microseconds(StopSensor.wakeUps - 1))
    private var drainTimer: Timer?
    /// The rings that the last slice of reading has left.
    private var unreadRings = 0
    private let own = getpid()
    private var workTimer: Timer?
    private var restUntil: Microseconds = 0
    private var queue = HintQueue()
    private var walk = Walk()
    /// Counters, for tests.
    private(set) var counts = Counts()

    struct Counts: Equatable {
        var drains = 0
        /// The rings of the CPUs that were read.
        var rings = 0
        var looks = 0
        var lookups = 0
        var slices = 0
        var walks = 0
        /// How often hints were lost.
        var losses = 0
    }

    /// A walk over all registered processes.
    private struct Walk {
        /// The applications that must still be checked.
        var left: [ApplicationNumber] = []
        var isRunning = false
        /// Another walk must follow, or the first one must begin.
        var isWanted = false
        var hasChanged = false
        /// How long its checks have taken.
        var work: Microseconds = 0
        var end: Microseconds = 0
        /// The pause between its end and the next walk, because of lost hints.
        var lull: Microseconds = 0
        var lost: Microseconds = 0
    }

    /// How stops are found at present.
    var detection: StopDetection { trace == nil ? .polling : .events }

    /// - Parameter standing: the standing of an application's main process; nil: it has ended. Throws if that cannot be
    ///   read now.
    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds, share: WorkShare, core: Core,
        handed: HandedOver = HandedOver(),
        standing: @escaping (ApplicationNumber) throws(KernelFailure) -> Standing?
    ) throws(BusFailure) {
        self.loop = loop
        self.proc = proc
        self.now = now
        self.core = core
        self.standing = standing
        self.handed = handed
        retries = try Retries(loop: loop, now: now, share: share)
        pollTimer = try loop.timer { [weak self] in self?.rescan() }
        drainTimer = try loop.timer { [weak self] in self?.drain() }
        workTimer = try loop.timer { [weak self] in self?.work() }
        walk.end = now()
    }

    /// Opens the trace. If there is none, throws the reason, and stops are found by polling.
    func openTrace() throws(KernelFailure) {
        let trace = try StopTrace.open(proc: proc, handed: handed)
        do {
            sources = try trace.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.drain() }
            }
        } catch {
            throw KernelFailure(operation: "watch", subject: "signal:signal_generate", errno: EIO)
        }
        self.trace = trace
        pollTimer?.disarm()
    }

    /// Whether the trace no longer covers some CPU, for example after the machine has slept.
    var isDeaf: Bool { trace.map { !$0.isWhole() } ?? false }

    /// Opens the trace again, or polls from now on.
    func renewTrace() throws(KernelFailure) {
        let before = detection
        closeTrace()
        defer { if detection != before { detectionChanged() } }
        do throws(KernelFailure) {
            try openTrace()
        } catch {
            if !watched.isEmpty { pollSoon() }
            throw error
        }
    }

    /// Polls from now on.
    func giveUpTrace() {
        guard trace != nil else { return }
        closeTrace()
        if !watched.isEmpty { pollSoon() }
        detectionChanged()
    }

    private func closeTrace() {
        for source in sources { source.cancel() }
        (sources, trace, unreadRings) = ([], nil, 0)
        drainTimer?.disarm()
    }

    func watch(_ number: ApplicationNumber, _ process: ProcessIdentity) {
        watched[number] = process
        numbers[process.pid] = number
        if trace == nil { pollSoon() }
    }

    func unwatch(_ number: ApplicationNumber) {
        guard let process = watched.removeValue(forKey: number) else { return }
        demands[number] = nil
        if numbers[process.pid] == number { numbers[process.pid] = nil }
        retries.cancel(number)
        queue.forget(number)
        if watched.isEmpty { pollTimer?.disarm() }
    }

    /// Checks every registered process, in slices: after lost records, and if there is no trace.
    func rescan() {
        walk.isWanted = true
        walk.lull = 0
        work()
    }

    /// Something else has woken the daemon. Nothing reports that a process was moved to another cgroup, so all
    /// registered processes are checked now and then; nothing wakes the daemon for that.
    func noteActivity() {
        guard !watched.isEmpty, !walk.isRunning, !walk.isWanted else { return }
        let now = now()
        guard now >= walk.end + Self.routine else { return }
        walk.isWanted = true
        walk.lull = 0
        armWork(at: now)
    }

    /// Checks one registered process; returns whether the result differs from what was known.
    @discardableResult
    func look(at number: ApplicationNumber) -> Bool {
        guard watched[number] != nil, let application = core.application(number) else { return false }
        let standing: Standing
        do throws(KernelFailure) {
            guard let present = try self.standing(number) else { return false }
            standing = present
        } catch {
            lookAgain(at: number)
            return false
        }
        let news = application.news(standing)
        if let news { core.report(news) }
        // Its hint is lost, and its effect is still to come.
        if trace != nil, standing.signal == .pending, standing.freeze == nil,
            application.stop.enforcement == .none, !retries.contains(number)
        {
            waitForStop(number, SIGSTOP, by: "")
        }
        return news != nil
    }

    /// Checks it as soon as its standing can be read.
    private func lookAgain(at number: ApplicationNumber) {
        guard !retries.contains(number), let user = core.application(number)?.user else { return }
        retries.work(on: number, of: user) { [weak self] in
            guard let self, watched[number] != nil else { return .settled }
            do throws(KernelFailure) {
                _ = try standing(number)
            } catch {
                return .later
            }
            look(at: number)
            return .settled
        }
    }

    // MARK: Hints

    /// A cgroup of an application was frozen or thawed.
    func noteFreeze(of number: ApplicationNumber) {
        guard watched[number] != nil, let user = core.application(number)?.user else { return }
        queue.add(.freeze, for: number, of: user, at: now())
        work()
    }

    /// Reads the kernel's records, for the length of a slice. If they come too often, the next ones are read after a
    /// while.
    private func drain() {
        guard let trace else { return }
        counts.drains += 1
        var isWhole = true
        let descriptors = trace.descriptors
        var now = now()
        var burst = Burst(end: now + Self.slice)
        if unreadRings == 0 { unreadRings = descriptors.count }
        while unreadRings > 0, now < burst.end {
            let drained = trace.drain(descriptors[descriptors.count - unreadRings]) { collect($0, &burst) }
            if drained == .lost { isWhole = false }
            counts.rings += 1
            unreadRings -= 1
            now = self.now()
        }
        for (number, hint) in burst.hints {
            if StopTrace.endings.contains(hint.signal) {
                reportDemand(for: number, hint.signal, by: hint.sender)
                continue
            }
            guard let user = core.application(number)?.user else { continue }
            queue.add(.signal(hint), for: number, of: user, at: now)
        }
        if !isWhole || burst.isIncomplete { haveLost(at: now) }
        if burst.isEmpty && isWhole && unreadRings == 0 {
            for source in sources { source.turn(on: true) }
        } else {
            wakeUpPace.spend(Self.wakeUpInterval, at: now)
            // A ring that was not read is not reported as readable again before its next record.
            let due = unreadRings > 0 ? max(wakeUpPace.due, now + Self.rest) : wakeUpPace.due
            for source in sources { source.turn(on: due <= now) }
            if due > now { drainTimer?.arm(at: due) }
        }
        work()
    }

    /// The result of one read of the records.
    private struct Burst {
        var isEmpty = true
        var hints: [(number: ApplicationNumber, hint: StopTrace.Hint)] = []
        /// The targets so far, and the applications that they belong to.
        var targets: [Int32: ApplicationNumber?] = [:]
        var lookups: [Int32: Int] = [:]
        var lookupCount = 0
        /// No thread is looked up after this time: a user can make each look long.
        let end: Microseconds
        /// There were more threads than may be looked up.
        var isIncomplete = false
    }

    private func collect(_ hint: StopTrace.Hint, _ burst: inout Burst) {
        // Our own signals are confirmed by the code that sends them.
        guard hint.sender != own else { return }
        burst.isEmpty = false
        guard let number = application(ofThread: hint.target, sender: hint.sender, &burst) else { return }
        burst.hints.append((number, hint))
    }

    private func application(
        ofThread thread: Int32, sender: Int32, _ burst: inout Burst
    ) -> ApplicationNumber? {
        if let number = numbers[thread] { return number }
        if numbers.isEmpty { return nil }
        if let known = burst.targets[thread] { return known }
        var found: ApplicationNumber?
        // A thread that leads its process is not a thread of a registered process.
        if !StopTrace.leadsProcess(thread) {
            guard burst.lookupCount < Self.mostLookups, now() < burst.end,
                burst.lookups[sender, default: 0] < Self.mostLookupsOfSender
            else {
                burst.isIncomplete = true
                return nil
            }
            burst.lookupCount += 1
            burst.lookups[sender, default: 0] += 1
            counts.lookups += 1
            found = (try? proc.status(thread)).flatMap { numbers[$0.threadGroup] }
        }
        burst.targets[thread] = .some(found)
        return found
    }

    private func haveLost(at now: Microseconds) {
        // A flood that is over is forgotten.
        if now > walk.lost + 2 * Self.longestLull { walk.lull = 0 }
        walk.lost = now
        walk.isWanted = true
        counts.losses += 1
    }

    private func take(_ number: ApplicationNumber, _ hint: HintQueue.Hint) {
        counts.looks += 1
        guard case .signal(let hint) = hint else {
            look(at: number)
            return
        }
        if hint.signal == SIGCONT {
            retries.cancel(number)
            look(at: number)
            return
        }
        // This hint may have overtaken the hint about a SIGCONT, and the process may ignore this signal. A look knows
        // no sender, so it must not find the stop first.
        if hint.signal != SIGSTOP, core.application(number)?.isStopped == true { look(at: number) }
        if !confirmStopped(number, hint.signal, by: "pid \(hint.sender)") {
            waitForStop(number, hint.signal, by: "pid \(hint.sender)")
        }
    }

    /// Reported once, because after that no hold is left that a demand could lift.
    private func reportDemand(for number: ApplicationNumber, _ signal: Int32, by sender: Int32?) {
        guard core.application(number)?.holds.isEmpty == false else { return }
        demands[number] = signal
        let name = Self.names[signal] ?? "signal \(signal)"
        core.report(.needed(number, name + (sender.map { " by pid \($0)" } ?? ""), isToEnd: true))
    }

    private static let names = [
        SIGTERM: "SIGTERM", SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT",
    ]

    /// Checks for a signal that asks the application to exit and for which no hint came.
    private func lookForDemand(of number: ApplicationNumber) {
        guard let application = core.application(number), let process = watched[number] else { return }
        let isWaiting = !application.holds.isEmpty && application.isStopped
        guard isWaiting || demands[number] != nil else { return }
        let signal = (try? proc.pendingSignal(of: StopTrace.endings, process.pid)) ?? nil
        guard isWaiting else {
            // It has taken the signal, and may be sent the same one again.
            if signal == nil { demands[number] = nil }
            return
        }
        guard signal != demands[number] else { return }
        demands[number] = nil
        if let signal { reportDemand(for: number, signal, by: nil) }
    }

    // MARK: Checks, in slices

    /// Makes checks for the length of a slice; the rest follow when other events have had their turns.
    private func work() {
        var now = now()
        guard now >= restUntil else {
            workTimer?.arm(at: restUntil)
            return
        }
        let end = now + Self.slice
        counts.slices += 1
        while now < end, let next = queue.next(at: now) {
            let begin = now
            take(next.number, next.hint)
            now = self.now()
            queue.spent(now - begin, on: next.user, at: now)
        }
        if walk.isWanted, !walk.isRunning, now >= nextWalk { beginWalk(at: now) }
        let walkBegin = now
        while now < end, let number = walk.left.popLast() {
            guard let user = core.application(number)?.user else { continue }
            if queue.isOverdrawn(user, at: now) {
                // Other users must not wait for a user whose applications are stopped and continued all the
                // time.
                walk.isWanted = true
                continue
            }
            let begin = now
            counts.looks += 1
            if look(at: number) { walk.hasChanged = true }
            lookForDemand(of: number)
            now = self.now()
            queue.spent(now - begin, on: user, at: now)
        }
        walk.work += now - walkBegin
        if walk.isRunning, walk.left.isEmpty { endWalk(at: now) }
        if now >= end { restUntil = now + Self.rest }
        armWork(at: now)
    }

    private func armWork(at now: Microseconds) {
        var due = queue.nextDue
        if walk.isRunning {
            due = now
        } else if walk.isWanted {
            due = min(due ?? nextWalk, nextWalk)
        }
        if let due { workTimer?.arm(at: max(due, restUntil)) } else { workTimer?.disarm() }
    }

    private var nextWalk: Microseconds {
        walk.lull == 0 ? 0 : walk.end + max(walk.lull, walk.work * Self.walkShare)
    }

    private func beginWalk(at now: Microseconds) {
        counts.walks += 1
        walk.isRunning = true
        walk.isWanted = false
        walk.hasChanged = false
        walk.work = 0
        walk.left = Array(watched.keys)
    }

    private func endWalk(at now: Microseconds) {
        walk.isRunning = false
        walk.end = now
        walk.lull = min(max(walk.lull * 2, Self.shortestLull), Self.longestLull)
        guard trace == nil, !watched.isEmpty else { return }
        pause = walk.hasChanged ? Self.shortestPoll : min(pause * 2, Self.longestPoll)
        pollTimer?.arm(at: now + max(pause, walk.work * Self.walkShare))
    }

    private func waitForStop(_ number: ApplicationNumber, _ signal: Int32, by holder: String) {
        let patience = signal == SIGSTOP ? Self.longPatience : Self.shortPatience
        guard let user = core.application(number)?.user else { return }
        retries.work(on: number, of: user, for: patience) { [weak self] in
            self?.confirmStopped(number, signal, by: holder) ?? true ? .settled : .later
        }
    }

    /// Returns whether there is nothing more to wait for.
    private func confirmStopped(_ number: ApplicationNumber, _ signal: Int32, by holder: String) -> Bool {
        guard watched[number] != nil, let application = core.application(number) else { return true }
        // It is already stopped, or a stop that is found now may be the daemon's own: only SIGSTOP, which nothing can
        // ignore, adds another holder.
        if signal != SIGSTOP, application.isStopped || application.stop.enforcement == .stopping {
            return true
        }
        let standing: Standing
        do throws(KernelFailure) {
            guard let present = try self.standing(number) else { return true }
            standing = present
        } catch {
            return false
        }
        guard
            standing.signal == .stopped || standing.signal == .pending && standing.freeze?.isComplete == true
        else {
            // No later check reports what this one has read.
            if let news = application.news(standing) { core.report(news) }
            return false
        }
        if let news = application.news(standing, sender: holder) { core.report(news) }
        return true
    }

    // MARK: Polling

    private func pollSoon() {
        pause = Self.shortestPoll
        pollTimer?.arm(at: now() + pause)
    }
}
