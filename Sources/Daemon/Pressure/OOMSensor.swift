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
    private let now: () -> Microseconds
    private var sources: [Source] = []
    private var victims: [Int32] = []
    /// How many of the kills that the kernel counted have appeared in the trace.
    private var told: UInt64 = 0
    private var questions: [Question] = []
    private var deadline: Timer?

    private struct Question {
        let pid: Int32
        let due: Microseconds
        let answer: (Bool) -> Void
    }

    /// Most of the chosen processes are not applications. If there are this many, the oldest are forgotten.
    private static let most = 64
    /// In a flood records are lost, so the wait for one is limited.
    static let patience: Microseconds = 250_000

    /// - Parameter root: where proc is mounted, or a made-up tree with a `vmstat`.
    init(
        loop: EventLoop, proc: Proc, root: String = "/proc", handed: HandedOver = HandedOver(),
        now: @escaping () -> Microseconds
    ) throws {
        trace = try OOMTrace(proc: proc, handed: handed)
        counter = try? KernelKills(root: root)
        self.now = now
        told = count ?? 0
        for descriptor in trace.descriptors {
            sources.append(try loop.watch(descriptor) { [weak self] _ in self?.take() })
        }
        deadline = try loop.timer { [weak self] in self?.giveUp() }
    }

    /// Asks whether this process, which has ended, was chosen. It is forgotten then.
    ///
    /// - Parameter answer: called before this returns, unless a record of the kernel is still to come.
    func wasChosen(_ pid: Int32, _ answer: @escaping (Bool) -> Void) {
        take()
        if takeVictim(pid) { return answer(true) }
        guard isBehind else { return answer(false) }
        questions.append(Question(pid: pid, due: now() + Self.patience, answer: answer))
        arm()
    }

    private var count: UInt64? { try? counter?.read() }

    /// Whether the kernel has counted more kills than have appeared in the trace.
    private var isBehind: Bool { count.map { told < $0 } ?? false }

    private func takeVictim(_ pid: Int32) -> Bool {
        guard let index = victims.lastIndex(of: pid) else { return false }
        victims.remove(at: index)
        return true
    }

    private func take() {
        let chosen = trace.victims()
        guard !chosen.isEmpty else { return }
        victims += chosen
        // A process that was about to end anyway appears in the trace and is not counted.
        told = min(told + UInt64(chosen.count), count ?? .max)
        let isOver = !isBehind
        settle { _ in isOver }
        if victims.count > Self.most { victims.removeFirst(victims.count - Self.most) }
        arm()
    }

    /// Also armed without a question: a process that is counted twice, as with memory.oom.group, appears in the trace
    /// once.
    private func arm() {
        guard isBehind || !questions.isEmpty else {
            deadline?.disarm()
            return
        }
        deadline?.arm(at: questions.map(\.due).min() ?? now() + Self.patience)
    }

    private func giveUp() {
        take()
        let now = now()
        settle { $0.due <= now }
        if questions.isEmpty, let count { told = count }
        arm()
    }

    private func settle(_ isOver: (Question) -> Bool) {
        let asked = questions
        questions = []
        for question in asked {
            if takeVictim(question.pid) {
                question.answer(true)
            } else if isOver(question) {
                question.answer(false)
            } else {
                questions.append(question)
            }
        }
    }
}
