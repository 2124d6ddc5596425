import AppStateBus
import Glibc
import LifeCycle
import Linux
import Systemd

/// Ends whole applications by SIGKILL. They are stopped first: a process that dies while it forks leaves a child
/// without the parent by which it would be recognized.
final class Kills {
    private let proc: Proc
    private let table: ApplicationTable
    private let journal: Journal
    private let now: () -> Microseconds
    private let retry: Retry<ApplicationNumber>
    private var underWay: [ApplicationNumber: Kill] = [:]
    /// Called before an application is stopped. Returns whether the next daemon knows of that stop.
    var willStop: (Registered) -> Bool = { _ in true }
    /// Called once all processes of an application have SIGKILL.
    var done: (ApplicationNumber) -> Void = { _ in }

    /// An application that is being stopped first.
    private struct Kill {
        let application: Registered
        let extent: StoppedExtent
        let end: Microseconds
        let completion: ([ProcessIdentity]) -> Void
    }

    /// An application that is not stopped by then is killed as far as it is known: because of vfork(2), for want of CPU
    /// time, or because another process continues it as fast as it is stopped.
    private static let patience: Microseconds = 2_000_000

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        table: ApplicationTable
    ) throws(BusFailure) {
        self.proc = proc
        self.table = table
        self.journal = journal
        self.now = now
        retry = try Retry(loop: loop, now: now)
    }

    /// Begins to stop an application, and kills it once it is stopped, or when patience is over. If it is stopped as a
    /// whole already, it needs no stop and cannot fork, so it is killed at once. An application whose stop
    /// could not be recorded beforehand is also killed at once.
    ///
    /// - Parameter completion: gets the processes that were killed.
    func kill(
        _ application: Registered, stands: Bool, completion: @escaping ([ProcessIdentity]) -> Void = { _ in }
    ) {
        let number = application.number
        guard underWay[number] == nil else { return }
        guard !stands, prepareStop(of: application) else {
            let (killed, failures) = Extent.signal(
                SIGKILL, toAllOf: application.process, owner: application.user, proc: proc,
                isForeign: table.isForeign)
            return haveKilled(application, killed, failures, completion)
        }
        let extent = StoppedExtent(proc: proc, main: application.process, owner: application.user)
        underWay[number] = Kill(
            application: application, extent: extent, end: now() + Self.patience, completion: completion)
        if !isSettled(number, extent.stop(isForeign: table.isForeign)) { press(on: number) }
    }

    private func prepareStop(of application: Registered) -> Bool {
        // We must not continue them.
        application.stoodBeforeKill = Extent.stoppedMembers(
            of: application.process, proc: proc, isForeign: table.isForeign
        ).filter { !application.suspender.holds($0) }
        if willStop(application) { return true }
        application.stoodBeforeKill = nil
        return false
    }

    private func press(on number: ApplicationNumber) {
        guard let kill = underWay[number] else { return }
        let now = now()
        guard now < kill.end else { return finish(number) }
        retry.schedule(number, for: kill.end - now) { [weak self] in
            guard let self, let kill = underWay[number] else { return true }
            return isSettled(number, kill.extent.proceed(isForeign: table.isForeign))
        } giveUp: { [weak self] in
            self?.finish(number)
        }
    }

    private func isSettled(_ number: ApplicationNumber, _ progress: StoppedExtent.Progress) -> Bool {
        switch progress {
        case .complete: finish(number)
        // The next processes are about to stop.
        case .advancing: press(on: number)
        case .pending: return false
        }
        return true
    }

    /// Whether any process of it is still to be killed.
    func isUnderWay(_ number: ApplicationNumber) -> Bool { underWay[number] != nil }

    /// Kills its known processes now: all of them are stopped, patience is over, or its main process has
    /// ended.
    func finish(_ number: ApplicationNumber) {
        guard let kill = underWay.removeValue(forKey: number) else { return }
        retry.cancel(number)
        let killed = kill.extent.members
        kill.extent.kill(isForeign: table.isForeign)
        haveKilled(kill.application, killed, kill.extent.failures, kill.completion)
    }

    /// Kills everything that must still be killed, because the daemon ends.
    func finishAll() {
        for (number, kill) in underWay {
            // A process that is not found by now belongs to no application, once the main process has ended.
            var rounds = 0
            while kill.extent.proceed(isForeign: table.isForeign) == .advancing, rounds < 16 { rounds += 1 }
            finish(number)
        }
    }

    private func haveKilled(
        _ application: Registered, _ killed: [ProcessIdentity], _ failures: [KernelFailure],
        _ completion: ([ProcessIdentity]) -> Void
    ) {
        for failure in failures where !failure.isNoSuchProcess {
            journal.log(.warning, failure: "\(failure)", of: application)
        }
        application.stoodBeforeKill = nil
        completion(killed)
        done(application.number)
    }
}
