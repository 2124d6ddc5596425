import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Freezes applications, or stops them by signal where no cgroup is their own; ends that again; and kills them.
///
/// Nothing is frozen or stopped that was not recorded before. Whether a cgroup is an application's own is judged at the
/// moment of each act.
final class Freezer {
    private let proc: Proc
    private let journal: Journal
    private let core: Core
    private let table: ApplicationTable
    private let records: Records
    private let stopReader: StopReader
    private let sensor: StopSensor
    private let objections: ObjectionSensor
    private let scopes: Scopes
    private let retry: Retry<ApplicationNumber>
    /// Reads a main process that is about to run.
    private let reports: Retry<ApplicationNumber>
    private var work: [ApplicationNumber: Work] = [:]
    private var lastQuestion: UInt64 = 0

    /// The order in progress; a later one replaces it.
    private enum Work: Equatable {
        /// A session agent was asked for a scope.
        case moving(UInt64)
        case freezing(Cgroup)
        case signalling
        /// Its cgroup cannot be thawed yet, for example because of a lack of descriptors.
        case releasing
    }

    /// A cgroup that is not frozen by then is thawed and tried again later (§ 5). It is a little less than the 500 ms
    /// that a call waits (`Daemon.longestWait`), because the failure must be the answer of that call.
    private static let longestFreeze: Microseconds = 450_000
    /// How often an application that is to be killed is searched for processes that are not stopped.
    private static let mostRounds = 16
    /// For each stop: the application itself, what it forks meanwhile, and others and servers in its unit.
    private static let mostQuestions = 16

    init(
        loop: EventLoop, proc: Proc, journal: Journal, now: @escaping () -> Microseconds, core: Core,
        table: ApplicationTable, records: Records, stopReader: StopReader, sensor: StopSensor,
        objections: ObjectionSensor, scopes: Scopes
    ) throws {
        self.proc = proc
        self.journal = journal
        self.core = core
        self.table = table
        self.records = records
        self.stopReader = stopReader
        self.sensor = sensor
        self.objections = objections
        self.scopes = scopes
        retry = try Retry(loop: loop, now: now)
        reports = try Retry(loop: loop, now: now)
    }

    // MARK: Applications come and go

    /// A new application. Until now its process was another one's, and may have been stopped with that.
    func watch(_ application: Registered) {
        stopReader.watch(application.number)
        let cgroup = table.cgroup(of: application.process)
        for other in table.all where other !== application {
            other.signals?.release(from: application.process)
            guard let frozen = table.frozenCgroup(of: other), cgroup?.isWithin(frozen) == true
            else { continue }
            // It is stopped again, by other means.
            release(other) { [sensor] in sensor.readStop(of: other.number) }
        }
    }

    /// Its process has ended, or it is no longer an application. What is left of it must not stay stopped.
    func remove(_ application: Registered) {
        let number = application.number
        objections.forget(number)
        stopReader.unwatch(number)
        cancel(number)
        release(application) { [records] in records.haveLetGo(number) }
    }

    /// Whether a process is stopped by signal with an application that it is not the main process of.
    func isStopped(_ process: ProcessIdentity) -> Bool {
        table.all.contains { $0.process != process && $0.signals?.holds(process) == true }
    }

    /// Takes over what an earlier daemon had done to an application, or was about to do.
    func adopt(_ application: Registered, _ hold: Hold?) {
        application.hold = hold
        guard hold == .signalled else { return }
        let members = Extent.members(of: application.process, proc: proc, isForeign: table.isForeign)
        // Their parents may have ended meanwhile. The record names them, because it has their OOM scores.
        let orphans = application.originals.processes.filter { !table.isForeign($0) }
        let signals = signalStop(of: application)
        signals.adopt(members + orphans.sorted { $0.startTime < $1.startTime })
        application.signals = signals
        application.freezerObjection = "an earlier daemon has stopped it by signal"
    }

    /// Ends a hold that nothing requires: the previous daemon had ended before it could.
    func releaseUnheld(_ number: ApplicationNumber) {
        guard let known = core.application(number), known.holds.isEmpty, known.stop.enforcement == .none,
            table[number]?.hold != nil
        else { return }
        resume(number)
    }

