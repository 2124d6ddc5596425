import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Gets memory back: measures, pushes out and ends. What may block is done by the one worker (§ 5).
final class Reclaimer {
    private let proc: Proc
    private let journal: Journal
    private let announcer: Announcer
    private let now: () -> Microseconds
    private let report: (Fact) -> Void
    private let available: () -> UInt64?
    private let worker: Worker<Job, Outcome>?
    private var source: Source?
    private var ends: [ApplicationNumber: End] = [:]
    /// As they were measured last.
    private var sizes: [ApplicationNumber: UInt64] = [:]
    private let retries: Retries<ApplicationNumber>
    private let turn: Turn
    /// Those that have more processes than can be killed in one event.
    private var killing: [ApplicationNumber: (application: Registered, extent: SignalledExtent)] = [:]
    /// Called once all processes of such an application have SIGKILL.
    var killed: (ApplicationNumber) -> Void = { _ in }
    /// Whether an extent ends at a process; whether an application stands; how it is reached. Set by the daemon.
    var foreign: () -> Set<ProcessIdentity> = { [] }
    var stands: (Registered) -> Bool = { _ in false }
    var ownCgroup: (Registered) -> Cgroup? = { _ in nil }
    var find: (ApplicationNumber) -> Registered? = { _ in nil }

    /// An application that is being ended.
    private struct End {
        let begin: Microseconds
        /// What its processes have that is nobody else's.
        let bytes: UInt64
        let available: UInt64?
    }

    private enum Job: Sendable {
        case measure
        case pageOut(ApplicationNumber)
        case release
    }

    private enum Outcome: Sendable {
        case sizes([ApplicationNumber: UInt64], members: [PressureSource: Set<ApplicationNumber>])
        case pagedOut(bytes: UInt64, failure: KernelFailure?)
        case released
    }

    /// Jobs under way: one measurement, and page-outs and releases behind each other.
    private static let mostJobs = 64

    init(
        loop: EventLoop, proc: Proc, journal: Journal, announcer: Announcer,
        now: @escaping () -> Microseconds, background: Background,
        available: @escaping () -> UInt64?, report: @escaping (Fact) -> Void
    ) throws(BusFailure) {
        retries = try Retries(loop: loop, now: now, background: background)
        turn = Turn(loop, now)
        self.proc = proc
        self.journal = journal
        self.announcer = announcer
        self.now = now
        self.available = available
        self.report = report
        worker = try? Worker(name: "appstated-mem", limit: Self.mostJobs)
        if let worker {
            source = try? loop.watch(worker.descriptor) { [weak self] _ in self?.takeResults() }
        }
    }

    // MARK: Looking

    /// - Parameter parts: cgroups of which is to be told, too, who is in them.
    func measure(_ numbers: [ApplicationNumber], _ parts: [PressureSource: Cgroup]) {
        let applications = numbers.compactMap { number in
            find(number).map { (number, $0.process, Self.frozenCgroup(of: $0)) }
        }
        let (proc, foreign) = (proc, foreign())
        submit(.measure) {
            var sizes: [ApplicationNumber: UInt64] = [:]
            var members = parts.mapValues { _ in Set<ApplicationNumber>() }
            for (number, process, frozen) in applications {
                sizes[number] = Self.releasable(process, frozen, proc, foreign)
                for (source, part) in parts {
                    let own = try? Cgroup.of(process.pid, in: part.hierarchy, proc: proc)
                    if own?.isWithin(part) == true { members[source]?.insert(number) }
                }
            }
            return .sizes(sizes, members: members)
        }
    }

    /// The cgroup that we have frozen it with, which holds its processes and no others.
    private static func frozenCgroup(of application: Registered) -> Cgroup? {
        application.suspender.isFreezeOurs ? application.suspender.frozen : nil
    }

    private static func releasable(
        _ main: ProcessIdentity, _ frozen: Cgroup?, _ proc: Proc, _ foreign: Set<ProcessIdentity>
    ) -> UInt64 {
        if let bytes = try? frozen?.releasableMemory() { return bytes }
        let members = Extent.members(of: main, proc: proc, isForeign: foreign.contains)
        return members.reduce(0) { $0 &+ ((try? proc.memory(of: $1.pid))?.releasable ?? 0) }
    }

    // MARK: Pushing out

    func pageOut(_ number: ApplicationNumber) {
        guard let application = find(number), stands(application) else {
            report(.pagedOut(number))
            return
        }
        let (main, user) = (application.process, application.user)
        let (proc, foreign) = (proc, foreign())
        let cgroup = ownCgroup(application)
        let hasController = cgroup.map { access($0.directory + "/memory.reclaim", F_OK) == 0 } ?? false
        let isUnderWay = submit(.pageOut(number)) {
            do throws(KernelFailure) {
                if hasController, let cgroup {
                    let all = try cgroup.memoryCurrent()
                    return .pagedOut(bytes: try cgroup.reclaim(all).released, failure: nil)
                }
                var bytes: UInt64 = 0
                for member in Extent.members(of: main, proc: proc, isForeign: foreign.contains) {
                    bytes &+= try PageOut.perform(on: member, owner: user, proc: proc).released
                }
                return .pagedOut(bytes: bytes, failure: nil)
            } catch {
                return .pagedOut(bytes: 0, failure: error)
            }
        }
        if !isUnderWay { report(.pagedOut(number)) }
    }

