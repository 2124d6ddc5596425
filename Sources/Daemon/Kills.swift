import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Ends applications by SIGKILL, whole: they are stopped first. One that dies while it forks leaves a child that
/// has no parent to know it by.
final class Kills {
    private let proc: Proc
    private let isForeign: (ProcessIdentity) -> Bool
    private let journal: Journal
    private let retries: Retries<ApplicationNumber>
    private var extents: [ApplicationNumber: (application: Registered, extent: StoppedExtent)] = [:]

    /// One that does not stand by then, in vfork(2) or for want of CPU time, is killed as far as it is known.
    private static let patience: Microseconds = 2_000_000

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        isForeign: @escaping (ProcessIdentity) -> Bool
    ) throws(BusFailure) {
        self.proc = proc
        self.isForeign = isForeign
        self.journal = journal
        retries = try Retries(loop: loop, now: now)
    }

    /// Begins to stop it; kills it once it stands, or at the end of patience. What is frozen takes no stop, and
    /// cannot fork: it is killed at once.
    func kill(_ application: Registered, isFrozen: Bool) {
        if isFrozen {
            let failures = Extent.signal(
                SIGKILL, to: application.process, owner: application.user, proc: proc, isForeign: isForeign)
            return log(failures, of: application)
        }
        let number = application.number
        guard extents[number] == nil else { return }
        let extent = StoppedExtent(proc: proc, main: application.process, owner: application.user)
        extents[number] = (application, extent)
        if extent.stop(isForeign: isForeign) == .complete { return finish(number) }
        retries.start(number, for: Self.patience) { [weak self] in
            guard let self, extent.proceed(isForeign: isForeign) == .complete else { return false }
            finish(number)
            return true
        } givenUp: { [weak self] in
            self?.finish(number)
        }
    }

    /// Kills at once what is known of it: all of it stands, patience is over, or its main process has ended.
    func finish(_ number: ApplicationNumber) {
        guard let (application, extent) = extents.removeValue(forKey: number) else { return }
        retries.cancel(number)
        extent.kill()
        log(extent.failures, of: application)
    }

    private func log(_ failures: [KernelFailure], of application: Registered) {
        for failure in failures where !failure.isNoSuchProcess {
            journal.log(.warning, failure: "\(failure)", of: application)
        }
    }
}
