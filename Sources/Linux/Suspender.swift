import Glibc

/// Brings the processes of one application to a stand, and lets them go: whole, by the freezer of a cgroup that
/// is its own, else one by one, by signal.
///
/// Which of the two is chosen anew for each stop, as `CgroupExtent` judges at that moment. A cgroup that was
/// judged before is looked at quickly: nobody is in it who was not, and all are still the owner's. Once it
/// stands, and has been announced, it is judged in full (`verify`): whoever came in between is let go.
public final class Suspender {
    /// How far a stop has come.
    public enum Progress: Equatable, Sendable {
        /// All stand.
        case complete
        /// Call `proceed` shortly after, or when `cgroup.events` has changed.
        case pending
    }

    /// How the present stop is made.
    private enum Means {
        case none
        case signals
        /// `isOurs` false: somebody else froze it before, and will thaw it.
        case freezer(Cgroup, isOurs: Bool)
    }

    /// The process that the application begins with.
    public let main: ProcessIdentity
    /// What could not be done since the stop was begun.
    public private(set) var failures: [KernelFailure] = []
    /// Why the freezer was not used for the present stop; nil where it is, or there is no cgroup.
    public private(set) var objection: String?
    /// Processes that stood already when the stop by signal was prepared: not ours to continue.
    public private(set) var standing: [ProcessIdentity] = []

    /// Called when a stop that was begun with the freezer goes on by signal, before the first one: what is held now
    /// is to be written down. Where it could not be, says why, and nobody is signalled.
    public var fellBack: () -> KernelFailure? = { nil }
    /// Nothing is held, because it could not be written down; the last of the `failures` says why.
    public private(set) var isUnrecorded = false

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

    /// Stops nothing yet.
    ///
    /// - Parameters:
    ///   - uid: owns the application: nothing is done to a process that is not wholly its, and no cgroup is
    ///     frozen whose directory is not its.
    ///   - hierarchy: where cgroups are; nil: only signals.
    ///   - daemon: a cgroup that is never frozen, nor what it is in.
    ///   - budget: of descriptors for members of the application's cgroup.
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

    // MARK: What is held

    /// The cgroup that is frozen for the present stop, or about to be; nil where signals do it.
    public var frozen: Cgroup? {
        if case .freezer(let cgroup, _) = means { return cgroup }
        return nil
    }

    /// Whether the freeze is ours to lift.
    public var isFreezeOurs: Bool {
        if case .freezer(_, isOurs: true) = means { return true }
        return false
    }

    /// Whether signals are the means of the present stop.
    public var isBySignal: Bool {
        if case .signals = means { return true }
        return false
    }

    /// Whether anybody waits for us to let go.
    public var holdsAnybody: Bool { isFreezeOurs || !extent.stoppedByUs.isEmpty }

    /// Whether we have frozen a cgroup that the main process has been moved out of.
    public var holdsOthersOnly: Bool {
        guard case .freezer(let cgroup, isOurs: true) = means else { return false }
        return !holdsMain(cgroup)
    }

    /// Lets one go that is an application of its own from now on, if this value stopped it by signal.
    public func letGo(_ process: ProcessIdentity) { extent.letGo(process) }

    /// Those that have our SIGSTOP, parents first.
    public var stoppedByUs: [ProcessIdentity] { extent.stoppedByUs }

    /// Whether there is nobody whom a stop could reach.
    public var isOutOfReach: Bool {
        if case .signals = means { return extent.members.isEmpty }
        return false
    }

    // MARK: The stop

    /// Chooses how the next stop is made. What is held then is to be written down before `stop`.
    public func prepare(isForeign: (ProcessIdentity) -> Bool) {
        // Whoever had frozen it before us has thawed it: now it is ours to do.
        if case .freezer(let cgroup, isOurs: false) = means, (try? cgroup.wantsFrozen()) != true {
            means = .none
        }
        // Somebody has frozen it since it was chosen: it is not ours to thaw.
        if case .freezer(let cgroup, isOurs: true) = means, !hasFrozen, (try? cgroup.wantsFrozen()) == true {
            means = .freezer(cgroup, isOurs: false)
        }
        guard case .none = means else { return }
        failures = []
        objection = nil
        isUnrecorded = false
        if let cgroup = ownCgroup(isForeign) {
            means = .freezer(cgroup, isOurs: !((try? cgroup.wantsFrozen()) ?? false))
        } else {
            useSignals(isForeign)
        }
    }

    private func useSignals(_ isForeign: (ProcessIdentity) -> Bool) {
        means = .signals
        standing = Extent.members(of: main, proc: proc, isForeign: isForeign)
            .filter { (try? proc.isStopped($0)) == true }
    }