    /// Whether its main process has a SIGSTOP that is in effect or pending, as far as that can be determined.
    func isSignalled(_ number: ApplicationNumber) -> Bool {
        stopReader.reading(of: number).map { $0.signal != .none } ?? true
    }

    /// Completes the releases that were begun, because the daemon ends.
    func finish() {
        for (number, order) in work where order == .releasing {
            if let application = table[number] { _ = endHold(application) }
        }
    }

    // MARK: Stopping

    /// Its state has changed. Its process may also have been moved to another cgroup, whose freezes are to be seen:
    /// nothing reports that.
    func noteState(_ application: Registered) {
        objections.noteState(application)
        stopReader.watch(application.number)
    }

    /// Checks for objections to its stop.
    func check(_ number: ApplicationNumber, isStopped: Bool) {
        if let application = table[number] { objections.check(application, isStopped: isStopped) }
    }

    func checkUnread(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        objections.checkUnread(application) { [core] isUnread in
            if isUnread { core.report(.unread(number)) }
        }
    }

    func stop(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        // The result of a check from before this stop no longer counts.
        objections.forget(number)
        begin(application, questions: Self.mostQuestions)
    }

    /// - Parameters:
    ///   - questions: how often a session agent may still be asked for a scope.
    ///   - failure: why it has not made one.
    private func begin(_ application: Registered, questions: Int, _ failure: String? = nil) {
        cancel(application.number)
        // What is stopped by signal stays so until it is released, by an earlier daemon as well.
        if application.hold == .signalled {
            return signal(application, because: application.freezerObjection)
        }
        let answer = table.judge(application)
        if case .own(let cgroup) = answer { return freeze(application, cgroup) }
        if questions > 0, isMoving(application, because: answer, questions) { return }
        signal(application, because: answer.words + (failure.map { "; no scope: \($0)" } ?? ""))
    }

    private func freeze(_ application: Registered, _ cgroup: Cgroup) {
        let number = application.number
        do throws(KernelFailure) {
            let hold = try Hold(freezing: cgroup)
            guard isFree(application, for: hold) else { return }
            // What another process has frozen is not ours to thaw.
            let isOurs = application.hold == hold
            if try isOurs ? true : !cgroup.wantsFrozen() {
                if let failure = record(hold, of: application) { return refuse(number, failure) }
                try cgroup.mark()
                try cgroup.freeze()
            }
            application.signals = nil
        } catch {
            return signal(application, because: "\(error)")
        }
        work[number] = .freezing(cgroup)
        // Its cgroup may be another one than before.
        stopReader.watch(number)
        if hasFrozen(number) { return }
        // The kernel delays the notification of a freeze, 14 ms were seen.
        retry.schedule(number, for: Self.longestFreeze) { [weak self] in
            self?.hasFrozen(number) ?? true
        } giveUp: { [weak self] in
            self?.giveUp(number, cgroup)
        }
    }

    /// Whether there is nothing more to wait for.
    private func hasFrozen(_ number: ApplicationNumber) -> Bool {
        guard let application = table[number], case .freezing(let cgroup)? = work[number] else { return true }
        do throws(KernelFailure) {
            guard try cgroup.isFrozen(), try cgroup.unfrozenDescendants().isEmpty else { return false }
            haveStopped(application)
            return true
        } catch {
            guard error.isNoSuchCgroup else { return false }
            // Its processes were moved, or have ended.
            begin(application, questions: 0)
            return true
        }
    }

    /// The life cycle then ends the hold.
    private func giveUp(_ number: ApplicationNumber, _ cgroup: Cgroup) {
        guard let application = table[number] else { return }
        let why = "\(cgroup) was not frozen within \(Self.longestFreeze / 1_000) ms"
        journal.log(.notice, why, about: application, as: .thawed, [(.reason, why)])
        core.report(.stopFailed(number, why))
    }

