import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Frees memory: measures, pages out and ends applications (§ 5). The worker pages out, and releases the memory of dead
/// processes: both wait for locks of the processes' address spaces, and take long.
final class Reclaimer {
    private let proc: Proc
    private let journal: Journal
    private let announcer: Announcer
    private let now: () -> Microseconds
    private let report: (Fact) -> Void
    private let memory: MemoryReader
    private let worker: Worker
    private var ends: [ApplicationNumber: End] = [:]
    private let table: ApplicationTable
    private let stopReader: StopReader
    private let freezer: Freezer

    /// An application that is being ended.
    private struct End {
        let begin: Microseconds
        /// The memory of its processes that no other process shares.
        let bytes: UInt64
        let available: UInt64?
    }

    init(
        loop: EventLoop, proc: Proc, worker: Worker, journal: Journal, announcer: Announcer,
        now: @escaping () -> Microseconds, table: ApplicationTable, stopReader: StopReader, freezer: Freezer,
        memory: MemoryReader, report: @escaping (Fact) -> Void
    ) {
        self.table = table
        self.stopReader = stopReader
        self.freezer = freezer
        self.proc = proc
        self.journal = journal
        self.announcer = announcer
        self.now = now
        self.memory = memory
        self.report = report
        self.worker = worker
    }

    // MARK: Measuring

    /// How much memory the end of each application would free.
    ///
    /// - Parameter parts: cgroups for which the applications in them are named.
    func sizes(_ parts: [PressureSource: Cgroup]) -> MemoryReadings.Sizes {
        var sizes = MemoryReadings.Sizes([:], members: parts.mapValues { _ in [] })
        for application in table.all {
            sizes.bytes[application.number] = releasable(application, table.frozenCgroup(of: application))
            for (source, part) in parts {
                let own = try? Cgroup.of(application.process.pid, in: part.hierarchy, proc: proc)
                if own?.isWithin(part) == true { sizes.members[source]?.insert(application.number) }
            }
        }
        return sizes
    }

    /// The memory that its end would free.
    private func releasable(_ application: Registered, _ cgroup: Cgroup?) -> UInt64 {
        if let bytes = try? cgroup?.releasableMemory() { return bytes }
        let members = Extent.members(of: application.process, proc: proc, isForeign: table.isForeign)
        return members.reduce(0) { $0 &+ ((try? proc.memory(of: $1.pid).releasable) ?? 0) }
    }

    // MARK: Paging out

    func pageOut(_ number: ApplicationNumber, _ extent: PageOutExtent) {
        guard let application = table[number], stopReader.isStopped(number) == true else {
            report(.pagedOut(number))
            return
        }
        let (main, user) = (application.process, application.user)
        let (proc, foreign) = (proc, table.foreign)
        let cgroup = table.ownCgroup(of: application)
        // It may run again, or end, before the worker comes to it. Then it needs its memory, or the kernel frees it.
        let frozen = table.frozenCgroup(of: application) ?? cgroup
        let isStopped: @Sendable (ProcessIdentity) -> Bool = { process in
            (try? proc.isStopped(process)) == true || (try? frozen?.isFrozen()) == true
        }
        worker.run {
            var bytes: UInt64 = 0
            var failure: KernelFailure?
            let what: PageOut.Extent = extent == .files ? .files : .everything
            let members = Extent.members(of: main, in: cgroup, proc: proc, isForeign: foreign.contains)
            // One that runs needs its memory, and may keep the kernel from showing its mappings: while it executes another
            // program, it closes files first, and a file server may never answer.
            for member in members where isStopped(main) && isStopped(member) {
                do throws(KernelFailure) {
                    bytes &+= try PageOut.perform(on: member, owner: user, what, proc: proc) {
                        isStopped(member)
                    }
                    .released
                } catch {
                    if !error.isNoSuchProcess, failure == nil { failure = error }
                }
            }
            // The cgroup may have no memory controller.
            if isStopped(main) { bytes &+= (try? cgroup?.reclaimUnmappedFiles()) ?? 0 }
            return (bytes, bytes == 0 ? failure : nil)
        } then: { [weak self] bytes, failure in
            self?.havePagedOut(number, bytes, failure)
        }
    }

    private func havePagedOut(_ number: ApplicationNumber, _ bytes: UInt64, _ failure: KernelFailure?) {
        report(.pagedOut(number, bytes: bytes))
        guard let application = table[number] else { return }
        let text = failure.map { "its memory was not paged out: \($0)" } ?? "paged out \(bytes >> 10) KiB"
        journal.log(.info, text, about: application, as: .pushedOut, [(.bytes, String(bytes))])
    }

    // MARK: Ending

    /// The application is asked to exit: from now on its end is measured.
    func willEnd(_ application: Registered) {
        measure(theEndOf: application, table.ownCgroup(of: application))
    }

    private func measure(theEndOf application: Registered, _ cgroup: Cgroup?) {
        ends[application.number] = End(
            begin: now(), bytes: releasable(application, cgroup), available: memory.available)
    }

    /// Sends SIGKILL to all of a suspended application, if it is still suspended and still belongs to its user.
    func end(_ application: Registered) {
        let number = application.number
        let isStopped = stopReader.isStopped(number)
        guard isStopped == true else {
            report(.spared(number, isStopped == nil ? "it cannot be examined" : "it runs again"))
            return
        }
        let status = try? proc.status(application.process.pid)
        guard status?.owner.isWholly(application.user) == true else {
            report(.spared(number, "it runs as another user"))
            return
        }
        let cgroup = table.ownCgroup(of: application)
        measure(theEndOf: application, cgroup)
        try? cgroup?.liftCPULimit()
        let pids = freezer.kill(application)
        // For example because of a lack of descriptors.
        if !pids.contains(application.process.pid), (try? proc.isDying(application.process)) == false {
            report(.spared(number, "it could not be signalled"))
            return
        }
        worker.run {
            // A process that has taken such an id meanwhile is not dying, and keeps its memory.
            for pid in pids { try? PidFD(pid: pid).releaseMemory() }
        } then: { [report] in
            report(.released(number))
        }
    }

    /// The application is gone: reports how much memory was freed, and how fast.
    func ended(_ application: Registered, _ reason: ExitReason) {
        guard let end = ends.removeValue(forKey: application.number), reason == .reclaimed else { return }
        let span = now() - end.begin
        var text = "ended for its memory: \(end.bytes >> 10) KiB in \(span / 1_000) ms"
        if let before = end.available, let after = memory.available {
            text += "; MemAvailable from \(before >> 20) to \(after >> 20) MiB"
        }
        journal.log(
            .notice, text, about: application, as: .reclaimed,
            [(.bytes, String(end.bytes)), (.microseconds, String(span))])
        announcer.reclaimed(application, bytes: end.bytes, microseconds: span)
    }
}