    // MARK: Ending

    /// It is asked to end: from now on its end is measured.
    func willEnd(_ application: Registered) {
        ends[application.number] = End(
            begin: now(), bytes: releasable(application), available: available())
    }

    /// What its end would give back. Of one that has too many processes to be measured now, what was measured last counts.
    private func releasable(_ application: Registered) -> UInt64 {
        if let cgroup = Self.frozenCgroup(of: application) ?? ownCgroup(application),
            let bytes = try? cgroup.releasableMemory()
        {
            return bytes
        }
        let budget = turn.budget
        var walk = ExtentWalk(from: application.process)
        var isWhole = walk.proceed(proc, budget, isForeign: foreign().contains)
        var bytes: UInt64 = 0
        for process in walk.found {
            bytes &+= (try? proc.memory(of: process.pid))?.releasable ?? 0
            if budget.spend(), process != walk.found.last {
                isWhole = false
                break
            }
        }
        return isWhole ? bytes : max(bytes, sizes[application.number] ?? 0)
    }

    /// SIGKILL to all of a suspended application: if it still is, and still its user's.
    func end(_ application: Registered) {
        let number = application.number
        guard stands(application) else {
            report(.spared(number, "it runs again"))
            return
        }
        guard (try? proc.status(application.process.pid))?.owner.isWholly(application.user) == true else {
            report(.spared(number, "it runs as another user"))
            return
        }
        willEnd(application)
        if let cgroup = ownCgroup(application) { _ = try? cgroup.liftCPULimit() }
        // It stands: nobody forks meanwhile.
        let extent = SignalledExtent(
            SIGKILL, to: application.process, owner: application.user, proc: proc)
        if goOn(ending: application, extent) == .settled { return }
        killing[number] = (application, extent)
        retries.work(on: number, of: application.user) { [weak self] in
            self?.goOn(ending: application, extent) ?? .settled
        }
    }

    /// Whether some of its processes are still to be killed: it must stand for so long, as nobody forks then.
    func isKilling(_ number: ApplicationNumber) -> Bool { killing[number] != nil }

    /// Kills all that were to be killed, however long it takes: the daemon ends.
    func finish() {
        for (application, extent) in killing.values { _ = goOn(ending: application, extent, .unlimited) }
    }

    private func goOn(
        ending application: Registered, _ extent: SignalledExtent, _ budget: Budget? = nil
    ) -> Retries<ApplicationNumber>.Outcome {
        guard extent.proceed(budget ?? turn.budget, isForeign: foreign().contains) else { return .soon }
        defer { if killing.removeValue(forKey: application.number) != nil { killed(application.number) } }
        for failure in extent.failures where !failure.isNoSuchProcess {
            journal.log(.notice, failure: "\(failure)", of: application)
        }
        let pids = extent.members.map(\.pid)
        submit(.release) {
            // A process that has taken such an id meanwhile is not dying, and keeps its memory.
            for pid in pids { _ = (try? PidFD(pid: pid))?.releaseMemory() }
            return .released
        }
        return .settled
    }

    /// It is gone: says what came back, and how fast.
    func ended(_ application: Registered, _ reason: ExitReason) {
        guard let end = ends.removeValue(forKey: application.number), reason == .reclaimed else { return }
        let span = now() - end.begin
        var text = "ended for its memory: \(end.bytes >> 10) KiB in \(span / 1_000) ms"
        if let before = end.available, let after = available() {
            text += "; MemAvailable from \(before >> 20) to \(after >> 20) MiB"
        }
        journal.log(
            .notice, text, about: application, as: .reclaimed,
            [(.bytes, String(end.bytes)), (.microseconds, String(span))])
        announcer.reclaimed(application, bytes: end.bytes, microseconds: span)
    }

    // MARK: The worker

    /// Whether it will be done.
    @discardableResult
    private func submit(_ job: Job, _ body: @escaping @Sendable () -> Outcome) -> Bool {
        switch worker?.submit(job, body) {
        case .accepted?: return true
        case .failed(let failure)?:
            journal.log(.warning, "\(failure)")
            return false
        // Nothing depends on it: the same is asked for again while the pressure lasts.
        case .full?, nil: return false
        }
    }

    private func takeResults() {
        guard let worker else { return }
        for finished in worker.takeResults() {
            switch (finished.key, finished.value) {
            case (_, .sizes(let sizes, let members)):
                self.sizes = sizes
                report(.memoryMeasured(sizes, members: members))
            case (.pageOut(let number), .pagedOut(let bytes, let failure)):
                report(.pagedOut(number))
                guard let application = find(number) else { continue }
                let text =
                    failure.map { "its memory was not pushed out: \($0)" } ?? "pushed out \(bytes >> 10) KiB"
                journal.log(.info, text, about: application, as: .pushedOut, [(.bytes, String(bytes))])
            case (_, .pagedOut), (_, .released): break
            }
        }
    }
}
