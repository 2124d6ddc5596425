import AppStateBus
import Glibc
import Linux
import Systemd

/// The daemon's notifications to its service manager. Every user can fill the service manager's socket
/// (sd_notify(3)), so a separate thread waits for it.
final class ServiceManager {
    private let outbox: Outbox?
    private var watchdog: Timer?

    /// A descriptor that is sent later.
    private final class Copy: Sendable {
        let descriptor: Descriptor

        init?(of number: Int32) {
            let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
            guard copy >= 0 else { return nil }
            descriptor = Descriptor(owning: copy)
        }
    }

    /// How many messages may wait. Each may hold a descriptor.
    private static let mostMessages = 1_024
    private static let longestFlush: Int32 = 1_000
    /// In milliseconds. While there is a watchdog, the thread never ends: there may be no room for another one.
    private static let shortestIdle = 10_000
    private static let retryPause: UInt64 = 1_000_000

    /// Without a service manager, everything does nothing.
    init() throws {
        let interval = Service.watchdogInterval.map { Int($0 / 1_000) } ?? 0
        outbox =
            Service.isSupervised
            ? try Outbox(
                name: "appstated-told", limit: Self.mostMessages,
                idleMilliseconds: max(2 * interval, Self.shortestIdle)) : nil
    }

    /// See `Service.notify`.
    func notify(_ state: String) {
        outbox?.post { Service.notify(state) }
    }

    /// Stores a copy of the descriptor in the service manager's descriptor store for the next daemon.
    ///
    /// - Returns: whether the request was queued. If not, the next daemon recognizes the process by its start
    ///   time.
    func store(_ descriptor: Int32, as name: String) -> Bool {
        guard let outbox, let copy = Copy(of: descriptor) else { return false }
        return outbox.post { Service.store(copy.descriptor.rawValue, as: name) }
    }

    /// Removes the descriptors with this name from the store.
    func dropStored(_ name: String) {
        outbox?.post { Service.dropStored(name) }
    }

    /// Sends WATCHDOG=1 from now on, twice as often as the service manager wants it: sd_watchdog_enabled(3).
    func beginWatchdog(on loop: EventLoop) throws(BusFailure) {
        guard let interval = Service.watchdogInterval else { return }
        let timer = try loop.timer { [unowned self, unowned loop] in
            let isSent = outbox?.post { Service.notify("WATCHDOG=1") } == true
            watchdog?.arm(at: loop.now + (isSent ? interval / 2 : min(Self.retryPause, interval / 2)))
        }
        watchdog = timer
        timer.arm(at: loop.now)
    }

    /// Waits until everything is sent, before the daemon ends.
    func finish() {
        outbox?.flush(milliseconds: Self.longestFlush)
    }
}
