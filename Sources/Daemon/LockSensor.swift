import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Sees that somebody waits for a file lock which a suspended application holds (§ 2).
///
/// With the kernel's help: a hint for every wait that begins, while there is somebody to watch over. Without:
/// /proc/locks is read again and again, between 50 ms and 1 s apart.
final class LockSensor {
    private let loop: EventLoop
    private let proc: Proc
    private let now: () -> Microseconds
    private let found: (ApplicationNumber, String) -> Void
    private var watched: [ApplicationNumber: Set<Int32>] = [:]
    private var trace: LockTrace?
    /// The kernel does not tell us: to be asked once.
    private var isRefused = false
    private var sources: [Source] = []
    private var timer: Timer?
    private var pause = LockSensor.shortestPause
    private var lastLook: Microseconds = 0

    private static let shortestPause: Microseconds = 50_000
    private static let longestPause: Microseconds = 1_000_000
    /// Between two looks, however many hints come: everybody's waits are hinted.
    private static let leastPause: Microseconds = 5_000

    /// - Parameter found: gets what is wrong, in words; the application is not watched over any longer then.
    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds,
        found: @escaping (ApplicationNumber, String) -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.proc = proc
        self.now = now
        self.found = found
        timer = try loop.timer { [weak self] in self?.look() }
    }

    /// Who waits for a lock that one of the processes holds, in words; nil: nobody.
    func waiter(blockedBy pids: Set<Int32>) -> String? {
        (try? FileLocks(proc: proc)).flatMap { waiter(in: $0, blockedBy: pids) }
    }

    private func waiter(in locks: FileLocks, blockedBy pids: Set<Int32>) -> String? {
        locks.waiters(blockedBy: pids, proc: proc).first.map { waiter in
            let who = waiter.pid.map { "pid \($0)" } ?? "somebody"
            return "\(who) waits for a file lock (\(waiter.lock.file)) that pid \(waiter.holder) holds"
        }
    }

    /// Watches over an application that stands.
    func watch(_ number: ApplicationNumber, _ pids: Set<Int32>) {
        if watched.isEmpty { begin() }
        watched[number] = pids
        pause = Self.shortestPause
        // Who began to wait before the trace was open.
        look()
    }

    func unwatch(_ number: ApplicationNumber) {
        guard watched.removeValue(forKey: number) != nil, watched.isEmpty else { return }
        // While it is open, each lock on the machine costs its caller something; to close it would block for
        // 100 ms.
        try? trace?.pause()
        timer?.disarm()
    }

    private func begin() {
        if let trace {
            do {
                try trace.resume()
                return
            } catch {
                sources = []
                self.trace = nil
            }
        }
        guard !isRefused else { return }
        do {
            let trace = try LockTrace.open()
            sources = try trace.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.drain(descriptor) }
            }
            self.trace = trace
        } catch {
            isRefused = true
        }
    }

    private func drain(_ descriptor: Int32) {
        guard let trace, trace.drain(descriptor) else { return }
        let now = now()
        if now >= lastLook + Self.leastPause { look() } else { timer?.arm(at: lastLook + Self.leastPause) }
    }

    private func look() {
        guard !watched.isEmpty else { return }
        lastLook = now()
        if let locks = try? FileLocks(proc: proc), !locks.contests.isEmpty {
            for (number, pids) in watched {
                guard let why = waiter(in: locks, blockedBy: pids) else { continue }
                unwatch(number)
                found(number, why)
            }
        }
        guard trace == nil, !watched.isEmpty else { return }
        timer?.arm(at: lastLook + pause)
        pause = min(pause * 2, Self.longestPause)
    }
}
