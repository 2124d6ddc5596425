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
    private let retries: Retries<ApplicationNumber>
    private let turn: Turn
    private var underWay: [ApplicationNumber: Kill] = [:]
    /// Called before an application is stopped. Returns whether the next daemon knows of that stop.
    var willStop: (Registered) -> Bool = { _ in true }
    /// Called once all processes of an application have SIGKILL.
    var done: (ApplicationNumber) -> Void = { _ in }

    private struct Kill {
        let application: Registered
        var means: Means
        /// The processes that are to get SIGKILL, once they are known: an extent forgets them one by one.
        var victims: [ProcessIdentity]?
        let completion: ([ProcessIdentity]) -> Void
    }

    private enum Means {
        /// The processes that are already stopped are being searched for, because we must not continue them.
        case searching(StoppedSearch)
        /// It is being stopped first.
        case stopped(StoppedExtent)
        /// It is stopped.
        case signalled(SignalledExtent)
    }

    /// An application that is not stopped by then, because of vfork(2) or for want of CPU time, is killed as far as it
    /// is known.
    private static let patience: Microseconds = 2_000_000
    /// So is one that another process continues as fast as it is stopped.
    private static let mostPieces = 1_024

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        background: Background, table: ApplicationTable
    ) throws(BusFailure) {
        turn = Turn(loop, now)
        self.proc = proc
        self.table = table
        self.journal = journal
        retries = try Retries(loop: loop, now: now, background: background)
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
        let (main, user) = (application.process, application.user)
        if stands {
            underWay[number] = Kill(
                application: application, means: signals(to: application), completion: completion)
            return finish(number)
        }
        underWay[number] = Kill(
            application: application, means: .searching(StoppedSearch(of: main)), completion: completion)
        if proceed(with: number) == .settled { return }
        retries.work(on: number, of: user, for: Self.patience, atMost: Self.mostPieces) { [weak self] in
            self?.proceed(with: number) ?? .settled
        } givenUp: { [weak self] in
            self?.finish(number)
        }
    }

    private func proceed(with number: ApplicationNumber) -> Retries<ApplicationNumber>.Outcome {
        guard let kill = underWay[number] else { return .settled }
        let progress: StoppedExtent.Progress
        switch kill.means {
        case .signalled: return .settled
        case .searching(var search):
            guard
                search.proceed(
                    proc, budget, isForeign: table.isForeign,
                    isPassedOver: kill.application.suspender.holds)
            else {
                underWay[number]?.means = .searching(search)
                return .soon
            }
            guard prepareStop(of: kill.application, sparing: search.stopped) else {
                finish(number)
                return .settled
            }
            let extent = StoppedExtent(
                proc: proc, main: kill.application.process, owner: kill.application.user)
            underWay[number]?.means = .stopped(extent)
            progress = extent.stop(within: budget, isForeign: table.isForeign)
        case .stopped(let extent): progress = extent.proceed(within: budget, isForeign: table.isForeign)
        }
        switch progress {
        case .complete:
            finish(number)
            return .settled
        case .interrupted: return .soon
        case .pending: return .later
        }
    }

    private func signals(to application: Registered) -> Means {
        .signalled(
            SignalledExtent(SIGKILL, to: application.process, owner: application.user, proc: proc))
    }

    private func prepareStop(of application: Registered, sparing standing: [ProcessIdentity]) -> Bool {
        application.stoodBeforeKill = standing
        guard !willStop(application) else { return true }
        application.stoodBeforeKill = nil
        return false
    }

    /// Whether any process of it is still to be killed.
    func isUnderWay(_ number: ApplicationNumber) -> Bool { underWay[number] != nil }

    /// Kills its known processes now: all of them are stopped, patience is over, or its main process has
    /// ended.
    func finish(_ number: ApplicationNumber) {
        guard let user = underWay[number]?.application.user, !isFinished(number, budget) else {
            return retries.cancel(number)
        }
        retries.work(on: number, of: user) { [weak self] in
            guard let self, !isFinished(number, budget) else { return .settled }
            return .soon
        }
    }

    /// Kills everything that must still be killed, no matter how long it takes, because the daemon ends.
    func finishAll() {
        for (number, kill) in underWay {
            if case .stopped(let extent) = kill.means {
                // A process that is not found by now belongs to no application, once the main process has ended.
                var rounds = 0
                while extent.proceed(within: .unlimited, isForeign: table.isForeign) == .interrupted,
                    rounds < 16
                {
                    rounds += 1
                }
            }
            _ = isFinished(number, .unlimited)
        }
    }

    private func isFinished(_ number: ApplicationNumber, _ budget: Budget) -> Bool {
        guard let kill = underWay[number] else { return true }
        let killed: [ProcessIdentity]
        switch kill.means {
        case .searching:
            underWay[number]?.means = signals(to: kill.application)
            return isFinished(number, budget)
        case .stopped(let extent):
            killed = kill.victims ?? extent.members
            underWay[number]?.victims = killed
            guard extent.kill(within: budget, isForeign: table.isForeign) else { return false }
            log(extent.failures, of: kill.application)
        case .signalled(let extent):
            guard extent.proceed(budget, isForeign: table.isForeign) else { return false }
            log(extent.failures, of: kill.application)
            killed = extent.members
        }
        underWay[number] = nil
        kill.application.stoodBeforeKill = nil
        kill.completion(killed)
        done(number)
        return true
    }

    private var budget: Budget { turn.budget }

    private func log(_ failures: [KernelFailure], of application: Registered) {
        for failure in failures where !failure.isNoSuchProcess {
            journal.log(.warning, failure: "\(failure)", of: application)
        }
    }
}
