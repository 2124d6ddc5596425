import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Finds stops and continuations that somebody else made.
///
/// With the kernel's help: a hint for every job-control signal it generates (StopTrace), confirmed by
/// reading the process's stat, since a stop is complete a little after its signal is generated. Without:
/// the stats of the registered processes are read again and again, between 50 ms and 1 s apart.
final class StopSensor {
    /// The pause between two looks where there is no trace, shortly after something changed.
    static let shortestPoll: Microseconds = 50_000
    static let longestPoll: Microseconds = 1_000_000
    /// How long a stop is waited for after SIGSTOP: only uninterruptible sleep can put it off.
    private static let longPatience: Microseconds = 60_000_000
    /// How long after a signal that the process may catch or ignore.
    private static let shortPatience: Microseconds = 1_000_000

    private let loop: EventLoop
    private let proc: Proc
    private let now: () -> Microseconds
    private let application: (ApplicationNumber) -> Application?
    private let report: (Fact) -> Void
    /// Whether the process executes nothing, by whatever means; set when there is somebody who knows.
    /// nil: it is gone.
    var stands: (ApplicationNumber, ProcessIdentity) -> Bool?
    /// Whether a stop waits for a frozen process.
    var hasPendingStop: (ApplicationNumber, ProcessIdentity) -> Bool = { _, _ in false }
    /// Whether somebody else's stop holds a process beneath our freeze; nil: it is not frozen by us.
    var hasStopBeneath: (ApplicationNumber, ProcessIdentity) -> Bool? = { _, _ in nil }
    private var trace: StopTrace?
    private var sources: [Source] = []
    private let retries: Retries<ApplicationNumber>
    private var watched: [ApplicationNumber: ProcessIdentity] = [:]
    private var numbers: [Int32: ApplicationNumber] = [:]
    private var pollTimer: Timer?
    private var pause = StopSensor.shortestPoll

