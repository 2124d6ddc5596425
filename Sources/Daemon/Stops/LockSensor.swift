import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Detects that a process waits for a file lock that a suspended application holds (§ 2).
///
/// With the kernel's help there is a hint for every wait that begins, while any application is watched. Without it,
/// /proc/locks is read again and again. The worker reads it, and what the applications have open.
final class LockSensor {
    private let loop: EventLoop
    private let proc: Proc
    private let worker: Worker
    private let now: () -> Microseconds
    private let handed: HandedOver
    private let found: (ApplicationNumber, String) -> Void
    /// The processes of each application.
    private var watched: [ApplicationNumber: Set<Int32>] = [:]
    private var trace: LockTrace?
    /// The kernel does not provide hints. This is tried only once.
    private var isRefused = false
    private var sources: [Source] = []
    /// The worker reads the locks.
    private var isBusy = false
    /// A process may have begun to wait since then.
    private var isWanted = false
    /// They are not read before that.
    private var earliest: Microseconds = 0
    private var timer: Timer?

    /// The pause between two readings. There are hints for the waits of all processes of the machine.
    private static let pause: (hinted: Microseconds, polling: Microseconds) = (50_000, 1_000_000)

    /// - Parameter found: gets a description of the wait; from then on the application is no longer watched.
    init(
        loop: EventLoop, proc: Proc, worker: Worker, now: @escaping () -> Microseconds, handed: HandedOver,
        found: @escaping (ApplicationNumber, String) -> Void
    ) throws(BusFailure) {
        self.handed = handed
        self.loop = loop
        self.proc = proc
        self.worker = worker
        self.now = now
        self.found = found
        timer = try loop.timer { [weak self] in self?.read() }
    }

    /// Watches the processes of a stopped application.
    func watch(_ number: ApplicationNumber, _ pids: Set<Int32>) {
        if watched.isEmpty { begin() }
        watched[number] = pids
        // Processes may have begun to wait before the trace was open.
        read()
    }

    func unwatch(_ number: ApplicationNumber) {
        guard watched.removeValue(forKey: number) != nil, watched.isEmpty else { return }
        // While the trace is open, each lock on the machine costs its caller something. Closing it would block for 100
        // ms.
        try? trace?.turn(on: false)
    }

    /// The trace does not cover a CPU that has come online since, so it is opened again.
    func renew() {
        guard trace != nil else { return }
        sources = []
        trace = nil
        if watched.isEmpty { return }
        begin()
        read()
    }

    private func begin() {
        if let trace {
            do {
                try trace.turn(on: true)
                return
            } catch {
                sources = []
                self.trace = nil
            }
        }
        guard !isRefused else { return }
        do {
            let trace = try LockTrace(handed: handed)
            sources = try trace.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.read() }
            }
            self.trace = trace
        } catch {
            isRefused = true
        }
    }

    /// Reads the locks, now or after the pause. Until then hints stay in the ring buffers: full buffers cause no
    /// wake-ups, no matter how many hints arrive.
    private func read() {
        isWanted = true
        guard !isBusy, !watched.isEmpty else { return }
        if now() < earliest {
            timer?.arm(at: earliest)
            return
        }
        isBusy = true
        isWanted = false
        // Before the reading: a process that begins to wait after it causes a new hint.
        _ = trace?.drain()
        let (proc, watched) = (proc, watched)
        worker.run {
            guard let locks = try? FileLocks(proc: proc), !locks.isEmpty else { return [:] }
            return watched.compactMapValues { locks.waiters(blockedBy: $0, proc: proc).first?.words }
        } then: { [weak self] (waits: [ApplicationNumber: String]) in
            self?.take(waits, in: watched)
        }
    }

    private func take(_ waits: [ApplicationNumber: String], in former: [ApplicationNumber: Set<Int32>]) {
        for (number, why) in waits where watched[number] == former[number] {
            unwatch(number)
            found(number, why)
        }
        isBusy = false
        earliest = now() + (trace == nil ? Self.pause.polling : Self.pause.hinted)
        if isWanted || trace == nil { read() }
    }
}
