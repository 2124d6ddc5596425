import AppStateBus
import LifeCycle

/// Work that nobody waits for with a call: each in pieces of its own, and all of them together no longer than the calls
/// that come meanwhile.
///
/// Without it, each call that comes would wait for one piece of every kind of work there is. Where no calls come, the
/// next piece follows at once.
final class Background {
    private let now: () -> Microseconds
    private var timer: Timer?
    private var line: [(owner: ObjectIdentifier, work: () -> Void)] = []
    private var freeAt: Microseconds = 0
    private var hasCalls = false

    init(loop: EventLoop, now: @escaping () -> Microseconds) throws(BusFailure) {
        self.now = now
        timer = try loop.timer { [weak self] in self?.next() }
    }

    /// A call has come: work gives way to those behind it.
    func noteCall() { hasCalls = true }

    /// Has one piece done, now or when it is its turn. Who waits already keeps his place.
    func run(_ owner: AnyObject, _ work: @escaping () -> Void) {
        let owner = ObjectIdentifier(owner)
        if line.isEmpty, isFree { return perform(work) }
        guard !line.contains(where: { $0.owner == owner }) else { return }
        line.append((owner, work))
        timer?.arm(at: freeAt)
    }

    private var isFree: Bool { !hasCalls || now() >= freeAt }

    private func next() {
        guard !line.isEmpty else { return }
        if isFree { perform(line.removeFirst().work) }
        if !line.isEmpty { timer?.arm(at: hasCalls ? freeAt : now()) }
    }

    private func perform(_ work: () -> Void) {
        let begin = now()
        hasCalls = false
        work()
        let end = now()
        freeAt = end + (end - begin)
    }
}
