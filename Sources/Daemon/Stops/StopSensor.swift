import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Finds stops and continuations by others, by signal or by freezing, and signals that ask a stopped process to end.
///
/// A record of the kernel (StopTrace) or a change of a freeze (StopReader) is a hint that leads to one reading of the
/// application: a fact about its main process. A stop is complete a little after its signal was generated, so one that
/// is awaited is read again a moment later. Without the trace, and after lost records, all registered processes
/// are read.
final class StopSensor {
    /// The pause between two readings of all processes without a trace: the shortest one after a change, then twice as long
    /// each time.
    private static let polls: (shortest: Microseconds, longest: Microseconds) = (50_000, 1_000_000)

    private final class Watched {
        let process: ProcessIdentity
        /// A stop signal that has not taken effect yet, as far as is known.
        var awaited: Awaited?
        /// The signal that was reported as a demand, and is still pending as far as is known. A process may block one
        /// for as long as it lives, and must not be continued again and again because of it.
        var demand: Int32?
        /// What was known of its stop at the last poll.
        var polled: StopStatus?

        init(_ process: ProcessIdentity) { self.process = process }
    }

    private struct Awaited {
        /// SIGSTOP, which nothing can ignore.
        let isCertain: Bool
        let sender: String
        let end: Microseconds

        init(isCertain: Bool, sender: String, at now: Microseconds) {
            self.isCertain = isCertain
            self.sender = sender
            // Only uninterruptible sleep can delay SIGSTOP.
            end = now + (isCertain ? 60_000_000 : 1_000_000)
        }
    }

    private let loop: EventLoop
    private let proc: Proc
    private let now: () -> Microseconds
    private let core: Core
    private let reading: (ApplicationNumber) throws(KernelFailure) -> StopReading?
    private let handed: HandedOver
    private var trace: StopTrace?
    private var sources: [Source] = []
    private let retry: Retry<ApplicationNumber>
    private var watched: [ApplicationNumber: Watched] = [:]
    private var numbers: [Int32: ApplicationNumber] = [:]
    private var pollTimer: Timer?
    private var pause = StopSensor.polls.shortest
    private let own = getpid()

    /// How stops are found at present.
    var detection: StopDetection { trace == nil ? .polling : .events }

