import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux

/// Examines, on another thread, the objections to a suspension that was not requested, and reports them (§
/// 2). It decides nothing.
final class ObjectionSensor {
    typealias Answer = Looks<LookSubject, LookFinding>.Answer

    private let proc: Proc
    private let core: Core
    private let table: ApplicationTable
    private let standings: Standings
    private let handed: HandedOver
    private let hierarchy: UnifiedHierarchy?
    private let ownCgroup: Cgroup?
    private let loop: EventLoop
    private let now: () -> Microseconds
    private let inhibitors: Inhibitors
    private let looks: Looks<LookSubject, LookFinding>
    private let locks: LockSensor
    /// The look whose answer is awaited, one for each application: the answer to an earlier look is discarded.
    private var awaited: [ApplicationNumber: UInt64] = [:]
    private var lastLook: UInt64 = 0
    /// The time until applications that transfer something are looked at again.
    private var pauses: [ApplicationNumber: Timer] = [:]
    /// The time over which the rate is measured.
    private static let measure: Microseconds = 1_000_000

    /// How long a look may take, including the looks that come first: before a stop, when no caller waits, and after
    /// it.
    private static let patience: (before: Microseconds, after: Microseconds) = (30_000_000, 10_000_000)

    init(
        loop: EventLoop, proc: Proc, now: @escaping () -> Microseconds, share: WorkShare, core: Core,
        table: ApplicationTable, standings: Standings, hierarchy: UnifiedHierarchy?, handed: HandedOver,
        inhibitors: Inhibitors
    ) throws {
        self.loop = loop
        self.now = now
        self.inhibitors = inhibitors
        self.proc = proc
        self.core = core
        self.table = table
        self.standings = standings
        self.handed = handed
        self.hierarchy = hierarchy
        ownCgroup = hierarchy.flatMap { try? Cgroup.of(getpid(), in: $0, proc: proc) }
        looks = try Looks(loop: loop, name: "appstated-look", now: now, share: share)
        locks = try LockSensor(loop: loop, proc: proc, now: now, looks: looks, handed: handed) {
            core.report(.objected($0, $1))
        }
    }

    /// The kernel's events do not cover some CPU.
    func renewEvents() { locks.renew() }

    /// There are no more looks, because the daemon ends.
    func close() {
        awaited = [:]
        pauses = [:]
        looks.close()
    }

    /// Begins a look.
    ///
    /// - Returns: a closure that says whether the answer is still awaited. After that call it no longer is.
    private func begin(_ number: ApplicationNumber) -> () -> Bool {
        lastLook += 1
        let look = lastLook
        awaited[number] = look
        pauses[number] = nil
        return { [weak self] in
            guard let self, awaited[number] == look else { return false }
            awaited[number] = nil
            return table[number] != nil
        }
    }

    /// Looks, and reports `checked`. From then on the file locks that a stopped application holds are watched.
    ///
    /// - Parameters:
    ///   - stands: all of its processes were stopped.
    ///   - clear: called before the report that there is no objection.
    func check(_ application: Registered, stands: Bool, clear: @escaping () -> Void) {
        check(application, stands ? .standing : .before, since: nil, clear)
    }

    private func check(
        _ application: Registered, _ moment: LookMoment, since earlier: WorkSample?,
        _ clear: @escaping () -> Void
    ) {
        let number = application.number
        let stands = moment == .standing
        let isAwaited = begin(number)
        look(
            at: application, moment, since: earlier, isMeasured: !stands, isUrgent: stands,
            within: stands ? Self.patience.after : Self.patience.before
        ) { [weak self] answer in
            guard let self, isAwaited() else { return }
            if let why = Self.objection(in: answer) {
                return core.report(.checked(number, .objection(why)))
            }
            guard case .success(.objections(let found)) = answer else { return }
            if !found.sample.isEmpty, pause(application, found.sample, clear) { return }
            clear()
            let stillStands = !stands || standings.stands(number) != false
            if stands, stillStands {
                locks.watch(number, of: application.user, found.pids)
            }
            core.report(.checked(number, .clear(stands: stillStands)))
        }
    }

