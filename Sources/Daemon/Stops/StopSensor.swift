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
/// All hints that one wake-up finds cause one check of each application. If the kernel has dropped hints, all registered
/// processes are checked.
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
    private let retry: Retry<ApplicationNumber>
    private var watched: [ApplicationNumber: ProcessIdentity] = [:]
    private var numbers: [Int32: ApplicationNumber] = [:]
    /// The signals that were reported as demands, and are still pending as far as is known. A process may block one for
    /// as long as it lives, and must not be continued again and again because of it.
    private var demands: [ApplicationNumber: Int32] = [:]
    private var pollTimer: Timer?
    private var pause = StopSensor.shortestPoll

    /// The least pause between two checks of all processes for which nothing but time is a reason.
    static let routine: Microseconds = 60_000_000

    private let own = getpid()
    private var lastRescan: Microseconds
    /// How often all processes were checked, and how often hints were lost; for tests.
    private(set) var counts = (rescans: 0, losses: 0)

    /// How stops are found at present.
    var detection: StopDetection { trace == nil ? .polling : .events }

    /// - Parameter standing: the standing of an application's main process; nil: it has ended. Throws if that cannot be
    ///   read now.
    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds, core: Core,
        handed: HandedOver = HandedOver(),
        standing: @escaping (ApplicationNumber) throws(KernelFailure) -> Standing?
    ) throws(BusFailure) {
        self.loop = loop
        self.proc = proc
        self.now = now
        self.core = core
        self.standing = standing
        self.handed = handed
        lastRescan = now()
        retry = try Retry(loop: loop, now: now)
        pollTimer = try loop.timer { [weak self] in self?.rescan() }
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
        closeTrace()
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
    }

    private func closeTrace() {
        for source in sources { source.cancel() }
        (sources, trace) = ([], nil)
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
        retry.cancel(number)
        if watched.isEmpty { pollTimer?.disarm() }
    }

    /// Checks every registered process: after lost records, and if there is no trace.
    func rescan() {
        counts.rescans += 1
        lastRescan = now()
        var hasChanged = false
        for number in Array(watched.keys) {
            if look(at: number) { hasChanged = true }
            lookForDemand(of: number)
        }
        guard trace == nil, !watched.isEmpty else { return }
        pause = hasChanged ? Self.shortestPoll : min(pause * 2, Self.longestPoll)
        pollTimer?.arm(at: now() + pause)
    }

    /// Something else has woken the daemon. Nothing reports that a process was moved to another cgroup, so all
    /// registered processes are checked now and then; nothing wakes the daemon for that.
    func noteActivity() {
        guard trace != nil, !watched.isEmpty else { return }
        let now = now()
        if now >= lastRescan + Self.routine { pollTimer?.arm(at: now) }
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
            application.stop.enforcement == .none, !retry.contains(number)
        {
            waitForStop(number, SIGSTOP, by: "")
        }
        return news != nil
    }

    /// Checks it as soon as its standing can be read.
    private func lookAgain(at number: ApplicationNumber) {
        guard !retry.contains(number) else { return }
        retry.schedule(number) { [weak self] in
            guard let self, watched[number] != nil else { return true }
            do throws(KernelFailure) {
                _ = try standing(number)
            } catch {
                return false
            }
            look(at: number)
            return true
        }
    }

    // MARK: Hints

    /// Reads the kernel's records, and checks each application that they are about once.
    private func drain() {
        guard let trace else { return }
        var burst = Burst()
        var isWhole = true
        for descriptor in trace.descriptors
        where trace.drain(descriptor, { collect($0, &burst) }) == .lost {
            isWhole = false
        }
        for (number, hint) in burst.demands { reportDemand(for: number, hint.signal, by: hint.sender) }
        for (number, hint) in burst.stops { take(number, hint) }
        if !isWhole {
            counts.losses += 1
            rescan()
        }
    }

    /// The hints of one wake-up.
    private struct Burst {
        var stops: [ApplicationNumber: StopTrace.Hint] = [:]
        var demands: [ApplicationNumber: StopTrace.Hint] = [:]
        /// The applications to which threads belong that do not lead their process.
        var threads: [Int32: ApplicationNumber?] = [:]
    }

    private func collect(_ hint: StopTrace.Hint, _ burst: inout Burst) {
        // Our own signals are confirmed by the code that sends them.
        guard hint.sender != own, let number = application(ofThread: hint.target, &burst) else { return }
        if StopTrace.endings.contains(hint.signal) {
            burst.demands[number] = hint
        } else if hint.signal == SIGCONT || hint.signal == SIGSTOP || burst.stops[number]?.signal != SIGSTOP {
            // An earlier SIGSTOP outlasts another stop signal, because only SIGSTOP cannot be ignored.
            burst.stops[number] = hint
        }
    }

    private func application(ofThread thread: Int32, _ burst: inout Burst) -> ApplicationNumber? {
        if let number = numbers[thread] { return number }
        // A thread that leads its process is not a thread of a registered process.
        if numbers.isEmpty || StopTrace.leadsProcess(thread) { return nil }
        if let known = burst.threads[thread] { return known }
        let found = (try? proc.status(thread)).flatMap { numbers[$0.threadGroup] }
        burst.threads[thread] = .some(found)
        return found
    }

    private func take(_ number: ApplicationNumber, _ hint: StopTrace.Hint) {
        if hint.signal == SIGCONT {
            retry.cancel(number)
            look(at: number)
            return
        }
        // This hint may have overtaken the hint about a SIGCONT, and the process may ignore this signal. A look knows
        // no sender, so it must not find the stop first.
        let runsAgain =
            hint.signal != SIGSTOP && core.application(number)?.isStopped == true && look(at: number)
        if runsAgain || !confirmStopped(number, hint.signal, by: "pid \(hint.sender)") {
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

    private func waitForStop(_ number: ApplicationNumber, _ signal: Int32, by holder: String) {
        let patience = signal == SIGSTOP ? Self.longPatience : Self.shortPatience
        retry.schedule(number, for: patience) { [weak self] in
            self?.confirmStopped(number, signal, by: holder) ?? true
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
