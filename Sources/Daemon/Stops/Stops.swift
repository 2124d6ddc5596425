import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Carries out stops and continuations of applications, and reports their results.
final class Stops {
    private let proc: Proc
    private let journal: Journal
    private let hierarchy: UnifiedHierarchy?
    private let ownCgroup: Cgroup?
    private let core: Core
    private let table: ApplicationTable
    private let records: Records
    private let standings: Standings
    private let sensor: StopSensor
    private let objections: ObjectionSensor
    /// For work in progress: a stop, or a release.
    private let retry: Retry<ApplicationNumber>
    /// For the standing of a main process that is about to run.
    private let reports: Retry<ApplicationNumber>
    private let kills: Kills
    /// A quarter of the descriptors that the daemon may have.
    private let budget = DescriptorBudget(ResourceLimit.openFiles / 4)
    /// The orders in progress. A later order replaces an earlier one.
    private var orders: [ApplicationNumber: Order] = [:]
    private let now: () -> Microseconds
    /// Frozen applications whose verification has not begun.
    private var unverified: Set<ApplicationNumber> = []
    /// Applications that the daemon has stopped, and that may have been continued since.
    private var held: Set<ApplicationNumber> = []
    private var verification: Timer?
    /// Applications whose cgroup is still to be thawed.
    private var releases: [ApplicationNumber: Release] = [:]
    /// Applications that are released if they outlive the SIGKILL in progress. Until then none of their
    /// processes may fork.
    private var deferred: [ApplicationNumber: Release] = [:]
    /// A cgroup that is not frozen by then is thawed and tried again later (§ 5). It is a little less than the 500 ms
    /// that a call waits (`Daemon.longestWait`), because the failure must be the answer of that call.
    private static let longestFreeze: Microseconds = 450_000

    /// The delay before a verification: examining two hundred processes takes milliseconds of a processor for
    /// which others wait.
    private static let verificationLag: Microseconds = 5_000

    private enum Order {
        /// Other applications are released first.
        case waiting
        /// It is being stopped.
        case stopping
    }

    private struct Release {
        enum Purpose {
            /// No hold is left. If a person has requested that, every other process's stop ends, too.
            case resumption
            /// The stop was given up, or cannot be kept.
            case surrender
            /// It is no longer an application.
            case removal
        }

        let application: Registered
        let purpose: Purpose
        /// Another holder wants its main process stopped.
        var sparingMain = false
    }

    init(
        loop: EventLoop, proc: Proc, hierarchy: UnifiedHierarchy?, journal: Journal,
        now: @escaping () -> Microseconds, core: Core, table: ApplicationTable, records: Records,
        standings: Standings, sensor: StopSensor, kills: Kills, objections: ObjectionSensor
    ) throws {
        self.objections = objections
        self.proc = proc
        self.hierarchy = hierarchy
        self.journal = journal
        self.now = now
        self.core = core
        self.table = table
        self.records = records
        self.standings = standings
        self.sensor = sensor
        self.kills = kills
        ownCgroup = hierarchy.flatMap { try? Cgroup.of(getpid(), in: $0, proc: proc) }
        retry = try Retry(loop: loop, now: now)
        reports = try Retry(loop: loop, now: now)
        standings.freezeChanged = { [weak self] in self?.freezeChanged($0) }
        kills.done = { [weak self] in self?.haveKilled($0) }
        kills.willStop = { [records] in
            records.write($0.number) == nil || records.haveHolding(of: $0)
        }
        verification = try loop.timer { [weak self] in self?.verify() }
    }

    func suspender(_ process: ProcessIdentity, _ user: UInt32) -> Suspender {
        Suspender(
            proc: proc, hierarchy: hierarchy, main: process, owner: user, daemon: ownCgroup, budget: budget)
    }

    func watch(_ application: Registered) {
        let number = application.number
        application.suspender.fellBack = { [unowned self] in records.write(number) }
        standings.watch(number)
        held = held.filter { table[$0]?.suspender.holdsAnybody == true || orders[$0] != nil }
        takeOver(application)
        // Until now the process was in another application's extent, and may have been frozen with it, so
        // that application's cgroup is examined again.
        guard !held.isEmpty, let hierarchy,
            let cgroup = try? Cgroup.of(application.process.pid, in: hierarchy, proc: proc)
        else { return }
        for other in held where other != number {
            guard let suspender = table[other]?.suspender, suspender.isFreezeOurs else { continue }
            if suspender.frozen.map(cgroup.isWithin) == true { verifySoon(other) }
        }
    }