    /// Looks again a moment later. Returns false if there is no timer.
    private func pause(
        _ application: Registered, _ sample: WorkSample, _ clear: @escaping () -> Void
    ) -> Bool {
        let number = application.number
        let isAwaited = begin(number)
        let timer = try? loop.timer { [weak self] in
            guard let self, isAwaited() else { return }
            check(application, .measuring, since: sample, clear)
        }
        guard let timer else { return false }
        timer.arm(at: now() + Self.measure)
        pauses[number] = timer
        return true
    }

    /// The application is released or no longer registered, so no look at it is needed.
    func forget(_ number: ApplicationNumber) {
        awaited[number] = nil
        pauses[number] = nil
        locks.unwatch(number)
    }

    /// The result of a look at its processes.
    ///
    /// - Parameters:
    ///   - earlier: the sample of an earlier look, for `measuring`.
    ///   - isMeasured: whether the result has a sample for a later look.
    func look(
        at application: Registered, _ moment: LookMoment = .before, since earlier: WorkSample? = nil,
        isMeasured: Bool = false, isUrgent: Bool, within span: Microseconds,
        _ answer: @escaping (Answer) -> Void
    ) {
        if moment == .standing {
            return look(at: application, moment, Work(), isUrgent, span, answer)
        }
        inhibitors.read { [weak self] list in
            guard let self else { return }
            let work = Work(inhibitors: list, isMeasured: isMeasured, earlier: earlier)
            look(at: application, moment, work, isUrgent, span, answer)
        }
    }

    private func look(
        at application: Registered, _ moment: LookMoment, _ work: Work, _ isUrgent: Bool,
        _ span: Microseconds, _ answer: @escaping (Answer) -> Void
    ) {
        let number = application.number
        looks.ask(
            .objections(number, moment), of: application.user, isUrgent: isUrgent, within: span,
            makeJob: { [weak self] in
                guard let self, let extent = extentLook(number) else { return nil }
                var work = work
                work.mayHang = !looks.isCrowded
                if moment != .standing { specify(&work, of: number) }
                return { [work] in .objections(extent.objections(work)) }
            }, answer: answer)
    }

    /// Determines which kinds of work count, in the current state.
    private func specify(_ work: inout Work, of number: ApplicationNumber) {
        work.networkRate = core.machine.settings.networkRate
        work.diskRate = core.machine.settings.diskRate
        // An application that is stopped does not work: bytes that the kernel accepts for it are not its own work.
        guard let known = core.application(number), !known.isStopped || known.isBeingDrained else { return }
        work.kinds = Set(ObjectionReason.allCases.filter(known.counts))
        work.isAnswering = known.isAnswering(at: now())
    }

    /// Whether something waits to be read by a stopped application; true also if that cannot be determined. A later
    /// look at the application, or the end of its stop, leaves this without an answer.
    func lookForUnread(_ application: Registered, _ answer: @escaping (Bool) -> Void) {
        let number = application.number
        let isAwaited = begin(number)
        looks.ask(.unread(number), of: application.user, within: Self.patience.after) { [weak self] in
            guard let look = self?.extentLook(number) else { return nil }
            return { .unread(look.hasUnread()) }
        } answer: {
            guard isAwaited() else { return }
            if case .success(.unread(false)) = $0 { answer(false) } else { answer(true) }
        }
    }

    private func extentLook(_ number: ApplicationNumber) -> ExtentLook? {
        table[number].map {
            ExtentLook(
                proc: proc, main: $0.process, owner: $0.user, cgroup: $0.suspender.frozen,
                hierarchy: hierarchy, daemon: ownCgroup, foreign: table.foreign, handed: handed)
        }
    }

    /// Why policy must not stop it. An application that could not be examined is not stopped.
    private static func objection(in answer: Answer) -> String? {
        switch answer {
        case .success(.objections(let found)): found.reasons.first
        case .success: nil
        case .failure(let failure): failure.description
        }
    }
}