    private func signal(_ application: Registered, because why: String) {
        let number = application.number
        guard isFree(application, for: .signalled) else { return }
        let isHeld = application.hold == .signalled
        if let failure = record(.signalled, of: application) { return refuse(number, failure) }
        application.freezerObjection = why
        if !isHeld || application.signals == nil { application.signals = signalStop(of: application) }
        work[number] = .signalling
        stopReader.watch(number)
        if !isSignalled(application) {
            retry.schedule(number) { [weak self] in
                self?.table[number].flatMap { self?.isSignalled($0) } ?? true
            }
        }
    }

    /// Whether there is nothing more to wait for.
    private func isSignalled(_ application: Registered) -> Bool {
        let number = application.number
        guard work[number] == .signalling, let signals = application.signals else { return true }
        switch signals.stop(isForeign: table.isForeign) {
        case .complete: haveStopped(application)
        case .pending: return false
        case .contested: core.report(.contested(number))
        case .refused(let failure):
            let rights = proc.otherRights(of: application.process.pid, than: application.user)
            core.report(.stopFailed(number, rights ?? failure.description))
        }
        return true
    }

    private func haveStopped(_ application: Registered) {
        let number = application.number
        cancel(number)
        if let signals = application.signals { log(signals.failures, of: application) }
        // Another process may have frozen or stopped it meanwhile.
        sensor.readStop(of: number)
        core.report(.stopCompleted(number))
    }

    private func refuse(_ number: ApplicationNumber, _ failure: KernelFailure) {
        core.report(.stopFailed(number, "it could not be recorded: \(failure)"))
    }

    /// Records a hold before it takes effect. Returns why that failed.
    private func record(_ hold: Hold, of application: Registered) -> KernelFailure? {
        if application.hold == hold { return nil }
        application.hold = hold
        let failure = records.write(application.number)
        if failure != nil { application.hold = nil }
        return failure
    }

    /// Whether it is not held otherwise. If it is, that ends first, and then the stop begins again.
    private func isFree(_ application: Registered, for hold: Hold) -> Bool {
        if application.hold == nil || application.hold == hold || endHold(application) == nil { return true }
        release(application) { [weak self] in self?.begin(application, questions: 0) }
        return false
    }

    /// The kernel has reported a freeze or thaw.
    func freezeChanged(_ number: ApplicationNumber) {
        if case .freezing? = work[number] {
            _ = hasFrozen(number)
        } else {
            sensor.readStop(of: number)
        }
    }

    // MARK: Scopes

    /// Asks a session agent for a scope of the application, or for one of others in its unit. False: it cannot help.
    private func isMoving(
        _ application: Registered, because answer: ApplicationCgroup.Answer, _ questions: Int
    ) -> Bool {
        switch answer {
        case .own, .no: return false
        case .foreign: return isMoving(application, for: application, questions)
        case .shared(_, let strangers):
            if let other = strangers.lazy.compactMap({ [table] in table[$0] }).first {
                return isMoving(other, for: application, questions)
            }
            // Each server has a unit of its own, whose name must not say that it is the application.
            let server = strangers.min { $0.startTime < $1.startTime } ?? strangers[0]
            let program = (try? proc.program(of: server.pid)).flatMap(ApplicationID.init)
            let children = strangers.filter { $0 != server && proc.lineage(of: $0.pid).contains(server) }
            return ask(for: application, questions, program ?? application.id, server, children) { [] }
        }
    }

    private func isMoving(_ mover: Registered, for application: Registered, _ questions: Int) -> Bool {
        guard let former = table.cgroup(of: mover.process) else { return false }
        let company = table.company(of: mover, in: former)
        return ask(for: application, questions, mover.id, mover.process, company) { [table] in
            guard let here = table.cgroup(of: mover.process) else { return [] }
            return table.company(of: mover, in: former).filter {
                table.cgroup(of: $0)?.isWithin(here) == false
            }
        }
    }