    /// Continues the processes that were stopped with another application and are in this one's extent now.
    private func takeOver(_ application: Registered) {
        let number = application.number
        for other in held where other != number {
            guard let suspender = table[other]?.suspender,
                suspender.handOver(application.process, to: application.suspender)
            else { continue }
            held.insert(number)
            // This order ensures that each of them is in a record at every moment.
            _ = records.write(number)
            _ = records.write(other)
        }
        guard application.suspender.holdsAnybody else { return }
        release(Release(application: application, purpose: .surrender))
    }

    /// The application with which the daemon has stopped, by signal, a process that is not itself that application.
    func holder(of process: ProcessIdentity) -> Registered? {
        held.lazy.compactMap { [table] in table[$0] }.first {
            $0.process != process && $0.suspender.holds(process)
        }
    }

    // MARK: Orders

    /// Chooses how it will be stopped; this is recorded before it is done.
    func prepare(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        application.suspender.prepare(isForeign: table.isForeign)
    }

    /// A stop that could not be recorded is not carried out.
    func refuse(_ number: ApplicationNumber, _ failure: KernelFailure) {
        core.report(.stopFailed(number, "it could not be recorded: \(failure)"))
    }

    /// Checks for objections to its stop.
    func check(_ number: ApplicationNumber, stands: Bool) {
        guard let application = table[number] else { return }
        objections.check(application, stands: stands) { [weak self] in
            if stands { self?.haveStopped(number) }
        }
    }

    func stop(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        // The result of a look from before this stop no longer counts.
        objections.forget(number)
        held.insert(number)
        retry.cancel(number)
        releases[number] = nil
        guard isAwaitingReleases(application) else { return beginStop(of: application) }
        orders[number] = .waiting
        retry.schedule(number) { [weak self] in
            guard let self, let application = table[number] else { return true }
            if isAwaitingReleases(application) { return false }
            beginStop(of: application)
            return true
        }
    }

    /// A process that a removed application of the same user still holds may belong to this one now, and would be held
    /// twice.
    private func isAwaitingReleases(_ application: Registered) -> Bool {
        holdsOthers(application) || removals.contains { $0.application.user == application.user }
    }

    /// The process was moved: the cgroup that the daemon froze now belongs to another application, or to
    /// none. It is thawed first.
    private func holdsOthers(_ application: Registered) -> Bool {
        if application.suspender.holdsOthersOnly { application.suspender.release() }
        return application.suspender.holdsOthersOnly
    }

    /// The processes of removed applications that must still be released.
    private var removals: some Sequence<Release> {
        [releases, deferred].lazy.flatMap(\.values).filter { $0.purpose == .removal }
    }

    private func beginStop(of application: Registered) {
        let number = application.number
        orders[number] = .stopping
        let progress = application.suspender.stop(isForeign: table.isForeign)
        // While it freezes: its cgroup may be another one than before.
        standings.watch(number)
        if !isComplete(number, progress) { press(on: application) }
    }

    /// The kernel delays the notification of a freeze, 14 ms were seen. So the freeze is also polled, for as long as it
    /// may take.
    private func press(on application: Registered, recorded: Int = 0) {
        let number = application.number
        let isFreezing = application.suspender.frozen != nil
        var recorded = recorded
        retry.schedule(number, for: isFreezing ? Self.longestFreeze : .max / 2) { [weak self] in
            guard let self, let application = table[number] else { return true }
            let suspender = application.suspender
            let progress = suspender.proceed(isForeign: table.isForeign)
            if isComplete(number, progress) { return true }
            // If this daemon is killed and the main process ends, nothing else says which processes to continue.
            if recorded != suspender.signalsSent {
                recorded = suspender.signalsSent
                records.rewrite(number)
            }
            let hasOtherMeans = (suspender.frozen != nil) != isFreezing
            if hasOtherMeans { standings.watch(number) }
            guard hasOtherMeans || progress == .advancing else { return false }
            // It goes on with a short pause, and by other means with another patience.
            press(on: application, recorded: recorded)
            return true
        } giveUp: { [weak self] in
            self?.giveUp(number)
        }
    }

    /// Has it recorded which processes the stops in progress have stopped so far.
    func recordProgress() {
        for (number, order) in orders where order == .stopping { records.rewrite(number) }
    }

