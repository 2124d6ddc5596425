import AppStateBus
import LifeCycle

/// Work that nobody waits for with a call: each in pieces of its own, and all of them together no longer than the calls
/// that come meanwhile.
///
/// Without it, each call that comes would wait for one piece of every kind of work there is. Where no calls come, the
/// next piece follows at once.
final class Background {
    /// How long a call is taken for the first of several.
    private static let span: Microseconds = 10_000

    /// What the work for each user may take.
    let share: WorkShare
    private let now: () -> Microseconds
    private var timer: Timer?
    private var line: [(owner: ObjectIdentifier, work: () -> Void)] = []
    private var freeAt: Microseconds = 0
    private var lastCall: Microseconds = 0

    init(loop: EventLoop, now: @escaping () -> Microseconds, share: WorkShare) throws(BusFailure) {
        self.now = now
        self.share = share
        timer = try loop.timer { [weak self] in self?.next() }
    }

    /// A call has come: work gives way to those behind it.
    func noteCall() { lastCall = now() }

    /// Has one piece done, now or when it is its turn. Who waits already keeps his place.
    func run(_ owner: AnyObject, _ work: @escaping () -> Void) {
        let owner = ObjectIdentifier(owner)
        if line.isEmpty, isFree { return perform(work) }
        guard !line.contains(where: { $0.owner == owner }) else { return }
        line.append((owner, work))
        timer?.arm(at: freeAt)
    }

    private var isFree: Bool {
        let now = now()
        return now >= freeAt || now > lastCall + Self.span
    }

    private func next() {
        guard !line.isEmpty else { return }
        if isFree { perform(line.removeFirst().work) }
        if !line.isEmpty { timer?.arm(at: isFree ? now() : freeAt) }
    }

    private func perform(_ work: () -> Void) {
        let begin = now()
        work()
        let end = now()
        freeAt = end + (end - begin)
    }
}
