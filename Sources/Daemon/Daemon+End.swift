import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// How the daemon ends, and what it leaves to the next one.
extension Daemon {
    /// Shuts down: the applications that the daemon suspended run again, with their original resource values.
    func stop(with code: Int32) {
        Service.notify("STOPPING=1")
        keeper?.note(statesOfKept)
        executor.carryOut(core.machine.relinquish(at: Self.now))
        step()
        freezer.finish()
        resources.putBackAll()
        records.writeAll()
        // No fact is handled after this: the next daemon reads it itself.
        keeper?.finish()
        loop.exit(code: code)
    }

    private var statesOfKept: [(kept: KeptID, state: LifeCycleState)] {
        core.machine.applications.values.compactMap { application in
            table[application.number]?.kept.map { ($0, application.state) }
        }
    }

    /// Exits for the next daemon, which is about to be started and takes over everything as it is recorded (§
    /// 5).
    func restart(with code: Int32 = 0) {
        Service.notify("STOPPING=1")
        records.writeDelayed()
        freezer.finish()
        keeper?.finish()
        loop.exit(code: code)
    }

    /// A bus that hangs counts as gone. In microseconds. This is at most a quarter of `WatchdogSec=`, because
    /// the service manager may not have heard from us for the other three quarters.
    private static let patienceWithBus: UInt64 = 7_000_000

    /// If the bus disconnects the daemon and continues to run, no hold needs to be given up: the next daemon takes over
    /// everything as it is recorded. If the bus itself is gone, every client that could resume suspended applications is
    /// gone, too.
    func lostBus() {
        let isThere = (try? Bus.system())?.isThere(busID, within: Self.patienceWithBus) ?? false
        guard state != nil, isThere else {
            journal.log(.error, "the bus has gone away")
            return stop(with: 1)
        }
        journal.log(.error, "the bus has disconnected appstated: restarting")
        restart(with: Self.disconnected)
    }

    /// The exit status (EX_TEMPFAIL of sysexits.h).
    private static let disconnected: Int32 = 75

    /// The longest that a job of the worker may take: a large application may be paged out to a slow disk.
    private static let longestJob: Microseconds = 300_000_000

    /// A dead file server, or a user who has mounted something, can make the worker wait forever for a process. Then
    /// nothing is saved any more, and policy suspends nothing: only a new daemon ends that.
    func endIfWorkerHangs() {
        guard Service.isSupervised, worker.hangs(longerThan: Self.longestJob) else { return }
        journal.log(.error, "a disk or a process does not answer: restarting")
        restart()
    }
}

extension Bus {
    /// Whether this is the bus with that id.
    fileprivate func isThere(_ id: String, within patience: UInt64) -> Bool {
        (try? self.id(timeout: patience)) == id
    }
}