    /// Whether this stop needs no more work. In that case, the next step has been begun.
    private func isComplete(_ number: ApplicationNumber, _ progress: Suspender.Progress) -> Bool {
        guard let application = table[number] else { return true }
        switch progress {
        case .complete:
            retry.cancel(number)
            logFailures(of: application)
            orders[number] = nil
            noteEarlierStop(of: application)
            haveStopped(number)
            core.report(.stopCompleted(number))
            return true
        case .advancing, .pending:
            if application.suspender.isContested {
                core.report(.contested(number))
                return true
            }
            if progress == .advancing { return false }
            if let failure = application.suspender.unrecorded {
                refuse(number, failure)
                return true
            }
            guard application.suspender.isOutOfReach, let failure = application.suspender.failures.last else {
                return false
            }
            // The daemon cannot stop its main process, and waiting will not change that.
            let rights = proc.otherRights(of: application.process.pid, than: application.user)
            core.report(.stopFailed(number, rights ?? failure.description))
            return true
        }
    }

    /// Its main process was stopped by another process before the daemon could stop it, and the hint about that was
    /// lost.
    private func noteEarlierStop(of application: Registered) {
        let number = application.number
        // A stop that is known, or that a person has lifted since, is in the status already.
        guard application.suspender.isBySignal, !application.suspender.holds(application.process),
            core.application(number)?.isStopped == false, let standing = standings.standing(of: number)
        else { return }
        core.report(.looked(number, standing, sender: ""))
    }

    /// The whole application is stopped. Another process may have frozen it meanwhile, or its cgroup may no
    /// longer be its own.
    private func haveStopped(_ number: ApplicationNumber) {
        sensor.look(at: number)
        verifySoon(number)
    }

    /// Not before the processes that the announcement wakes have run: a stopped application no longer
    /// changes.
    private func verifySoon(_ number: ApplicationNumber) {
        if unverified.isEmpty { verification?.arm(at: now() + Self.verificationLag) }
        unverified.insert(number)
    }

    private func verify() {
        let numbers = unverified
        unverified = []
        for number in numbers { verify(number) }
    }

    /// A thaw makes the life cycle order the stop again, this time by signal.
    private func verify(_ number: ApplicationNumber) {
        // A dying process is no longer in a cgroup. A stop in progress is verified once it is complete.
        guard let application = table[number], let known = core.application(number),
            known.stop.enforcement == .stopped, !known.isTerminating,
            orders[number] == nil, releases[number] == nil,
            !hasEnded(application.process)
        else { return }
        if !application.suspender.verify(isForeign: table.isForeign) { reportThawed(application) }
    }

    private func reportThawed(_ application: Registered) {
        if application.suspender.isFreezeOurs {
            return release(Release(application: application, purpose: .surrender))
        }
        let why = application.suspender.objection ?? "its cgroup is no longer its own"
        journal.log(.notice, "thawed: \(why)", about: application, as: .thawed, [(.reason, why)])
        core.report(.stopLost(application.number))
    }

    private func giveUp(_ number: ApplicationNumber) {
        guard let application = table[number], let cgroup = application.suspender.frozen else { return }
        let why = "\(cgroup) was not frozen within \(Self.longestFreeze / 1_000) ms"
        journal.log(.notice, why, about: application, as: .thawed, [(.reason, why)])
        core.report(.stopFailed(number, why))
    }

    func drain(_ number: ApplicationNumber) {
        guard let known = core.application(number) else { return }
        letGo(number, sparingMain: known.stop.isSignalledByOthers)
    }

    func lookForUnread(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        objections.lookForUnread(application) { [weak self] isUnread in
            if isUnread { self?.core.report(.unread(number)) }
        }
    }

    /// Completes everything that was begun, because the daemon ends.
    func finish() {
        kills.finishAll()
        for (number, release) in releases where isDone(releasing: number) { haveReleased(release) }
    }

    func resume(_ number: ApplicationNumber, sparingMain: Bool) {
        release(number, .resumption, sparingMain)
    }

    /// Continues the processes that the daemon has stopped, unless another holder wants them stopped.
    func letGo(_ number: ApplicationNumber, sparingMain: Bool) {
        release(number, .surrender, sparingMain)
    }

    private func release(_ number: ApplicationNumber, _ purpose: Release.Purpose, _ sparingMain: Bool) {
        guard let application = table[number] else { return }
        objections.forget(number)
        release(Release(application: application, purpose: purpose, sparingMain: sparingMain))
    }

