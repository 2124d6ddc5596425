import Glibc

/// An application's processes: the main process and its descendants, without those that are, or descend
/// from, applications of their own.
///
/// A process whose parents have all ended belongs to the process that took it in, and so to no extent.
public enum Extent {
    /// The most processes that an extent is followed to.
    public static let limit = 4096

    /// The extent as one walk finds it, parents first, without zombies; empty if `main` is gone.
    ///
    /// `isForeign` says whether a process is an application of its own; it is not asked about `main`.
    public static func members(
        of main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        guard (try? proc.identity(of: main.pid)) == main else { return [] }
        var found = [main]
        var known: Set<ProcessIdentity> = [main]
        var next = 0
        while next < found.count {
            for child in proc.offspring(of: found[next]) where !known.contains(child) {
                guard found.count < limit else { return found }
                known.insert(child)
                if !isForeign(child) { found.append(child) }
            }
            next += 1
        }
        return found
    }

    /// Signals every process of the extent, parents first, with SIGKILL the main process last, each through its pidfd and only if all of its
    /// four user ids are `uid` at that moment; what is not is recorded with `EPERM`, and its descendants
    /// are left alone too. A process that is gone is no failure.
    public static func signal(
        _ signal: Int32, to main: ProcessIdentity, owner uid: UInt32, proc: Proc,
        isForeign: (ProcessIdentity) -> Bool
    ) -> [KernelFailure] {
        var set = HeldExtent(proc: proc, main: main, owner: uid)
        // Two walks that agree: one that finds the set, one that finds nobody new. What may fork meanwhile is
        // stopped first (`StoppedExtent`).
        var rounds = 3
        while rounds > 0, set.grow(isForeign) { rounds -= 1 }
        set.signal(signal)
        return set.failures
    }
}

/// A set of held processes that grows along the tree.
struct HeldExtent {
    let proc: Proc
    let owner: UInt32
    private(set) var held: [HeldProcess] = []
    private(set) var failures: [KernelFailure] = []
    private var known: Set<ProcessIdentity> = []
    private var outOfReach: Set<ProcessIdentity> = []

    init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        owner = uid
        hold(main)
    }

    /// Walks the tree below all that is held; true if somebody was new.
    mutating func grow(_ isForeign: (ProcessIdentity) -> Bool) -> Bool {
        let before = known.count
        var next = 0
        while next < held.count {
            grow(below: held[next], isForeign)
            next += 1
        }
        return known.count > before
    }

    /// Signals all; with SIGKILL in the reverse order, for the reason that `StoppedExtent.kill` gives.
    mutating func signal(_ signal: Int32) {
        for process in signal == SIGKILL ? held.reversed() : held where !outOfReach.contains(process.identity)
        {
            do throws(KernelFailure) {
                try process.signal(signal, owner: owner, proc: proc)
            } catch {
                if !error.isNoSuchProcess { exclude(process.identity, error) }
            }
        }
    }

    private mutating func grow(below parent: HeldProcess, _ isForeign: (ProcessIdentity) -> Bool) {
        guard !outOfReach.contains(parent.identity) else { return }
        for child in proc.offspring(of: parent.identity) where !known.contains(child) {
            guard known.count < Extent.limit else {
                let failure = KernelFailure(
                    operation: "walk extent", subject: "process \(held[0].identity)", errno: E2BIG)
                if failures.last != failure { failures.append(failure) }
                return
            }
            if isForeign(child) {
                known.insert(child)
            } else {
                hold(child)
            }
        }
    }

    private mutating func hold(_ identity: ProcessIdentity) {
        known.insert(identity)
        do throws(KernelFailure) {
            let process = try HeldProcess(identity, proc: proc)
            // Looked at here already, so that nothing below a process that is not ours is walked.
            try process.checkOwner(owner, proc: proc)
            held.append(process)
        } catch {
            if !error.isNoSuchProcess { exclude(identity, error) }
        }
    }

    private mutating func exclude(_ identity: ProcessIdentity, _ failure: KernelFailure) {
        outOfReach.insert(identity)
        failures.append(failure)
    }
}

extension Proc {
    /// The living children of a process, if it is still this process.
    func offspring(of parent: ProcessIdentity) -> [ProcessIdentity] {
        guard let children = try? children(of: parent.pid) else { return [] }
        var found: [ProcessIdentity] = []
        for child in children {
            // Its parent is read with its start time: a number that was given again has another parent.
            guard let stat = try? stat(child), stat.parent == parent.pid else { continue }
            // A zombie whose last thread has ended has nothing that could be signalled.
            if stat.state == .zombie, (try? state(of: stat.identity)) ?? .zombie == .zombie { continue }
            found.append(stat.identity)
        }
        guard (try? identity(of: parent.pid)) == parent else { return [] }
        return found
    }
}
