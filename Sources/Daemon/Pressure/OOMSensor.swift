import AppStateBus
import LifeCycle
import Linux

/// Remembers which processes the kernel's out-of-memory killer has chosen, until their end is known.
///
/// The tracepoint reports the process, on any kind of machine. If there is no tracepoint, such an end is
/// reported like any other. The kernel counts a kill, then sends SIGKILL, then writes to the trace
/// (mm/oom_kill.c, `__oom_kill_process`): on a machine that has run short, the end may be seen well before
/// the choice.
final class OOMSensor {
    private let trace: OOMTrace
    private let counter: KernelKills?
    private let retry: Retry<Int32>
    private var sources: [Source] = []
    private var victims: [Int32] = []
    /// How many of the kills that the kernel counted have appeared in the trace.
    private var reported: UInt64 = 0

    /// Most of the chosen processes are not applications. If there are this many, the oldest are forgotten.
    private static let most = 64
    /// In a flood records are lost, so the wait for one is limited.
    private static let patience: Microseconds = 250_000

    init(loop: EventLoop, proc: Proc, handed: HandedOver, now: @escaping () -> Microseconds) throws {
        trace = try OOMTrace(proc: proc, handed: handed)
        counter = try? KernelKills(root: proc.root)
        retry = try Retry(loop: loop, now: now)
        reported = count ?? 0
        for descriptor in trace.descriptors {
            sources.append(try loop.watch(descriptor) { [weak self] _ in self?.readCount() })
        }
    }

    /// Asks whether this process, which has ended, was chosen. It is forgotten then.
    ///
    /// - Parameter answer: called before this returns, unless a record of the kernel is still to come.
    func wasChosen(_ pid: Int32, _ answer: @escaping (Bool) -> Void) {
        if settle(pid, answer) { return }
        // Every question is answered, also if another sensor has taken this one's place.
        retry.schedule(
            pid, for: Self.patience, { [self] in settle(pid, answer) },
            giveUp: { [self] in
                // A process that is counted twice, as with memory.oom.group, appears in the trace once.
                if let count { reported = count }
                answer(false)
            })
    }

    private func settle(_ pid: Int32, _ answer: (Bool) -> Void) -> Bool {
        readCount()
        if let index = victims.lastIndex(of: pid) {
            victims.remove(at: index)
            answer(true)
            return true
        }
        // The kernel has counted more kills than have appeared in the trace.
        if let count, reported < count { return false }
        answer(false)
        return true
    }

    private var count: UInt64? { try? counter?.read() }

    private func readCount() {
        let chosen = trace.victims()
        guard !chosen.isEmpty else { return }
        victims += chosen
        // A process that was about to end anyway appears in the trace and is not counted.
        reported = min(reported + UInt64(chosen.count), count ?? .max)
        if victims.count > Self.most { victims.removeFirst(victims.count - Self.most) }
    }
}