    /// Releases it, and reports that it runs. This replaces a stop in progress. A cgroup that cannot be thawed now, for
    /// example because of a lack of descriptors, is thawed once that is possible.
    private func release(_ release: Release) {
        let number = release.application.number
        retry.cancel(number)
        orders[number] = nil
        if kills.isUnderWay(number) {
            deferred[number] = release
            return
        }
        releases[number] = release
        if isDone(releasing: number) { return haveReleased(release) }
        retry.schedule(number) { [weak self] in
            guard let self, let release = releases[number] else { return true }
            guard isDone(releasing: number) else { return false }
            haveReleased(release)
            // The report may contain nothing new, but the record still has the holds.
            records.rewrite(number)
            return true
        }
    }

    private func isDone(releasing number: ApplicationNumber) -> Bool {
        guard let release = releases[number] else { return true }
        let application = release.application
        application.suspender.release(sparing: isSparingMain(release) ? [application.process] : [])
        logFailures(of: application)
        if application.suspender.isFreezeOurs { return false }
        releases[number] = nil
        return true
    }

    /// Whether another process wants the main process stopped. It may not have been seen yet: only a person's `Resume`
    /// ends its stop.
    private func isSparingMain(_ release: Release) -> Bool {
        if release.sparingMain { return true }
        if core.application(release.application.number)?.stop.isLifting == true { return false }
        return release.application.suspender.hasOthersStop
    }

    private func haveReleased(_ release: Release) {
        let application = release.application
        switch release.purpose {
        case .resumption:
            let stop = core.application(application.number)?.stop
            if release.sparingMain {
                // The other holder's stop may still have to take effect; how it ends is observed separately.
                if stop?.isSignalledByOthers == false { reportResumed(application) }
                return
            }
            // A holder that was seen since wants it stopped, and the daemon must not end that stop.
            if stop?.others != nil { return reportResumed(application) }
            // Only a person's `Resume` ends a stop that is not the daemon's.
            guard stop?.isLifting == true else { return reportResumed(application) }
            if anothersFreeze(of: application) != nil { return continueForeign(application.number) }
            if (try? proc.hasStop(application.process)) == true { continueMain(application) }
            reportResumed(application)
        case .surrender:
            reportResumed(application)
            // Another process may have frozen it meanwhile.
            sensor.look(at: application.number)
        case .removal:
            noteLetGo(application.number)
        }
    }

    /// Whether a process still has our SIGSTOP, and no other holder's, from an application that was removed.
    func isLettingGo(_ process: ProcessIdentity) -> Bool {
        removals.contains { $0.application.suspender.holds(process) }
    }

    /// All of its processes have got SIGKILL, except those that the daemon may not signal.
    func haveKilled(_ number: ApplicationNumber) {
        if let release = deferred.removeValue(forKey: number) { self.release(release) }
        // A process that the daemon may not signal keeps running.
        records.rewrite(number)
        noteLetGo(number)
    }

    private func noteLetGo(_ number: ApplicationNumber) {
        if table[number] == nil, releases[number] == nil, !kills.isUnderWay(number) {
            records.haveLetGo(number)
        }
    }

    /// Ends another holder's stop, because an entitled caller has asked for it.
    func continueForeign(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        let failures = Extent.signal(
            SIGCONT, toAllOf: application.process, owner: application.user, proc: proc,
            isForeign: table.isForeign
        ).failures
        if anothersFreeze(of: application) != nil, let own = table.ownCgroup(of: application) {
            thawOthers(within: own, application)
        }
        for failure in failures where !failure.isNoSuchProcess { log(failure, of: application) }
        // By now it must be stopped: if it runs for a moment, no other process has continued it.
        if orders[number] != .waiting { reportResumed(application) }
    }

    /// A freeze that also holds other applications must not be lifted for this one.
    private func thawOthers(within own: Cgroup, _ application: Registered) {
        for _ in 0..<Standings.mostLevels {
            guard let cgroup = anothersFreeze(of: application), cgroup.isWithin(own) else { return }
            do {
                try cgroup.thaw()
            } catch {
                return log(error, of: application)
            }
        }
    }

    /// Ends it by force, as a whole.
    func kill(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        if let release = releases.removeValue(forKey: number) {
            retry.cancel(number)
            deferred[number] = release
        }
        kills.kill(application, stands: standings.isFrozenAsWhole(application))
    }

