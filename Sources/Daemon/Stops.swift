import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Carries out stops and continuations of applications, and says what came of them.
final class Stops {
    private let proc: Proc
    private let journal: Journal
    private let hierarchy: UnifiedHierarchy?
    private let ownCgroup: Cgroup?
    private let report: (Fact) -> Void
    private let isForeign: (ProcessIdentity) -> Bool
    private let find: (ApplicationNumber) -> Registered?
    private let application: (ApplicationNumber) -> Application?
    private let retries: Retries<ApplicationNumber>
    private let kills: Kills
    /// A quarter of the descriptors that we may have.
    private let budget = DescriptorBudget(ResourceLimit.openFiles / 4)
    private var freezes: FreezeSensor?
    private let looks: Looks<LookSubject, LookFinding>
    private var locks: LockSensor?
    /// What is under way, and what is to become of it. A later order takes its place, and an answer to an earlier one is
    /// nobody's.
    private var orders: [ApplicationNumber: Order] = [:]
    private var lastToken: UInt64 = 0
    private let now: () -> Microseconds
    private var unverified: Set<ApplicationNumber> = []
    /// Those that were stopped by us, and perhaps are no longer.
    private var held: Set<ApplicationNumber> = []
    private var verification: Timer?

    /// Not frozen by then, a cgroup is thawed and tried again later (§ 5).
    private static let longestFreeze: Microseconds = 500_000

    /// A look at two hundred processes takes milliseconds of a processor that others wait for.
    private static let verificationLag: Microseconds = 5_000

    private struct Order {
        enum Phase {
            /// It is looked at whether something speaks against the stop; nothing was done yet.
            case asking
            /// It is being stopped.
            case stopping
            /// It stands, and is looked at again.
            case checking
            /// It stands, and it is looked at whether it has something to read.
            case breathing
        }

        let token: UInt64
        let phase: Phase
    }

    /// How long a look may take, with those that come first: before a stop, when nobody is kept waiting, and after it.
    private static let patience: (before: Microseconds, after: Microseconds) = (30_000_000, 10_000_000)

