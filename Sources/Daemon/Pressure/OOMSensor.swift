import AppStateBus
import LifeCycle
import Linux

/// Remembers whom the kernel's out-of-memory killer has chosen, until their end is known.
///
/// The trace tells which process, on any kind of machine. Where there is none, such an end is told as any other.
/// The kernel counts a kill, then sends SIGKILL, then tells the trace (mm/oom_kill.c, `__oom_kill_process`): on a
/// machine that has run short, the end may be seen well before the choice.
final class OOMSensor {
    private let trace: OOMTrace
    private let counter: KernelKills?
    private let now: () -> Microseconds
    private var sources: [Source] = []
    private var victims: [Int32] = []
    /// Of the kernel's count, those whose choice has been told.
    private var told: UInt64 = 0
    private var questions: [(pid: Int32, answer: (Bool) -> Void)] = []
    private var deadline: Timer?

    /// Most of those chosen are no applications: of as many, the oldest are forgotten.
    private static let most = 64
    /// Of a flood, records are lost.
    static let patience: Microseconds = 250_000

    /// - Parameter root: where proc is mounted, or a made-up tree with a `vmstat`.
    init(
        loop: EventLoop, proc: Proc, root: String = "/proc", now: @escaping () -> Microseconds
    ) throws {
        trace = try OOMTrace.open(proc: proc)
        counter = try? KernelKills(root: root)
        self.now = now
        told = count
        for descriptor in trace.descriptors {
            sources.append(try loop.watch(descriptor) { [weak self] _ in self?.take() })
        }
        deadline = try loop.timer { [weak self] in self?.giveUp() }
    }

    /// Asks whether this process, which has ended, was chosen. It is forgotten then.
    ///
    /// - Parameter answer: called before this returns, unless the kernel is about to tell of somebody.
    func wasChosen(_ pid: Int32, _ answer: @escaping (Bool) -> Void) {
        take()
        if takeVictim(pid) { return answer(true) }
        guard told < count else { return answer(false) }
        if questions.isEmpty { deadline?.arm(at: now() + Self.patience) }
        questions.append((pid, answer))
    }

    private var count: UInt64 { (try? counter?.read()) ?? 0 }

    private func takeVictim(_ pid: Int32) -> Bool {
        guard let index = victims.lastIndex(of: pid) else { return false }
        victims.remove(at: index)
        return true
    }

    private func take() {
        let chosen = trace.victims()
        guard !chosen.isEmpty else { return }
        victims += chosen
        if victims.count > Self.most { victims.removeFirst(victims.count - Self.most) }
        // One that was about to end anyway is told of and not counted.
        told = min(told + UInt64(chosen.count), count)
        settle { told >= count }
    }

    private func giveUp() {
        told = count
        settle { true }
    }

    private func settle(_ isOver: () -> Bool) {
        let asked = questions
        questions = []
        let open = asked.filter { question in
            if takeVictim(question.pid) {
                question.answer(true)
            } else if isOver() {
                question.answer(false)
            } else {
                return true
            }
            return false
        }
        questions += open
        if questions.isEmpty { deadline?.disarm() }
    }
}