    func remove(_ application: Registered) {
        let number = application.number
        objections.forget(number)
        standings.unwatch(number)
        retry.cancel(number)
        orders[number] = nil
        let former = releases.removeValue(forKey: number) ?? deferred.removeValue(forKey: number)
        // Its surviving processes must not stay stopped without a hold.
        let release = Release(
            application: application, purpose: .removal, sparingMain: former?.sparingMain ?? false)
        guard kills.isUnderWay(number) else { return self.release(release) }
        // None of its processes may fork before the kill is done.
        deferred[number] = release
        kills.finish(number)
    }

    /// The application's cgroup, if another process has ordered it to freeze.
    private func anothersFreeze(of application: Registered) -> Cgroup? {
        application.suspender.isFreezeOurs ? nil : standings.toldCgroup(of: application.number)
    }

    private func continueMain(_ application: Registered) {
        // The process may have ended, or belong to another user. In that case we must not continue it.
        try? Extent.signal(SIGCONT, toOnly: application.process, owner: application.user, proc: proc)
    }

    /// Reports the release, and the standing of its main process after it, as soon as that is known.
    private func reportResumed(_ application: Registered) {
        let number = application.number
        if haveReported(application) { return }
        reports.schedule(number) { [weak self] in
            guard let self, let application = table[number], orders[number] == nil, releases[number] == nil
            else { return true }
            return haveReported(application)
        }
    }

    /// SIGCONT wakes a process before kill(2) returns, so a process that is still stopped was stopped again. A stop by
    /// another process that was pending beneath the daemon's freeze still has to take effect.
    private func haveReported(_ application: Registered) -> Bool {
        let number = application.number
        let standing: Standing
        do throws(KernelFailure) {
            guard let present = try standings.read(number) else { return true }
            standing = present
        } catch {
            return false
        }
        if standing.signal == .pending, standing.freeze == nil { return false }
        // While an order is in progress, an observed stop may be the daemon's own.
        let isDone = releases[number] == nil && !application.suspender.holdsAnybody
        core.report(isDone ? .resumeCompleted(number, standing) : .looked(number, standing))
        return true
    }

    private func logFailures(of application: Registered) {
        for failure in application.suspender.takeUntoldFailures()
        where !failure.isNoSuchProcess && !failure.isNoSuchFile {
            log(failure, of: application)
        }
    }

    private func log(_ failure: KernelFailure, of application: Registered) {
        journal.log(.notice, failure: "\(failure)", of: application)
    }

    private func hasEnded(_ process: ProcessIdentity) -> Bool {
        do throws(KernelFailure) {
            return [.zombie, .dead].contains(try proc.state(of: process))
        } catch {
            return error.isNoSuchProcess || error.isNoSuchFile
        }
    }

    /// The kernel has reported a freeze or thaw.
    private func freezeChanged(_ number: ApplicationNumber) {
        guard orders[number] == .stopping, let application = table[number] else {
            sensor.look(at: number)
            return
        }
        // The daemon's own freeze, on its way.
        let progress = application.suspender.proceed(isForeign: table.isForeign)
        _ = isComplete(number, progress)
    }

    // MARK: After another daemon

    /// Takes over the stop that an earlier daemon had made, or was about to make. Which of the stopped processes it had
    /// stopped is not known.
    func adopt(_ application: Registered, _ hold: Hold?) {
        held.insert(application.number)
        switch hold {
        case .frozen:
            if let cgroup = hierarchy.flatMap({ hold?.cgroup(in: $0) }) {
                application.suspender.adopt(frozen: cgroup)
            }
        case .signalled:
            application.suspender.adopt(
                stopped: Extent.members(of: application.process, proc: proc, isForeign: table.isForeign),
                standing: [])
        case nil: break
        }
    }

    /// Whether its main process has a SIGSTOP that is in effect or pending, as far as that can be determined.
    func isSignalled(_ number: ApplicationNumber) -> Bool {
        standings.standing(of: number).map { $0.signal != .none } ?? true
    }

    /// Releases processes that no hold requires to be stopped: the previous daemon had dropped its hold, and
    /// ended before it could act on that.
    func releaseUnheld(_ number: ApplicationNumber) {
        guard let known = core.application(number), known.holds.isEmpty, known.stop.enforcement == .none,
            table[number]?.suspender.holdsAnybody == true
        else { return }
        resume(number, sparingMain: known.stop.isSignalledByOthers)
    }
}
