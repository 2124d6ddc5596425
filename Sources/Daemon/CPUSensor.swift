import AppStateBus
import LifeCycle
import Linux
import Systemd

/// Detects that a CPU has come online. The kernel announces this (CPUWatch). If the socket is not available,
/// the list of CPUs is read once a minute.
final class CPUSensor {
    private static let pause: Microseconds = 60_000_000

    private let changed: () -> Void
    private let now: () -> Microseconds
    private var watch: CPUWatch?
    private var source: Source?
    private var timer: Timer?
    private var online: [Int32] = []

    /// - Parameter changed: called after a CPU has come online, or may have.
    init(
        loop: EventLoop, journal: Journal, handed: HandedOver, now: @escaping () -> Microseconds,
        changed: @escaping () -> Void
    ) throws(BusFailure) {
        self.now = now
        self.changed = changed
        journal.attempt(.info, "CPUs that come online are looked for once a minute") {
            watch = try CPUWatch(handed: handed)
        }
        if let watch {
            source = try loop.watch(watch.descriptor) { [weak self] _ in self?.take() }
        } else {
            online = CPUWatch.online ?? []
            timer = try loop.timer { [weak self] in self?.look() }
            timer?.arm(at: now() + Self.pause)
        }
    }

    private func take() {
        if watch?.take() == true { changed() }
    }

    private func look() {
        let before = online
        online = CPUWatch.online ?? before
        timer?.arm(at: now() + Self.pause)
        if online.contains(where: { !before.contains($0) }) { changed() }
    }
}
