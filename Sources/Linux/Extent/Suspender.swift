import Glibc

/// Stops the processes of one application, and releases them again: all at once with the freezer of the
/// application's own cgroup, else one by one with signals.
///
/// Chooses one of the two for each stop, according to `CgroupExtent` at that moment. A cgroup that was
/// examined before gets only a quick check: no process has joined it, and all still belong to the owner. Once
/// it is frozen and the stop has been announced, it is examined in full (`verify`): a process that joined in
/// between is released.
public final class Suspender {
    /// The progress of a stop. While it is `pending`, also call `proceed` when `cgroup.events` has changed.
    public typealias Progress = StoppedExtent.Progress

    /// The means of the present stop.
    private enum Means {
        case none
        case signals
        /// `isOurs` is false if another process froze it before, and will thaw it.
        case freezer(Cgroup, isOurs: Bool)
    }

    /// The process that the application begins with.
    public let main: ProcessIdentity
    /// The failures since the stop was begun, the first of each kind (`FailureList`).
    public var failures: [KernelFailure] { list.failures + (unrecorded.map { [$0] } ?? []) }
    private var list = FailureList()
    /// Why the freezer was not used for the present stop; nil if it was used, or if there is no cgroup.
    public private(set) var objection: String?
    /// Processes that were already stopped when the stop by signal was prepared. We must not continue them.
    public private(set) var standing: [ProcessIdentity] = []

    /// Called before the first action of a stop that was not prepared, or that was begun with the freezer and continues
    /// by signal: the caller must record the present holds. Returns the reason if it could not, and then no process is
    /// frozen or signalled.
    public var fellBack: () -> KernelFailure? = { nil }
    /// Why the present stop could not be recorded, so that nothing was done; nil: it was recorded, or there is none.
    public private(set) var unrecorded: KernelFailure?

    private let proc: Proc
    private let owner: UInt32
    private let hierarchy: UnifiedHierarchy?
    private let daemon: Cgroup?
    private let extent: StoppedExtent
    private var means = Means.none
    private let budget: DescriptorBudget
    private var judged: JudgedCgroup?
    /// Whether the freezer was used, not only chosen.
    private var hasFrozen = false
    /// When the freezer was chosen, and for how many microseconds the choice is valid without another check.
    private var chosenAt: UInt64 = 0
    private static let freshChoice: UInt64 = 5_000

    /// Stops nothing yet.
    ///
    /// - Parameters:
    ///   - uid: owns the application. Nothing is done to a process that does not wholly belong to this user, and no
    ///     cgroup is frozen whose directory does not.
    ///   - hierarchy: where cgroups are; nil: only signals are used.
    ///   - daemon: a cgroup that is never frozen, nor is any cgroup that contains it.
    ///   - budget: the descriptors for members of the application's cgroup.
    public init(
        proc: Proc, hierarchy: UnifiedHierarchy?, main: ProcessIdentity, owner uid: UInt32, daemon: Cgroup?,
        budget: DescriptorBudget = DescriptorBudget(0)
    ) {
        self.proc = proc
        self.hierarchy = hierarchy
        self.main = main
        owner = uid
        self.daemon = daemon
        self.budget = budget
        extent = StoppedExtent(proc: proc, main: main, owner: uid)
    }

    // MARK: Holds

    /// The cgroup that is frozen for the present stop, or is about to be; nil if signals are used.
    public var frozen: Cgroup? {
        if case .freezer(let cgroup, _) = means { return cgroup }
        return nil
    }

    /// Whether we must lift the freeze.
    public var isFreezeOurs: Bool {
        if case .freezer(_, isOurs: true) = means { return true }
        return false
    }

    /// Whether the present stop uses signals.
    public var isBySignal: Bool {
        if case .signals = means { return true }
        return false
    }

    /// Whether we still have to release any process.
    public var holdsAnybody: Bool { isFreezeOurs || extent.holdsAnybody }

    /// Whether we have frozen a cgroup that the main process has been moved out of.
    public var holdsOthersOnly: Bool {
        guard hasFrozen, case .freezer(let cgroup, isOurs: true) = means else { return false }
        return !holdsMain(cgroup)
    }

    /// Removes a process that is an application of its own from now on. If this value stopped it by signal, it is
    /// continued, and the processes below it are handed to `other`, which continues them (`release`). False: it was not
    /// among the processes that are to be stopped by signal.
    public func handOver(_ process: ProcessIdentity, to other: Suspender) -> Bool {
        extent.handOver(process, to: other.extent)
    }

    /// Whether a process has our SIGSTOP.
    public func holds(_ process: ProcessIdentity) -> Bool { extent.holds(process) }

