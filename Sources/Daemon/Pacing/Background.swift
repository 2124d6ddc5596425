import AppStateBus
import LifeCycle

/// Work for which no call waits. Each kind is done in pieces, and all of it together takes no more time than
/// the calls that arrive meanwhile.
///
/// Without this, each call would wait for one piece of every kind of work. If no calls come, the next piece follows at
/// once.
final class Background {
    /// How long after a call further calls are expected.
    private static let span: Microseconds = 10_000

    /// The time that work may take for each user.
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

    /// Notes that a call has arrived: work yields to the calls behind it.
    func noteCall() { lastCall = now() }

    /// Schedules one piece of work, at once or when its turn comes. An owner that is already waiting keeps
    /// its place.
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