    /// A cgroup that stands for the application: its unit, else the one that it is in (§ 2, "Extent").
    public func ownCgroup(_ isForeign: (ProcessIdentity) -> Bool) -> Cgroup? {
        guard let hierarchy else { return nil }
        let here: Cgroup
        do throws(KernelFailure) {
            here = try Cgroup.of(main.pid, in: hierarchy, proc: proc)
        } catch {
            return nil
        }
        if here.isRoot { return nil }
        var candidates = [here]
        if let unit = here.applicationUnit, unit != here { candidates.insert(unit, at: 0) }
        if let judged, candidates.contains(judged.cgroup),
            judged.isUnchanged(main: main, proc: proc, isForeign: isForeign)
        {
            return judged.cgroup
        }
        for cgroup in candidates where isOwn(cgroup, isForeign) { return cgroup }
        return nil
    }

    private func isOwn(_ cgroup: Cgroup, _ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        do throws(KernelFailure) {
            let snapshot = try CgroupSnapshot(of: cgroup, main: main, proc: proc, isForeign: isForeign)
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

    /// With the cgroup frozen and announced: whether it is still to be. If not, all go on, and the next stop is made
    /// by signal.
    public func verify(isForeign: (ProcessIdentity) -> Bool) -> Bool {
        defer { judged?.hold(proc: proc) }
        guard case .freezer(let cgroup, isOurs: true) = means else { return true }
        if isOwn(cgroup, isForeign) { return true }
        judged = nil
        release()
        return false
    }

    /// Begins to stop, or goes on. `isForeign` says whether a process is an application of its own.
    public func stop(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        prepare(isForeign: isForeign)
        if case .freezer(let cgroup, isOurs: true) = means {
            hasFrozen = true
            do throws(KernelFailure) {
                try cgroup.freeze()
            } catch {
                failures.append(error)
                guard fallBack(isForeign) else { return .pending }
            }
        }
        return proceed(isForeign: isForeign)
    }

    private func fallBack(_ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        useSignals(isForeign)
        guard let failure = fellBack() else { return true }
        failures.append(failure)
        means = .none
        standing = []
        isUnrecorded = true
        return false
    }

    /// Looks again, and goes on.
    public func proceed(isForeign: (ProcessIdentity) -> Bool) -> Progress {
        switch means {
        case .none:
            return stop(isForeign: isForeign)
        case .signals:
            let progress = extent.stop(isForeign: isForeign)
            for failure in extent.failures where !failures.contains(failure) { failures.append(failure) }
            return progress == .complete ? .complete : .pending
        case .freezer(let cgroup, _):
            return look(at: cgroup, isForeign)
        }
    }

    private func look(at cgroup: Cgroup, _ isForeign: (ProcessIdentity) -> Bool) -> Progress {
        do throws(KernelFailure) {
            guard try cgroup.isFrozen() else { return .pending }
            return try cgroup.unfrozenDescendants().isEmpty ? .complete : .pending
        } catch {
            // It is gone, with all that were in it, or they were moved.
            if !failures.contains(error) { failures.append(error) }
            // Where it is there all the same, nobody else would thaw it.
            if isFreezeOurs, !thaw(cgroup) { return .pending }
            guard fallBack(isForeign) else { return .pending }
            return proceed(isForeign: isForeign)
        }
    }

    /// Lets all go that this value stopped, and forgets them; `sparing` those whom somebody else wants stopped. A
    /// cgroup that cannot be thawed, for want of descriptors, say, stays ours to thaw (`isFreezeOurs`): call again.
    public func release(sparing spared: Set<ProcessIdentity> = []) {
        switch means {
        case .freezer(let cgroup, isOurs: true): if hasFrozen, !thaw(cgroup) { return }
        case .none, .signals, .freezer(_, isOurs: false): break
        }
        means = .none
        hasFrozen = false
        standing = []
        extent.release(sparing: spared)
        for failure in extent.failures where !failures.contains(failure) { failures.append(failure) }
    }

    private func thaw(_ cgroup: Cgroup) -> Bool {
        do throws(KernelFailure) {
            try cgroup.thaw()
            return true
        } catch {
            if error.isNoSuchCgroup { return true }
            if !failures.contains(error) { failures.append(error) }
            return false
        }
    }

    // MARK: After another

    /// Given away since, it is frozen all the same, and by us.
    private func holdsMain(_ cgroup: Cgroup) -> Bool {
        (try? Cgroup.of(main.pid, in: cgroup.hierarchy, proc: proc))?.isWithin(cgroup) == true
    }

    /// Takes up the freeze of an earlier value, or one that it was about to make.
    public func adopt(frozen cgroup: Cgroup) {
        means = .freezer(cgroup, isOurs: true)
        hasFrozen = true
    }

    /// Takes up what an earlier value stopped by signal.
    ///
    /// - Parameters:
    ///   - stopped: those that have its SIGSTOP.
    ///   - standing: those that stood before.
    public func adopt(stopped: [ProcessIdentity], standing: [ProcessIdentity]) {
        means = .signals
        self.standing = standing
        extent.adopt(stopped)
    }
}
