import Glibc

/// An application's processes: the main process and its descendants, without those that are, or descend
/// from, applications of their own.
///
/// A process whose parents have all ended belongs to the process that adopted it, and so to no extent.
public enum Extent {
    /// The most processes of one extent that are followed.
    public static let mostProcesses = 4096

    /// The extent as one walk finds it, parents first, without zombies; empty if `main` is gone.
    ///
    /// `isForeign` says whether a process is an application of its own; it is not called for `main`.
    ///
    /// - Parameter limit: the most processes that are found.
    public static func members(
        of main: ProcessIdentity, limit: Int = mostProcesses, proc: Proc,
        isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        guard (try? proc.identity(of: main.pid)) == main else { return [] }
        var found = [main]
        var known: Set = [main]
        var next = 0
        while next < found.count {
            for child in proc.children(of: found[next]) where known.insert(child).inserted {
                if isForeign(child) { continue }
                guard found.count < limit else { return found }
                found.append(child)
            }
            next += 1
        }
        return found
    }

    /// The members that are stopped, no matter by which process.
    public static func stoppedMembers(
        of main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        members(of: main, proc: proc, isForeign: isForeign).filter { (try? proc.isStopped($0)) == true }
    }

    /// Signals only one process, through its pidfd, and only if all four of its user ids are `uid` at that moment.
    public static func signal(
        _ signal: Int32, toOnly process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        try HeldProcess(process, proc: proc).signal(signal, owner: uid, proc: proc)
    }

    /// Sends one signal to every process of an extent, parents first; SIGKILL reaches the main process last. Each
    /// process is signalled through its pidfd, and only if all four of its user ids are `uid` at that moment. If they
    /// are not, `EPERM` is recorded, and its descendants are left alone too. A process that is gone is not a failure.
    ///
    /// - Returns: the processes that were signalled, and the failures, each once, and only the first of many of one
    ///   kind (`FailureList`).
    @discardableResult
    public static func signal(
        _ signal: Int32, toAllOf main: ProcessIdentity, owner uid: UInt32, proc: Proc,
        isForeign: (ProcessIdentity) -> Bool
    ) -> (members: [ProcessIdentity], failures: [KernelFailure]) {
        var signalling = Signalling(main: main, owner: uid, proc: proc)
        signalling.find(isForeign)
        // With SIGKILL in the reverse order, for the reason that `StoppedExtent.kill` gives.
        signalling.send(signal, inReverse: signal == SIGKILL)
        return (signalling.held.map(\.identity), signalling.list.failures)
    }
}

/// The processes of an extent that get a signal.
private struct Signalling {
    let main: ProcessIdentity
    let owner: UInt32
    let proc: Proc
    var held: [HeldProcess] = []
    var list = FailureList()
    private var known: Set<ProcessIdentity> = []

    init(main: ProcessIdentity, owner: UInt32, proc: Proc) {
        (self.main, self.owner, self.proc) = (main, owner, proc)
    }

    /// Two walks that agree: one finds the set, the other finds no new process. An application that may fork meanwhile
    /// is stopped first (`StoppedExtent`).
    mutating func find(_ isForeign: (ProcessIdentity) -> Bool) {
        hold(main)
        for _ in 0..<3 {
            let before = known.count
            var next = 0
            while next < held.count {
                for child in proc.children(of: held[next].identity) where !known.contains(child) {
                    guard known.count < Extent.mostProcesses else {
                        list.add(
                            KernelFailure(operation: "walk extent", subject: "process \(main)", errno: E2BIG))
                        return
                    }
                    if isForeign(child) { known.insert(child) } else { hold(child) }
                }
                next += 1
            }
            if known.count == before { return }
        }
    }

    mutating func send(_ signal: Int32, inReverse: Bool) {
        if inReverse { held.reverse() }
        for process in held {
            do throws(KernelFailure) {
                try process.signal(signal, owner: owner, proc: proc)
            } catch {
                if !error.isNoSuchProcess { list.add(error) }
            }
        }
    }

    private mutating func hold(_ identity: ProcessIdentity) {
        known.insert(identity)
        do throws(KernelFailure) {
            let process = try HeldProcess(identity, proc: proc)
            // Checked here already, so that nothing below a process that is not ours is walked.
            try process.checkOwner(owner, proc: proc)
            held.append(process)
        } catch {
            if !error.isNoSuchProcess { list.add(error) }
        }
    }
}

extension Extent {
    /// The processes that a stop of the application would stop: all that are in its own cgroup, orphans among them
    /// (`CgroupExtent`), else those of `members`. Does nothing to them.
    ///
    /// Reads everything at once, as one examination finds it: for another thread than the one that decides. The
    /// application may change before the stop; the stop itself examines it again (`Suspender`).
    ///
    /// - Parameters:
    ///   - uid: the application's user.
    ///   - hierarchy: where cgroups are; nil: a stop uses signals.
    ///   - daemon: a cgroup that is never frozen, nor is any cgroup that contains it.
    public static func affected(
        of main: ProcessIdentity, owner uid: UInt32, hierarchy: UnifiedHierarchy?, daemon: Cgroup?,
        proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        let extent = members(of: main, proc: proc, isForeign: isForeign)
        guard let hierarchy, let here = try? Cgroup.of(main.pid, in: hierarchy, proc: proc), !here.isRoot
        else { return extent }
        for cgroup in here.candidates {
            guard let directoryOwner = try? cgroup.owner(),
                CgroupExtent.reasonOfPlace(cgroup, directoryOwner, uid, daemon) == nil,
                let snapshot = try? CgroupSnapshot(of: cgroup, extent: extent, proc: proc),
                CgroupExtent.judge(snapshot, main: main, owner: uid, daemon: daemon, isForeign: isForeign)
                    == .own(remainder: [])
            else { continue }
            let known = Set(extent)
            return extent + snapshot.members.map(\.identity).filter { !known.contains($0) }
        }
        return extent
    }
}

extension Cgroup {
    /// The cgroups that may represent an application whose main process is in this one: its unit, else this one (§ 2,
    /// "Extent").
    var candidates: [Cgroup] {
        guard let unit = applicationUnit, unit != self else { return [self] }
        return [unit, self]
    }
}