    /// Whether another process is known to have sent SIGSTOP to the main process after this value had stopped it by
    /// signal.
    public var hasOthersStop: Bool { extent.hasOthersStop }

    /// Failures that no earlier call has returned.
    public func takeUntoldFailures() -> [KernelFailure] { list.takeUntold() }

    /// The processes that have our SIGSTOP, parents first.
    public var stoppedByUs: [ProcessIdentity] { extent.stoppedByUs }

    /// Whether another process continues the application as fast as it is stopped by signal.
    public var isContested: Bool {
        if case .signals = means { return extent.isContested }
        return false
    }

    /// How many SIGSTOPs were sent. After a change, `stoppedByUs` may have changed, too.
    public var signalsSent: Int { extent.signalsSent }

    /// Whether the stop cannot become complete, because the main process must not be stopped.
    public var isOutOfReach: Bool {
        if case .signals = means { return extent.isMainOutOfReach }
        return false
    }

    // MARK: The stop

    /// Chooses the means of the next stop. The caller must record the holds before it calls `stop`.
    public func prepare(isForeign: (ProcessIdentity) -> Bool) {
        _ = haveMeansChanged()
        choose(isForeign)
    }

    private func choose(_ isForeign: (ProcessIdentity) -> Bool) {
        guard case .none = means else { return }
        list.clear()
        objection = nil
        unrecorded = nil
        if let cgroup = ownCgroup(isForeign) {
            means = .freezer(cgroup, isOurs: (try? cgroup.wantsFrozen()) != true)
            chosenAt = Clock.monotonicMicroseconds
        } else {
            useSignals(isForeign)
        }
    }

    /// Other work may come between the choice and the action, for half a minute: a process that is in the
    /// cgroup now may not have been in it then.
    private func forgetOutdatedChoice(_ isForeign: (ProcessIdentity) -> Bool) {
        guard case .freezer(let cgroup, isOurs: true) = means, !hasFrozen,
            Clock.monotonicMicroseconds > chosenAt + Self.freshChoice
        else { return }
        if let judged, judged.cgroup == cgroup,
            judged.isUnchanged(main: main, proc: proc, isForeign: isForeign)
        {
            return
        }
        judged = nil
        means = .none
    }

    /// Checks for changes by others to the cgroup since it was chosen.
    private func haveMeansChanged() -> Bool {
        // Another process had frozen it before us and has thawed it, so now we freeze it.
        if case .freezer(let cgroup, isOurs: false) = means, (try? cgroup.wantsFrozen()) != true {
            means = .none
            return true
        }
        // Another process has frozen it, so we must not thaw it.
        if case .freezer(let cgroup, isOurs: true) = means, !hasFrozen, (try? cgroup.wantsFrozen()) == true {
            means = .freezer(cgroup, isOurs: false)
            return true
        }
        return false
    }

    private func useSignals(_ isForeign: (ProcessIdentity) -> Bool) {
        standing = Extent.stoppedMembers(of: main, proc: proc, isForeign: isForeign).filter {
            !extent.holds($0)
        }
        means = .signals
    }

    /// The cgroup that represents the application: its unit, else the cgroup that it is in (§ 2, "Extent"); nil if there
    /// is none.
    public func ownCgroup(_ isForeign: (ProcessIdentity) -> Bool) -> Cgroup? {
        guard let hierarchy, let here = try? Cgroup.of(main.pid, in: hierarchy, proc: proc), !here.isRoot
        else { return nil }
        let candidates = here.candidates
        if let judged, candidates.contains(judged.cgroup),
            judged.isUnchanged(main: main, proc: proc, isForeign: isForeign)
        {
            return judged.cgroup
        }
        return candidates.first { isOwn($0, isForeign) }
    }

    private func isOwn(_ cgroup: Cgroup, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        do throws(KernelFailure) {
            // Checked before its processes are examined, because there may be thousands.
            if let reason = CgroupExtent.reasonOfPlace(cgroup, try cgroup.owner(), owner, daemon) {
                objection = "\(cgroup): \(reason)"
                return false
            }
            // The extent first: a process that is born after the walk is found in the cgroup, with its parents.
            let extent = Extent.members(of: main, proc: proc, isForeign: isForeign)
            let snapshot = try CgroupSnapshot(of: cgroup, extent: extent, proc: proc)
            switch CgroupExtent.judge(
                snapshot, main: main, owner: owner, daemon: daemon, isForeign: isForeign)
            {
            case .own(let remainder) where remainder.isEmpty:
                let judged = try JudgedCgroup(
                    cgroup, members: snapshot.members, owner: owner, budget: budget)
                if self.judged?.hasMembers(of: judged) != true { self.judged = judged }
                return true
            case .own(let remainder):
                objection = "\(cgroup): process \(remainder[0].pid) of the application is outside of it"
            case .refused(let reason):
                objection = "\(cgroup): \(reason)"
            }
        } catch {
            objection = "\(error)"
        }
        return false
    }

