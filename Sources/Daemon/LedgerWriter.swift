import AppStateBus
import LifeCycle
import Linux

/// Carries out, on a separate thread, writes that wait for a system-wide lock.
///
/// The kernel takes one lock for every write to `oom_score_adj`, and keeps it while it looks at all processes if the
/// target shares its memory with a process (fs/proc/base.c, `__set_oom_adj`). Every user can make it wait.
final class LedgerWriter {
    private let loop: EventLoop
    private let worker: KeyedWorker<ApplicationNumber, ResourceLedger>
    private var source: Source?
    private let written: (ApplicationNumber, ResourceLedger, _ processorTime: Microseconds) -> Void

    private static let mostJobs = 1_024
    /// For this long after its beginning, an event waits for the writes that it has caused. They take longer
    /// than some ten microseconds only when the lock is contended.
    private static let longestWait: Microseconds = 3_000

    /// - Parameter written: called once for each job that was accepted, with the ledger after it.
    init(
        loop: EventLoop,
        written: @escaping (ApplicationNumber, ResourceLedger, _ processorTime: Microseconds) -> Void
    ) throws {
        self.loop = loop
        self.written = written
        worker = try KeyedWorker(name: "appstated-score", limit: Self.mostJobs)
        source = try loop.watch(worker.descriptor) { [weak self] _ in self?.takeResults() }
    }

    /// Returns whether it will be written; if not, there are too many jobs.
    func write(_ changes: ResourceLedger.Changes, with ledger: ResourceLedger, of number: ApplicationNumber)
        -> Bool
    {
        let submission = worker.submit(number) {
            var (ledger, changes) = (ledger, changes)
            ledger.carryOut(&changes)
            return ledger
        }
        return submission == .accepted
    }

    /// Waits for a moment until `isDone`, if the present event has time left.
    func wait(until isDone: () -> Bool) {
        while !isDone(), worker.wait(until: loop.now + Self.longestWait) { takeResults() }
    }

    /// Waits for pending writes, before the daemon ends. Returns whether they are complete.
    func drain(milliseconds: UInt64) -> Bool {
        let end = Clock.monotonicMicroseconds + milliseconds * 1_000
        while worker.count > 0, worker.wait(until: end) { takeResults() }
        return worker.count == 0
    }

    private func takeResults() {
        for finished in worker.takeResults() {
            written(finished.key, finished.value, finished.processorTime)
        }
    }
}
