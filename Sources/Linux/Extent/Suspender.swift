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

    /// Which cgroup represents the application.
    public enum OwnCgroup: Equatable {
        case none
        case found(Cgroup)
        /// The budget is spent: call again.
        case interrupted
    }

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

    /// Called before the first action of a stop that was not prepared with one call of `prepare`, or that was begun
    /// with the freezer and continues by signal: the caller must record the present holds. Returns the reason
    /// if it could not, and then no process is frozen or signalled.
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
    /// The work in progress: a search for the application's own cgroup, a check that a frozen cgroup still
    /// represents the application, and a search for processes that are stopped before the first signal.
    private var search: Search?
    private var verification: CgroupLook?
    private var stoppedSearch: StoppedSearch?
    private var hasBegun = false
    /// When the freezer was chosen, and for how many microseconds the choice is valid without another check.
    private var chosenAt: UInt64 = 0
    private static let freshChoice: UInt64 = 5_000

    /// A search for the application's own cgroup.
    private struct Search {
        let here: Cgroup
        var candidates: ArraySlice<Cgroup>
        var look: CgroupLook?
        /// When it was last continued. Old results, from before other work had its turn, are examined again.
        var touched: UInt64 = 0
        static let patience: UInt64 = 2_000_000
        /// How often it was repeated, because the processes had changed while they were examined in pieces.
        var repetitions = 0
        static let mostRepetitions = 3
    }

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

    /// Chooses the means of the next stop. The caller must record the holds before it calls `stop`. False:
    /// the budget is spent; `stop` continues.
    @discardableResult
    public func prepare(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Bool {
        _ = haveMeansChanged()
        return choose(budget, isForeign)
    }

    private func choose(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        guard case .none = means else { return true }
        if !hasBegun {
            hasBegun = true
            list.clear()
            objection = nil
            unrecorded = nil
        }
        if stoppedSearch == nil {
            switch ownCgroup(within: budget, isForeign) {
            case .interrupted: return false
            case .found(let cgroup):
                let isOurs = (try? cgroup.wantsFrozen()) != true
                guard !isOurs || isSmall(cgroup) else { break }
                means = .freezer(cgroup, isOurs: isOurs)
                chosenAt = Clock.monotonicMicroseconds
                hasBegun = false
                return true
            case .none: break
            }
        }
        return useSignals(budget, isForeign)
    }

    /// The kernel visits each thread in one system call, which takes up to 4 µs for each.
    private static let mostThreads = 1_024

    private func isSmall(_ cgroup: Cgroup) -> Bool {
        do throws(KernelFailure) {
            guard try cgroup.hasMoreThreads(than: Self.mostThreads) else { return true }
            objection = "\(cgroup): it has more than \(Self.mostThreads) threads"
        } catch {
            objection = "\(error)"
        }
        return false
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

    private func useSignals(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        var stoppedSearch = stoppedSearch ?? StoppedSearch(of: main)
        // Referenced only once, so that it is changed in place.
        self.stoppedSearch = nil
        guard stoppedSearch.proceed(proc, budget, isForeign: isForeign, isPassedOver: extent.holds) else {
            self.stoppedSearch = stoppedSearch
            return false
        }
        standing = stoppedSearch.stopped
        means = .signals
        hasBegun = false
        return true
    }

    /// The cgroup that represents the application: its unit, else the cgroup that it is in (§ 2, "Extent"). Works piece
    /// by piece.
    public func ownCgroup(within budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> OwnCgroup {
        guard let hierarchy else { return .none }
        let here: Cgroup
        do throws(KernelFailure) {
            here = try Cgroup.of(main.pid, in: hierarchy, proc: proc)
        } catch {
            search = nil
            return .none
        }
        if here.isRoot { return .none }
        var search: Search
        let now = Clock.monotonicMicroseconds
        if let begun = self.search, begun.here == here, now < begun.touched + Search.patience {
            search = begun
        } else {
            let candidates = here.candidates
            if let judged, candidates.contains(judged.cgroup),
                judged.isUnchanged(main: main, proc: proc, isForeign: isForeign)
            {
                return .found(judged.cgroup)
            }
            search = Search(here: here, candidates: candidates[...])
        }
        self.search = nil
        while let cgroup = search.candidates.first {
            var look = search.look ?? CgroupLook(at: cgroup, main: main)
            search.look = nil
            switch isOwn(&look, budget, isForeign) {
            case true?:
                // After an examination in pieces, a process that was examined first may belong to another
                // user by now.
                guard search.touched > 0, let judged, judged.isSmall,
                    !judged.isUnchanged(main: main, proc: proc, isForeign: isForeign)
                else { return .found(cgroup) }
                self.judged = nil
                search.repetitions += 1
                if search.repetitions > Search.mostRepetitions {
                    objection = "\(cgroup): its processes change while they are examined"
                    search.candidates.removeFirst()
                }
            case false?:
                search.candidates.removeFirst()
            case nil:
                search.look = look
                search.touched = now
                self.search = search
                return .interrupted
            }
        }
        return .none
    }

    /// nil: the budget is spent.
    private func isOwn(
        _ look: inout CgroupLook, _ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Bool? {
        let cgroup = look.cgroup
        do throws(KernelFailure) {
            // Checked before its processes are examined, because there may be thousands.
            if let reason = CgroupExtent.reasonOfPlace(cgroup, try cgroup.owner(), owner, daemon) {
                objection = "\(cgroup): \(reason)"
                return false
            }
            guard let snapshot = try look.proceed(proc, budget, isForeign: isForeign) else { return nil }
            switch CgroupExtent.judge(
                snapshot, main: main, owner: owner, daemon: daemon, isForeign: isForeign)
            {
            case .own(let remainder) where remainder.isEmpty:
                let judged = try JudgedCgroup(
                    cgroup, members: snapshot.members, owner: owner, budget: self.budget)
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
    /// frozen. If not, all processes are released, and the next stop is made by signal. nil: the budget is
    /// spent, call again.
    public func verify(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Bool? {
        guard case .freezer(let cgroup, isOurs: true) = means else {
            verification = nil
            return true
        }
        var look = verification ?? CgroupLook(at: cgroup, main: main)
        verification = nil
        if look.cgroup != cgroup { look = CgroupLook(at: cgroup, main: main) }
        guard let isOwn = isOwn(&look, budget, isForeign) else {
            verification = look
            return nil
        }
        if isOwn {
            judged?.hold(proc: proc)
            return true
        }
        judged = nil
        release()
        return false
    }

    /// Begins to stop, or continues stopping. `isForeign` says whether a process is an application of its own.
    public func stop(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Progress {
        // Once only: what is found here is recorded below.
        var isNew = haveMeansChanged()
        forgetOutdatedChoice(isForeign)
        if case .none = means { isNew = true }
        guard choose(budget, isForeign) else { return .interrupted }
        if isNew, !isWrittenDown() { return .pending }
        if case .freezer(let cgroup, isOurs: true) = means {
            hasFrozen = true
            do throws(KernelFailure) {
                try cgroup.freeze()
            } catch {
                list.add(error)
                return fallBack(budget, isForeign)
            }
        }
        return proceed(within: budget, isForeign: isForeign)
    }

    /// Continues by signal if the freezer does not work.
    private func fallBack(_ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool) -> Progress {
        means = .none
        hasFrozen = false
        hasBegun = true
        guard useSignals(budget, isForeign) else { return .interrupted }
        guard isWrittenDown() else { return .pending }
        return proceed(within: budget, isForeign: isForeign)
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
    public func proceed(
        within budget: Budget = .unlimited, isForeign: (ProcessIdentity) -> Bool
    ) -> Progress {
        switch means {
        case .none:
            return stop(within: budget, isForeign: isForeign)
        case .signals:
            defer { list.add(extent.list) }
            return extent.stop(within: budget, isForeign: isForeign)
        case .freezer(let cgroup, _):
            return look(at: cgroup, budget, isForeign)
        }
    }

    private func look(
        at cgroup: Cgroup, _ budget: Budget, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Progress {
        do throws(KernelFailure) {
            guard try cgroup.isFrozen() else { return .pending }
            return try cgroup.unfrozenDescendants().isEmpty ? .complete : .pending
        } catch {
            // The cgroup is gone with all its processes, or they were moved.
            list.add(error)
            // If it still exists, no other process would thaw it.
            if isFreezeOurs, !thaw(cgroup) { return .pending }
            return fallBack(budget, isForeign)
        }
    }

    /// Releases all processes that this value stopped, except the `spared`, which others want stopped, and
    /// forgets them all. A cgroup that cannot be thawed, for example because of a lack of descriptors, must
    /// still be thawed (`isFreezeOurs`): call again. The same applies when the budget is spent (false).
    @discardableResult
    public func release(
        sparing spared: Set<ProcessIdentity> = [], within budget: Budget = .unlimited
    ) -> Bool {
        (search, verification, stoppedSearch, hasBegun) = (nil, nil, nil, false)
        switch means {
        case .freezer(let cgroup, isOurs: true): if hasFrozen, !thaw(cgroup) { return true }
        case .none, .signals, .freezer(_, isOurs: false): break
        }
        means = .none
        hasFrozen = false
        standing = []
        let isDone = extent.release(sparing: spared, within: budget)
        list.add(extent.list)
        return isDone
    }

    private func thaw(_ cgroup: Cgroup) -> Bool {
        do throws(KernelFailure) {
            try cgroup.thaw()
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