    /// How stops are found just now.
    var detection: StopDetection { trace == nil ? .polling : .events }

    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds,
        application: @escaping (ApplicationNumber) -> Application?, report: @escaping (Fact) -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.proc = proc
        self.now = now
        self.application = application
        self.report = report
        stands = { try? proc.isStopped($1) }
        retries = try Retries(loop: loop, now: now)
        pollTimer = try loop.timer { [weak self] in self?.poll() }
    }

    /// Opens the trace. Where it cannot be had, says why and polls.
    func openTrace() throws(KernelFailure) {
        let trace = try StopTrace.open(proc: proc)
        do {
            sources = try trace.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.drain(descriptor) }
            }
        } catch {
            throw KernelFailure(operation: "watch", subject: "signal:signal_generate", errno: EIO)
        }
        self.trace = trace
    }

    /// Whether the trace has gone deaf on some CPU, as after the machine has slept.
    var isDeaf: Bool { trace.map { !$0.isWhole() } ?? false }

    /// Opens the trace anew, or polls from now on.
    func renewTrace() throws(KernelFailure) {
        for source in sources { source.cancel() }
        (sources, trace) = ([], nil)
        do throws(KernelFailure) {
            try openTrace()
        } catch {
            if !watched.isEmpty { pollSoon() }
            throw error
        }
    }

    func watch(_ number: ApplicationNumber, _ process: ProcessIdentity) {
        watched[number] = process
        numbers[process.pid] = number
        if trace == nil { pollSoon() }
    }

    func unwatch(_ number: ApplicationNumber) {
        guard let process = watched.removeValue(forKey: number) else { return }
        if numbers[process.pid] == number { numbers[process.pid] = nil }
        retries.cancel(number)
        if watched.isEmpty { pollTimer?.disarm() }
    }

    /// Looks at every registered process: after lost records, and where there is no trace.
    @discardableResult
    func rescan() -> Bool {
        var hasChanged = false
        for number in watched.keys where look(at: number) { hasChanged = true }
        return hasChanged
    }

    /// Looks at one registered process; answers whether it was found otherwise than was known.
    @discardableResult
    func look(at number: ApplicationNumber) -> Bool {
        guard let process = watched[number], let application = application(number) else { return false }
        var hasChanged = false
        // Its hint is lost, its effect is still to come. Read first: what takes effect in between is seen.
        let isComing =
            trace != nil && application.enforcement == .none
            && (try? proc.hasPendingStop(process.pid)) == true
        guard let isStopped = stands(number, process) else { return false }
        if let isForeign = hasStopBeneath(number, process),
            isForeign != (application.foreignStop != nil)
        {
            hasChanged = true
            report(isForeign ? .stopped(number, holder: "") : .foreignStopEnded(number))
        } else if isStopped != application.isStopped {
            // A stop of ours that is on its way is reported when it is complete.
            if isStopped && application.enforcement == .stopping { return false }
            hasChanged = true
            report(isStopped ? .stopped(number, holder: nil) : .continued(number))
        }
        if isComing, !isStopped, !retries.contains(number) { waitForStop(number, SIGSTOP, by: "") }
        return hasChanged
    }

    // MARK: Hints

    private func drain(_ descriptor: Int32) {
        guard let trace else { return }
        var hints: [StopTrace.Hint] = []
        let drained = trace.drain(descriptor) { hints.append($0) }
        for hint in hints { take(hint) }
        if drained == .lost { rescan() }
    }

    private func take(_ hint: StopTrace.Hint) {
        // What we send ourselves is confirmed by who sends it.
        guard hint.sender != getpid(), let number = application(ofThread: hint.target) else { return }
        if hint.signal == SIGCONT {
            retries.cancel(number)
            confirmContinued(number)
        } else if !confirmStopped(number, hint.signal, by: "pid \(hint.sender)") {
            waitForStop(number, hint.signal, by: "pid \(hint.sender)")
        }
    }

    private func waitForStop(_ number: ApplicationNumber, _ signal: Int32, by holder: String) {
        let patience = signal == SIGSTOP ? Self.longPatience : Self.shortPatience
        retries.start(number, for: patience) { [weak self] in
            self?.confirmStopped(number, signal, by: holder) ?? true
        }
    }

    private func application(ofThread thread: Int32) -> ApplicationNumber? {
        if let number = numbers[thread] { return number }
        guard !numbers.isEmpty, let status = try? proc.status(thread), status.threadGroup != thread else {
            return nil
        }
        return numbers[status.threadGroup]
    }

    private func confirmContinued(_ number: ApplicationNumber) {
        guard let process = watched[number], let application = application(number), application.isStopped,
            let stands = stands(number, process)
        else { return }
        if !stands {
            report(.continued(number))
        } else if application.foreignStop != nil, application.enforcement == .stopped,
            (try? proc.isStopped(process)) == false, !hasPendingStop(number, process)
        {
            // It took the stop back that waited for the process to be thawed.
            report(.foreignStopEnded(number))
        }
    }

    /// Answers whether there is nothing more to wait for.
    private func confirmStopped(_ number: ApplicationNumber, _ signal: Int32, by holder: String) -> Bool {
        guard let process = watched[number], let application = application(number) else { return true }
        // It is stopped already: only SIGSTOP, which nothing can ignore, adds somebody who wants it so.
        if application.isStopped && signal != SIGSTOP { return true }
        guard let isStopped = try? proc.isStopped(process) else { return true }
        if isStopped || hasPendingStop(number, process) {
            report(.stopped(number, holder: holder))
            return true
        }
        return false
    }

    // MARK: Polling

    private func pollSoon() {
        pause = Self.shortestPoll
        pollTimer?.arm(at: now() + pause)
    }

    private func poll() {
        guard !watched.isEmpty else { return }
        if rescan() {
            pause = Self.shortestPoll
        } else {
            pause = min(pause * 2, Self.longestPoll)
        }
        pollTimer?.arm(at: now() + pause)
    }
}