    /// - Parameter leftBehind: finds what was forked while its parent was being moved.
    private func ask(
        for application: Registered, _ questions: Int, _ id: ApplicationID, _ main: ProcessIdentity,
        _ others: [ProcessIdentity], leftBehind: @escaping () -> [ProcessIdentity]
    ) -> Bool {
        let number = application.number
        lastQuestion += 1
        let question = Work.moving(lastQuestion)
        work[number] = question
        let isAsked = scopes.make(
            id, user: application.user, session: application.session, main: main, others: others.map(\.pid)
        ) { [weak self] failure in
            // Anything that was ordered meanwhile counts.
            guard let self, work[number] == question, let application = table[number] else { return }
            let rest = failure == nil ? questions - 1 : 0
            let left = rest > 0 ? leftBehind() : []
            if left.isEmpty || !ask(for: application, rest, id, main, left, leftBehind: leftBehind) {
                begin(application, questions: rest, failure)
            }
        }
        if !isAsked { work[number] = nil }
        return isAsked
    }

    // MARK: Releasing

    /// Ends the daemon's hold.
    func resume(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        objections.forget(number)
        cancel(number)
        release(application) { [weak self] in self?.haveReleased(application) }
    }

    /// Ends the hold, now or as soon as that is possible.
    private func release(_ application: Registered, _ done: @escaping () -> Void) {
        let number = application.number
        guard let failure = endHold(application) else { return done() }
        log([failure], of: application)
        work[number] = .releasing
        retry.schedule(number) { [weak self] in
            guard let self, work[number] == .releasing else { return true }
            guard endHold(application) == nil else { return false }
            work[number] = nil
            done()
            return true
        }
    }

    /// Returns why the hold cannot end now.
    private func endHold(_ application: Registered) -> KernelFailure? {
        let number = application.number
        switch application.hold {
        case nil: return nil
        case .frozen?:
            do throws(KernelFailure) {
                _ = try table.frozenCgroup(of: application)?.endFreeze()
            } catch {
                return error
            }
        case .signalled?:
            let stop = core.application(number)?.stop
            // Only a person's `Resume` ends another process's stop, seen or not.
            let isSpared =
                stop?.isSignalledByOther == true
                || stop?.isLifting != true && application.signals?.hasOthersStop == true
            application.signals?.release(sparing: isSpared ? [application.process] : [])
            log(application.signals?.failures ?? [], of: application)
        }
        application.hold = nil
        records.rewrite(number)
        return nil
    }

    private func haveReleased(_ application: Registered) {
        let number = application.number
        let stop = core.application(number)?.stop
        // The other holder's stop may still have to take effect; how it ends is observed separately.
        if stop?.isSignalledByOther == true { return }
        if stop?.isLifting == true {
            if anothersFreeze(of: application) != nil { return continueForeign(number) }
            if (try? proc.hasStop(application.process)) == true {
                // It may have ended, or belong to another user.
                try? Extent.signal(
                    SIGCONT, toOnly: application.process, owner: application.user, proc: proc)
            }
        }
        reportResumed(application)
    }

    /// Ends another holder's stop, because an entitled caller has asked for it.
    func continueForeign(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        let signals = signalStop(of: application)
        signals.endAllStops(isForeign: table.isForeign)
        log(signals.failures, of: application)
        if anothersFreeze(of: application) != nil, let unit = table.unit(of: application) {
            thawOthers(within: unit, application)
        }
        reportResumed(application)
    }

    /// A freeze that also holds other applications must not be lifted for this one.
    private func thawOthers(within unit: Cgroup, _ application: Registered) {
        for _ in 0..<StopReader.mostLevels {
            guard let cgroup = anothersFreeze(of: application), cgroup.isWithin(unit) else { return }
            do {
                try cgroup.thaw()
            } catch {
                return log([error], of: application)
            }
        }
    }

    /// The application's cgroup, if another process has ordered it to freeze.
    private func anothersFreeze(of application: Registered) -> Cgroup? {
        let told = stopReader.cgroupOrderedToFreeze(of: application.number)
        return told == table.frozenCgroup(of: application) ? nil : told
    }