    /// - Parameter reading: reads the stop of an application's main process; nil: it has ended. Throws if that cannot be
    ///   read now.
    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds, core: Core,
        handed: HandedOver = HandedOver(),
        reading: @escaping (ApplicationNumber) throws(KernelFailure) -> StopReading?
    ) throws(BusFailure) {
        self.loop = loop
        self.proc = proc
        self.now = now
        self.core = core
        self.reading = reading
        self.handed = handed
        retry = try Retry(loop: loop, now: now)
        pollTimer = try loop.timer { [weak self] in self?.rescan() }
    }

    // MARK: The trace

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
        try openTrace()
    }

    /// Polls from now on.
    func stopTracing() {
        guard trace != nil else { return }
        closeTrace()
    }

    private func closeTrace() {
        for source in sources { source.cancel() }
        (sources, trace) = ([], nil)
        pollSoon()
    }

    /// Reads the kernel's records, and reads each application that they are about once.
    private func drain() {
        guard let trace else { return }
        var known: [Int32: ApplicationNumber?] = [:]
        var hinted: Set<ApplicationNumber> = []
        var demands: [ApplicationNumber: StopTrace.Hint] = [:]
        let isWhole = trace.drain { hint in
            // The code that sends our own signals confirms them.
            guard hint.sender != own else { return }
            let number = known[hint.target] ?? application(of: hint.target)
            known[hint.target] = .some(number)
            guard let number else { return }
            if StopTrace.endings.contains(hint.signal) {
                demands[number] = hint
            } else {
                note(hint, about: number)
                hinted.insert(number)
            }
        }
        for (number, hint) in demands { reportDemand(for: number, hint.signal, by: " by pid \(hint.sender)") }
        for number in hinted {
            retry.cancel(number)
            readStop(of: number)
        }
        if !isWhole { rescan() }
    }

    /// Signals to a single thread name that thread.
    private func application(of thread: Int32) -> ApplicationNumber? {
        if numbers.isEmpty { return nil }
        return numbers[thread] ?? (try? proc.status(thread)).flatMap { numbers[$0.threadGroup] }
    }

    private func note(_ hint: StopTrace.Hint, about number: ApplicationNumber) {
        if hint.signal == SIGCONT {
            watched[number]?.awaited = nil
        } else if hint.signal == SIGSTOP || watched[number]?.awaited?.isCertain != true {
            watched[number]?.awaited = Awaited(
                isCertain: hint.signal == SIGSTOP, sender: "pid \(hint.sender)", at: now())
        }
    }

    // MARK: Reading

    func watch(_ number: ApplicationNumber, _ process: ProcessIdentity) {
        watched[number] = Watched(process)
        numbers[process.pid] = number
        pollSoon()
    }

    func unwatch(_ number: ApplicationNumber) {
        guard let process = watched.removeValue(forKey: number)?.process else { return }
        if numbers[process.pid] == number { numbers[process.pid] = nil }
        retry.cancel(number)
        if watched.isEmpty { pollTimer?.disarm() }
    }

    /// Reads every registered process.
    func rescan() {
        var hasChanged = false
        for number in Array(watched.keys) {
            let stop = core.application(number)?.stop
            if stop != watched[number]?.polled { hasChanged = true }
            watched[number]?.polled = stop
            readStop(of: number)
            detectDemand(of: number)
        }
        guard trace == nil, !watched.isEmpty else { return }
        pause = hasChanged ? Self.polls.shortest : min(pause * 2, Self.polls.longest)
        pollTimer?.arm(at: now() + pause)
    }

    private func pollSoon() {
        guard trace == nil, !watched.isEmpty else { return }
        pause = Self.polls.shortest
        pollTimer?.arm(at: now() + pause)
    }

    /// Reports the stop of an application's main process, and reads it again soon if that is about to change or cannot
    /// be read now.
    func readStop(of number: ApplicationNumber) {
        if hasSettled(number) {
            retry.cancel(number)
        } else if !retry.contains(number) {
            retry.schedule(number) { [weak self] in self?.hasSettled(number) ?? true }
        }
    }

    /// Returns whether there is nothing to wait for.
    private func hasSettled(_ number: ApplicationNumber) -> Bool {
        guard let entry = watched[number], let application = core.application(number) else { return true }
        let reading: StopReading
        do throws(KernelFailure) {
            guard let present = try self.reading(number) else { return true }
            reading = present
        } catch {
            // For example for lack of descriptors.
            return false
        }
        var awaited = entry.awaited
        let enforcement = application.stop.enforcement
        // What stops it may be an earlier holder or the daemon: it may ignore any signal but SIGSTOP.
        if application.isStopped || enforcement == .stopping, awaited?.isCertain == false { awaited = nil }
        // The hint about a SIGSTOP is lost, and its effect is still to come.
        if awaited == nil, reading.signal == .pending, reading.freeze == nil, enforcement == .none {
            awaited = Awaited(isCertain: true, sender: "", at: now())
        }
        let hasStopped =
            reading.signal == .stopped || reading.signal == .pending && reading.freeze?.isComplete == true
        let isAwaited = !hasStopped && awaited.map { now() < $0.end } == true
        watched[number]?.awaited = isAwaited ? awaited : nil
        core.report(.observed(number, reading, sender: hasStopped ? awaited?.sender : nil))
        return !isAwaited
    }

    // MARK: Demands

    /// Reported once, because after that no hold is left that a demand could lift.
    private func reportDemand(for number: ApplicationNumber, _ signal: Int32, by sender: String = "") {
        guard core.application(number)?.holds.isEmpty == false else { return }
        watched[number]?.demand = signal
        core.report(.needed(number, (Self.names[signal] ?? "signal \(signal)") + sender, .end))
    }

    private static let names = [
        SIGTERM: "SIGTERM", SIGHUP: "SIGHUP", SIGINT: "SIGINT", SIGQUIT: "SIGQUIT",
    ]

    /// Detects a signal that asks the application to end and for which no hint came.
    private func detectDemand(of number: ApplicationNumber) {
        guard let entry = watched[number], let application = core.application(number) else { return }
        let isHeld = !application.holds.isEmpty && application.isStopped
        guard isHeld || entry.demand != nil else { return }
        let signal = (try? proc.pendingSignal(of: StopTrace.endings, entry.process.pid)) ?? nil
        guard signal != entry.demand else { return }
        // It has taken the former signal, and may be sent the same one again.
        watched[number]?.demand = nil
        if isHeld, let signal { reportDemand(for: number, signal) }
    }
}