    /// Must be called once the cgroup is frozen and the stop is announced; returns whether it may stay
    /// frozen. If not, all processes are released, and the next stop is made by signal.
    public func verify(isForeign: (ProcessIdentity) -> Bool) -> Bool {
        guard case .freezer(let cgroup, isOurs: true) = means else { return true }
        if isOwn(cgroup, isForeign) {
            judged?.hold(proc: proc)
            return true
        }
        judged = nil
        release()
        return false
    }

    /// Begins to stop, or continues stopping. `isForeign` says whether a process is an application of its own.
    public func stop(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        // Once only: what is found here is recorded below.
        var isNew = haveMeansChanged()
        forgetOutdatedChoice(isForeign)
        if case .none = means { isNew = true }
        choose(isForeign)
        if isNew, !isWrittenDown() { return .pending }
        if case .freezer(let cgroup, isOurs: true) = means {
            hasFrozen = true
            try? cgroup.mark()
            do throws(KernelFailure) {
                try cgroup.freeze()
            } catch {
                try? cgroup.unmark()
                list.add(error)
                return fallBack(isForeign)
            }
        }
        return proceed(isForeign: isForeign)
    }

    /// Continues by signal if the freezer does not work.
    private func fallBack(_ isForeign: (ProcessIdentity) -> Bool) -> Progress {
        hasFrozen = false
        useSignals(isForeign)
        guard isWrittenDown() else { return .pending }
        return proceed(isForeign: isForeign)
    }

    /// Calls the handler that records the means of the stop. If that fails, nothing is done.
    private func isWrittenDown() -> Bool {
        unrecorded = fellBack()
        if unrecorded == nil { return true }
        means = .none
        standing = []
        return false
    }

    /// Checks again, and continues.
    public func proceed(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        switch means {
        case .none:
            return stop(isForeign: isForeign)
        case .signals:
            defer { list.add(extent.list) }
            return extent.stop(isForeign: isForeign)
        case .freezer(let cgroup, _):
            return look(at: cgroup, isForeign)
        }
    }

    private func look(at cgroup: Cgroup, _ isForeign: (ProcessIdentity) -> Bool) -> Progress {
        do throws(KernelFailure) {
            guard try cgroup.isFrozen() else { return .pending }
            return try cgroup.unfrozenDescendants().isEmpty ? .complete : .pending
        } catch {
            // The cgroup is gone with all its processes, or they were moved.
            list.add(error)
            // If it still exists, no other process would thaw it.
            if isFreezeOurs, !thaw(cgroup) { return .pending }
            return fallBack(isForeign)
        }
    }

    /// Releases all processes that this value stopped, except the `spared`, which others want stopped, and
    /// forgets them all. A cgroup that cannot be thawed, for example because of a lack of descriptors, must
    /// still be thawed (`isFreezeOurs`): call again.
    public func release(sparing spared: Set<ProcessIdentity> = []) {
        if case .freezer(let cgroup, isOurs: true) = means, hasFrozen, !thaw(cgroup) { return }
        means = .none
        hasFrozen = false
        standing = []
        extent.release(sparing: spared)
        list.add(extent.list)
    }

    private func thaw(_ cgroup: Cgroup) -> Bool {
        do throws(KernelFailure) {
            try cgroup.thaw()
            try? cgroup.unmark()
            return true
        } catch {
            if error.isNoSuchCgroup { return true }
            list.add(error)
            return false
        }
    }

    // MARK: After an earlier daemon

    /// A cgroup that was given to another owner since is still frozen, and by us.
    private func holdsMain(_ cgroup: Cgroup) -> Bool {
        (try? Cgroup.of(main.pid, in: cgroup.hierarchy, proc: proc))?.isWithin(cgroup) == true
    }

    /// Takes over the freeze of an earlier value, or a freeze that it was about to make.
    public func adopt(frozen cgroup: Cgroup) {
        means = .freezer(cgroup, isOurs: true)
        hasFrozen = true
    }

    /// Takes over the processes that an earlier value stopped by signal.
    ///
    /// - Parameters:
    ///   - stopped: the processes that have its SIGSTOP.
    ///   - standing: the processes that were stopped before.
    public func adopt(stopped: [ProcessIdentity], standing: [ProcessIdentity]) {
        means = .signals
        self.standing = standing
        extent.adopt(stopped)
    }
}