    /// Reports the release, and the state of its main process after it, as soon as that is known.
    private func reportResumed(_ application: Registered) {
        let number = application.number
        if haveReported(application) { return }
        reports.schedule(number) { [weak self] in
            guard let self, let application = table[number], work[number] == nil else { return true }
            return haveReported(application)
        }
    }

    /// SIGCONT wakes a process before kill(2) returns, so a process that is still stopped was stopped again. A stop by
    /// another process that was pending beneath the daemon's freeze still has to take effect.
    private func haveReported(_ application: Registered) -> Bool {
        let number = application.number
        let reading: StopReading
        do throws(KernelFailure) {
            guard let present = try stopReader.read(number) else { return true }
            reading = present
        } catch {
            return false
        }
        if reading.signal == .pending, reading.freeze == nil { return false }
        // While the daemon holds it, an observed stop may be the daemon's own.
        let isDone = application.hold == nil
        core.report(isDone ? .resumeCompleted(number, reading) : .observed(number, reading))
        return true
    }

    // MARK: Killing

    /// Ends it by force, as a whole.
    func kill(_ number: ApplicationNumber) {
        if let application = table[number] { kill(application) }
    }

    /// Returns the processes that have SIGKILL.
    @discardableResult
    func kill(_ application: Registered) -> [Int32] {
        let number = application.number
        cancel(number)
        if case .own(let cgroup) = table.judge(application),
            let killed = killAll(in: cgroup, of: application)
        {
            return killed
        }
        let held = application.hold == .signalled ? application.signals : nil
        let signals = held ?? signalStop(of: application)
        // One that dies while it forks leaves a child without the parent by which it would be recognized, so all are
        // stopped first. What is frozen does not fork, and takes no SIGSTOP.
        let isFrozen =
            application.hold.map { $0 != .signalled } ?? (stopReader.reading(of: number)?.freeze != nil)
        if !isFrozen, record(.signalled, of: application) == nil {
            var rounds = 1
            while signals.stop(isForeign: table.isForeign) == .pending, rounds < Self.mostRounds {
                rounds += 1
            }
        }
        let killed = signals.kill(isForeign: table.isForeign)
        log(signals.failures, of: application)
        application.signals = nil
        if application.hold == .signalled { application.hold = nil }
        records.rewrite(number)
        // A process that the daemon may not signal keeps running.
        if !killed.contains(application.process) { sensor.readStop(of: number) }
        return killed.map(\.pid)
    }

    /// The same for its own cgroup; nil: it cannot be done this way.
    private func killAll(in cgroup: Cgroup, of application: Registered) -> [Int32]? {
        do throws(KernelFailure) {
            let members = try cgroup.processes()
            if cgroup.has("cgroup.kill") {
                try cgroup.kill()
                return members
            }
            // Before Linux 5.14. They may fork meanwhile.
            var killed: Set<Int32> = []
            for _ in 0..<16 {
                let left = try cgroup.processes().filter { !killed.contains($0) }
                if left.isEmpty { break }
                for process in left.compactMap({ try? proc.identity(of: $0) }) {
                    try? Extent.signal(SIGKILL, toOnly: process, owner: application.user, proc: proc)
                }
                killed.formUnion(left)
            }
            return Array(killed)
        } catch {
            log([error], of: application)
            return nil
        }
    }

    // MARK: Helpers

    private func cancel(_ number: ApplicationNumber) {
        work[number] = nil
        retry.cancel(number)
    }

    private func signalStop(of application: Registered) -> SignalStop {
        SignalStop(proc: proc, main: application.process, owner: application.user)
    }

    private func log(_ failures: [KernelFailure], of application: Registered) {
        for failure in failures where !failure.isNoSuchProcess && !failure.isNoSuchFile {
            journal.log(.notice, failure: "\(failure)", of: application)
        }
    }
}

extension ApplicationCgroup.Answer {
    /// Why it is not the application's own.
    fileprivate var words: String {
        switch self {
        case .own(let cgroup): "\(cgroup)"
        case .shared(let cgroup, let others):
            "\(cgroup): process \(others[0].pid) in it does not belong to the application"
        case .foreign(let why), .no(let why): why
        }
    }
}