    /// Where an application's extent ends: at these.
    var foreign: () -> Set<ProcessIdentity> = { [] }
    /// Called before an application is stopped in another way than was written down; says why it could not be.
    var writeDown: (ApplicationNumber) -> KernelFailure? = { _ in nil }

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds,
        find: @escaping (ApplicationNumber) -> Registered?,
        application: @escaping (ApplicationNumber) -> Application?,
        isForeign: @escaping (ProcessIdentity) -> Bool, report: @escaping (Fact) -> Void
    ) throws {
        self.proc = proc
        self.journal = journal
        self.now = now
        self.report = report
        self.isForeign = isForeign
        self.find = find
        self.application = application
        hierarchy = try? UnifiedHierarchy.find(proc: proc)
        ownCgroup = hierarchy.flatMap { try? Cgroup.of(getpid(), in: $0, proc: proc) }
        retries = try Retries(loop: loop, now: now)
        looks = try Looks(loop: loop, name: "appstated-look", now: now)
        kills = try Kills(loop: loop, proc: proc, journal: journal, now: now, isForeign: isForeign)
        freezes = FreezeSensor(loop: loop, proc: proc, hierarchy: hierarchy) { [weak self] in
            self?.freezeChanged($0)
        }
        verification = try loop.timer { [weak self] in self?.verify() }
        locks = try LockSensor(loop: loop, proc: proc, now: now, looks: looks) { report(.objected($0, $1)) }
    }

    /// The kernel's events are deaf on some CPU.
    func renewEvents() { locks?.renew() }

    /// The application's own cgroup, if it has one.
    func ownCgroup(of application: Registered) -> Cgroup? { application.suspender.ownCgroup(isForeign) }

    /// The directory of the application's own cgroup, where it has weights.
    func weighableCgroup(of application: Registered) -> String? {
        guard let directory = ownCgroup(of: application)?.directory,
            access(directory + "/cpu.weight", F_OK) == 0
        else { return nil }
        return directory
    }

    func suspender(_ process: ProcessIdentity, _ user: UInt32) -> Suspender {
        Suspender(
            proc: proc, hierarchy: hierarchy, main: process, owner: user, daemon: ownCgroup, budget: budget)
    }

    func watch(_ application: Registered) {
        let number = application.number
        application.suspender.fellBack = { [unowned self] in writeDown(number) }
        freezes?.watch(number, application.process)
        held = held.filter { find($0)?.suspender.holdsAnybody == true }
        if let other = holder(of: application.process) {
            other.suspender.letGo(application.process)
            _ = writeDown(other.number)
        }
        // It was of another's extent until now, and may have been frozen with it: that cgroup is judged anew.
        guard !held.isEmpty, let hierarchy,
            let cgroup = try? Cgroup.of(application.process.pid, in: hierarchy, proc: proc)
        else { return }
        for other in held where other != number {
            guard let suspender = find(other)?.suspender, suspender.isFreezeOurs else { continue }
            if suspender.frozen.map(cgroup.isWithin) == true { verifySoon(other) }
        }
    }

    /// The application with which we have stopped a process by signal that is none itself.
    func holder(of process: ProcessIdentity) -> Registered? {
        held.lazy.compactMap(find).first {
            $0.process != process && $0.suspender.stoppedByUs.contains(process)
        }
    }

    // MARK: Orders

    /// Chooses how it will be stopped: to be written down before it is.
    func prepare(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        application.suspender.prepare(isForeign: isForeign)
    }

    /// What could not be written down is not done; what had been begun of it before is taken back.
    func refuse(_ number: ApplicationNumber, _ failure: KernelFailure) {
        guard let application = find(number) else { return }
        retries.cancel(number)
        orders[number] = nil
        locks?.unwatch(number)
        application.suspender.release()
        if application.suspender.isFreezeOurs { releaseLater(number, sparingMain: false) }
        report(.stopFailed(number, Self.unrecorded(failure)))
        reportIfRunning(application)
    }

    private static func unrecorded(_ failure: KernelFailure) -> String {
        "it could not be recorded: \(failure)"
    }

    func stop(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        retries.cancel(number)
        guard isByPolicy(number) else { return carryOut(number) }
        let token = begin(number, .asking)
        look(at: application, isUrgent: false, within: Self.patience.before) { [weak self] answer in
            guard let self, isCurrent(number, token), let application = find(number) else { return }
            if isByPolicy(number), let why = Self.objection(in: answer) {
                return giveWay(application, to: why)
            }
            carryOut(number)
        }
    }

    /// A person wants what only policy has wanted so far: that is no matter of looks.
    func hurry(_ number: ApplicationNumber) {
        guard let application = find(number), !isByPolicy(number) else { return }
        switch orders[number]?.phase {
        case .asking?: carryOut(number)
        case .checking?: if stands(number, application.process) == true { complete(number) }
        case .stopping?, .breathing?, nil: break
        }
    }

    private func begin(_ number: ApplicationNumber, _ phase: Order.Phase) -> UInt64 {
        lastToken += 1
        orders[number] = Order(token: lastToken, phase: phase)
        return lastToken
    }

    private func isCurrent(_ number: ApplicationNumber, _ token: UInt64) -> Bool {
        orders[number]?.token == token
    }

    private func carryOut(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        _ = begin(number, .stopping)
        held.insert(number)
        let progress = application.suspender.stop(isForeign: isForeign)
        // While it freezes: its cgroup may be another than before.
        freezes?.watch(number, application.process)
        if !isComplete(number, progress) { tryAgain(application) }
    }

    /// The kernel holds the notification of a freeze back, 14 ms were seen: it is looked at as well, for as long as it
    /// may take.
    private func tryAgain(_ application: Registered) {
        let number = application.number
        let patience = application.suspender.frozen == nil ? .max / 2 : Self.longestFreeze
        retries.start(number, for: patience) { [weak self] in
            guard let self, let application = find(number) else { return true }
            return isComplete(number, application.suspender.proceed(isForeign: isForeign))
        } givenUp: { [weak self] in
            self?.giveUp(number)
        }
    }

    private func isComplete(_ number: ApplicationNumber, _ progress: Suspender.Progress) -> Bool {
        guard let application = find(number) else { return true }
        switch progress {
        case .complete:
            logFailures(of: application)
            if isByPolicy(number) { check(application) } else { complete(number) }
            return true
        case .pending:
            if application.suspender.isUnrecorded, let failure = application.suspender.failures.last {
                orders[number] = nil
                report(.stopFailed(number, Self.unrecorded(failure)))
                return true
            }
            guard application.suspender.isOutOfReach, let failure = application.suspender.failures.last else {
                return false
            }
            // Its main process is out of our reach: that will not change by waiting.
            logFailures(of: application)
            orders[number] = nil
            report(.stopFailed(number, failure.description))
            return true
        }
    }

    private func complete(_ number: ApplicationNumber) {
        orders[number] = nil
        report(.stopped(number, holder: nil))
        verifySoon(number)
    }

    /// It stands: what speaks against it now, spoke against it before (§ 2).
    private func check(_ application: Registered) {
        let number = application.number
        let token = begin(number, .checking)
        look(at: application, isUrgent: true, within: Self.patience.after) { [weak self] answer in
            guard let self, isCurrent(number, token), let application = find(number) else { return }
            if isByPolicy(number), let why = Self.objection(in: answer) {
                return giveWay(application, to: why)
            }
            if stands(number, application.process) == false {
                // Somebody has continued it meanwhile.
                _ = begin(number, .stopping)
                return tryAgain(application)
            }
            let isByPolicy = isByPolicy(number)
            complete(number)
            if isByPolicy, case .success(.objections(let found)) = answer {
                locks?.watch(number, of: application.user, found.pids)
            }
        }
    }

    /// It may stand: a daemon before this one stopped it.
    private func giveWay(_ application: Registered, to why: String) {
        let number = application.number
        orders[number] = nil
        locks?.unwatch(number)
        letRun(application)
        report(.objected(number, why))
        if application.suspender.isFreezeOurs { return releaseLater(number, sparingMain: false) }
        reportIfRunning(application)
        // Somebody else may have frozen it while we looked.
        freezeChanged(number)
    }

    /// What we have stopped of it runs, unless somebody else wants it stopped.
    private func letRun(_ application: Registered) {
        let isForeign = self.application(application.number)?.foreignStop != nil
        application.suspender.release(sparing: isForeign ? [application.process] : [])
    }

    /// Not before those whom the announcement wakes have had their turn: who stands changes no more.
    private func verifySoon(_ number: ApplicationNumber) {
        if unverified.isEmpty { verification?.arm(at: now() + Self.verificationLag) }
        unverified.insert(number)
    }

    /// Reported as what it is, a continuation against a hold, a thaw has the life cycle order the stop anew, by
    /// signal then.
    private func verify() {
        let numbers = unverified
        unverified = []
        for number in numbers {
            // Who dies is in no cgroup any more.
            guard let application = find(number), self.application(number)?.isTerminating != true,
                !hasEnded(application.process),
                !application.suspender.verify(isForeign: isForeign)
            else { continue }
            if application.suspender.isFreezeOurs {
                releaseLater(number, sparingMain: false)
                continue
            }
            let why = application.suspender.objection ?? "its cgroup is no longer its own"
            journal.log(.notice, "thawed: \(why)", about: application, as: .thawed, [(.reason, why)])
            report(.continued(number))
        }
    }

    private func giveUp(_ number: ApplicationNumber) {
        guard let application = find(number), let cgroup = application.suspender.frozen else { return }
        orders[number] = nil
        application.suspender.release()
        let why = "\(cgroup) was not frozen within \(Self.longestFreeze / 1_000) ms"
        journal.log(.notice, why, about: application, as: .thawed, [(.reason, why)])
        report(.stopFailed(number, why))
    }

    /// Nobody has asked for it: whatever speaks against it counts.
    private func isByPolicy(_ number: ApplicationNumber) -> Bool {
        application(number)?.isHeldByDecision ?? false
    }

    /// Looks from another thread at what speaks against a suspension that nobody has asked for.
    func look(
        at application: Registered, isUrgent: Bool, within span: Microseconds,
        _ answer: @escaping (Looks<LookSubject, LookFinding>.Answer) -> Void
    ) {
        let number = application.number
        looks.ask(
            .objections(number), of: application.user, isUrgent: isUrgent, within: span,
            makeJob: { [weak self] in
                guard let look = self?.extentLook(number) else { return nil }
                return { .objections(look.objections()) }
            }, answer: answer)
    }

    private func extentLook(_ number: ApplicationNumber) -> ExtentLook? {
        find(number).map {
            ExtentLook(proc: proc, main: $0.process, cgroup: $0.suspender.frozen, foreign: foreign())
        }
    }

    /// Why policy must not stop it, by what a look has found. What could not be looked at is not stopped.
    private static func objection(in answer: Looks<LookSubject, LookFinding>.Answer) -> String? {
        switch answer {
        case .success(.objections(let found)): found.reasons.first
        case .success: nil
        case .failure(let failure): failure.description
        }
    }

    /// Lets it run, if something waits to be read by it, or if that cannot be told.
    func breathe(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        let token = begin(number, .breathing)
        looks.ask(.unread(number), of: application.user, within: Self.patience.after) { [weak self] in
            guard let look = self?.extentLook(number) else { return nil }
            return { .unread(look.hasUnread()) }
        } answer: { [weak self] answer in
            // The breath may be over: the next stop ends it.
            guard let self, isCurrent(number, token), let application = find(number) else { return }
            orders[number] = nil
            if case .success(.unread(false)) = answer { return }
            locks?.unwatch(number)
            letRun(application)
        }
    }

    /// There are no more looks: the daemon ends.
    func close() {
        orders = [:]
        looks.close()
    }

    func resume(_ number: ApplicationNumber, sparingMain: Bool) {
        guard let application = find(number) else { return }
        retries.cancel(number)
        orders[number] = nil
        locks?.unwatch(number)
        application.suspender.release(sparing: sparingMain ? [application.process] : [])
        logFailures(of: application)
        if application.suspender.isFreezeOurs { return releaseLater(number, sparingMain: sparingMain) }
        if sparingMain { return }
        // It may have been stopped before we did, by somebody who has given it up since.
        if (try? proc.isStopped(application.process)) == true { continueMain(application) }
        reportIfRunning(application)
    }

    /// A cgroup that cannot be thawed just now, for want of descriptors, say, is once it can be.
    private func releaseLater(_ number: ApplicationNumber, sparingMain: Bool) {
        retries.start(number, for: .max / 2) { [weak self] in
            guard let self, let application = find(number) else { return true }
            application.suspender.release(sparing: sparingMain ? [application.process] : [])
            if application.suspender.isFreezeOurs { return false }
            if !sparingMain { reportIfRunning(application) }
            return true
        }
    }

    /// Ends another's stop, because somebody who may has asked for it.
    func continueForeign(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        let failures = Extent.signal(
            SIGCONT, to: application.process, owner: application.user, proc: proc, isForeign: isForeign)
        for failure in failures where !failure.isNoSuchProcess { log(failure, of: application) }
        if let cgroup = freezes?.toldCgroup(of: number), !application.suspender.isFreezeOurs {
            // A freeze that holds others too is not this application's to lift.
            if application.suspender.ownCgroup(isForeign) == cgroup {
                do {
                    try cgroup.thaw()
                } catch {
                    log(error, of: application)
                }
            } else {
                report(.stopped(number, holder: "cgroup \(cgroup.name)"))
            }
        }
        reportIfRunning(application)
    }

    /// Ends it by force, whole.
    func kill(_ number: ApplicationNumber) {
        guard let application = find(number) else { return }
        kills.kill(application, isFrozen: freezes?.toldCgroup(of: number) != nil)
    }

    func remove(_ application: Registered) {
        retries.cancel(application.number)
        orders[application.number] = nil
        kills.finish(application.number)
        locks?.unwatch(application.number)
        freezes?.unwatch(application.number)
        // Whoever of it lives on must not stay stopped without a hold.
        application.suspender.release()
    }

    private func continueMain(_ application: Registered) {
        _ = Extent.signal(
            SIGCONT, to: application.process, owner: application.user, proc: proc,
            isForeign: { [isForeign, main = application.process] in isForeign($0) || $0 != main })
    }

    /// SIGCONT wakes its process before kill(2) returns: a process that is still stopped was stopped anew.
    private func reportIfRunning(_ application: Registered) {
        if stands(application.number, application.process) == false { report(.continued(application.number)) }
    }

    private func logFailures(of application: Registered) {
        for failure in application.suspender.failures
        where !failure.isNoSuchProcess && !failure.isNoSuchFile {
            log(failure, of: application)
        }
    }

    private func log(_ failure: KernelFailure, of application: Registered) {
        journal.log(.notice, failure: "\(failure)", of: application)
    }

    // MARK: What is

    /// Whether the process executes nothing: stopped, or frozen with its cgroup. nil: it has ended.
    func stands(_ number: ApplicationNumber, _ process: ProcessIdentity) -> Bool? {
        guard let state = try? proc.state(of: process), state != .zombie, state != .dead else { return nil }
        if state == .stopped { return true }
        // Of one that stands already, the order counts: in between its cgroup may be unfrozen for a moment.
        let isStopped = application(number)?.isStopped == true
        return (isStopped ? freezes?.toldCgroup(of: number) : freezes?.frozenCgroup(of: number)) != nil
    }

    private func hasEnded(_ process: ProcessIdentity) -> Bool {
        do throws(KernelFailure) {
            return [.zombie, .dead].contains(try proc.state(of: process))
        } catch {
            return error.isNoSuchProcess || error.isNoSuchFile
        }
    }

    /// Whether it executes, and no SIGSTOP waits for it to do so, as after a thaw.
    private func runs(_ number: ApplicationNumber, _ process: ProcessIdentity) -> Bool {
        // Asked for the signal first: one that works in between is seen in the state.
        (try? proc.hasPendingStop(process.pid)) == false && stands(number, process) == false
    }

    /// Whether somebody else's SIGSTOP waits for a frozen process to run, to stop it then.
    func hasPendingStop(_ number: ApplicationNumber, _ process: ProcessIdentity) -> Bool {
        freezes?.frozenCgroup(of: number) != nil && (try? proc.hasPendingStop(process.pid)) == true
    }

    /// Whether somebody else's stop holds a process beneath our freeze: it is stopped as well, or will be once it is
    /// thawed. nil: it is not frozen by us.
    func hasStopBeneath(_ number: ApplicationNumber, _ process: ProcessIdentity) -> Bool? {
        guard let suspender = find(number)?.suspender, suspender.isFreezeOurs,
            let cgroup = freezes?.frozenCgroup(of: number), cgroup == suspender.frozen,
            let isStopped = try? proc.isStopped(process)
        else { return nil }
        return isStopped || (try? proc.hasPendingStop(process.pid)) == true
    }

    /// Looks at the cgroup of an application, and reports what has become of it.
    func freezeChanged(_ number: ApplicationNumber) {
        guard let registered = find(number), let application = application(number) else { return }
        if application.enforcement == .stopping {
            // Ours, on its way. While it is looked at, the answer decides how it goes on.
            guard orders[number]?.phase == .stopping else { return }
            if isComplete(number, registered.suspender.proceed(isForeign: isForeign)) {
                retries.cancel(number)
            }
            return
        }
        switch (freezes?.frozenCgroup(of: number), application.enforcement) {
        case (let cgroup?, .none) where !application.isStopped:
            report(.stopped(number, holder: "cgroup \(cgroup.name)"))
        case (nil, _) where application.isStopped && runs(number, registered.process):
            // Somebody has moved it: what we froze is another's now, or nobody's.
            if registered.suspender.holdsOthersOnly { registered.suspender.release() }
            report(.continued(number))
        case (_?, .none), (_, .stopped), (_, .stopping), (_, .continuing), (nil, .none):
            break
        }
    }

    // MARK: After another daemon

    /// Takes up what an earlier daemon had stopped, or was about to.
    func adopt(_ application: Registered, _ holding: Holding) {
        if let freeze = holding.freeze, let hierarchy, let cgroup = freeze.cgroup(in: hierarchy) {
            application.suspender.adopt(frozen: cgroup)
        } else if holding.stop != nil || !holding.stopped.isEmpty {
            application.suspender.adopt(
                stopped: holding.stoppedProcesses(proc: proc, isForeign: isForeign),
                standing: holding.stop?.standing ?? [])
        }
    }

    /// Lets go what nothing wants held: the daemon before had dropped its hold, and ended before it could act on that.
    func releaseUnheld(_ number: ApplicationNumber) {
        guard let known = application(number), known.holds.isEmpty, known.enforcement == .none,
            find(number)?.suspender.holdsAnybody == true
        else { return }
        resume(number, sparingMain: known.foreignStop != nil)
    }
}
