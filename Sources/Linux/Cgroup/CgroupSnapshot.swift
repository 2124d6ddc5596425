import Glibc

/// The facts that `CgroupExtent` evaluates: a cgroup, the processes in it, and their ancestry.
public struct CgroupSnapshot: Equatable, Sendable {
    /// One process, as one examination found it.
    public struct Process: Equatable, Sendable {
        /// Its id and start time.
        public let identity: ProcessIdentity
        /// Its parent's id.
        public let parent: Int32
        /// Its session (setsid(2)). It is not used in the evaluation, but shows where an orphan comes from.
        public let session: Int32
        /// Its four user ids.
        public let owner: Proc.Owner
    }

    /// The cgroup in question.
    public let cgroup: Cgroup
    /// The owner of its directory.
    public let directoryOwner: UInt32
    /// All processes in it and below, in ascending order of their ids.
    public let members: [Process]
    /// Processes outside of it from which some member descends, on the way up to process 1.
    public let forebears: [Process]
    /// Processes of the application's extent that are outside of it, parents first: a freeze does not reach them.
    public let outside: [ProcessIdentity]
    /// How many are in PID namespaces that we cannot see.
    public let unseen: Int
    /// Whether some members are missing: see `Cgroup.Members`.
    public let isPartial: Bool
}

/// A `CgroupSnapshot` that is built piece by piece: of the cgroup, and of the extent of the application that begins
/// with `main`.
///
/// This is one examination: a process that forks or moves meanwhile may be missing. A frozen cgroup no longer
/// changes, so examine and evaluate it again once it is frozen, and thaw it if the second result is negative.
struct CgroupLook {
    let cgroup: Cgroup
    private let main: ProcessIdentity
    private var walk: ExtentWalk
    private var found: Cgroup.Members?
    private var look = Look()
    private var members: [CgroupSnapshot.Process] = []
    private var within: Set<Int32> = []
    private var forebears: [CgroupSnapshot.Process] = []
    private var outside: [ProcessIdentity] = []
    /// A session is some ten processes deep. An application that a user starts at the end of a chain of thousands is
    /// stopped by signal.
    private static let mostForebears = 256
    /// The next ancestor, in the middle of a line of ancestors.
    private var above: Int32?
    /// The position of each of the three loops.
    private var next = (member: 0, line: 0, process: 0)
    /// The processes of the application's extent that were found so far, parents first.
    var extent: [ProcessIdentity] { walk.found }

    init(at cgroup: Cgroup, main: ProcessIdentity) {
        self.cgroup = cgroup
        self.main = main
        walk = ExtentWalk(from: main)
    }

    /// Continues; nil: the budget is spent. Throws the errors of `Cgroup.members()`, and errors such as
    /// `EMFILE`.
    mutating func proceed(
        _ proc: Proc, _ budget: Budget, isForeign: (ProcessIdentity) -> Bool
    ) throws(KernelFailure) -> CgroupSnapshot? {
        // The extent first: a process that is born after the walk is found in the cgroup, with its parents.
        guard walk.proceed(proc, budget, isForeign: isForeign) else { return nil }
        let found: Cgroup.Members
        if let known = self.found {
            found = known
        } else {
            found = try cgroup.members()
            self.found = found
        }
        if found.isPartial { return try snapshot(found) }
        while next.member < found.processes.count {
            if let member = try look.at(found.processes[next.member], proc) {
                members.append(member)
                within.insert(member.identity.pid)
            }
            next.member += 1
            if budget.spend() { return nil }
        }
        while next.line < members.count {
            var above = self.above ?? members[next.line].parent
            while above > 0, !within.contains(above), !look.seen.contains(above) {
                guard forebears.count < Self.mostForebears else {
                    return try snapshot(found, isPartial: true)
                }
                guard let forebear = try look.at(above, proc) else { break }
                forebears.append(forebear)
                above = forebear.parent
                if budget.spend() {
                    self.above = above
                    return nil
                }
            }
            self.above = nil
            next.line += 1
        }
        while next.process < walk.found.count {
            let process = walk.found[next.process]
            next.process += 1
            guard !within.contains(process.pid) else { continue }
            // It may have ended, or have been born in the cgroup or moved there, since.
            if try look.isOutside(process, of: cgroup, proc) { outside.append(process) }
            if budget.spend() { return nil }
        }
        return try snapshot(found)
    }

    private func snapshot(
        _ found: Cgroup.Members, isPartial: Bool = false
    ) throws(KernelFailure) -> CgroupSnapshot {
        CgroupSnapshot(
            cgroup: cgroup, directoryOwner: try cgroup.owner(), members: members, forebears: forebears,
            outside: outside, unseen: found.unseen, isPartial: found.isPartial || isPartial)
    }
}

/// Examines processes, each once.
private struct Look {
    private(set) var seen: Set<Int32> = []

    /// The process; nil if it is gone, or has ended and waits for its parent.
    mutating func at(_ pid: Int32, _ proc: Proc) throws(KernelFailure) -> CgroupSnapshot.Process? {
        seen.insert(pid)
        do throws(KernelFailure) {
            let stat = try proc.stat(pid)
            let owner = try proc.status(pid).owner
            // Makes sure that the two files are of one process, not of two with the same id, and takes its present
            // parent.
            let after = try proc.stat(pid)
            guard after.startTime == stat.startTime else { return nil }
            return CgroupSnapshot.Process(
                identity: after.identity, parent: after.parent, session: after.session, owner: owner)
        } catch {
            if error.isNoSuchProcess { return nil }
            throw error
        }
    }

    func isOutside(
        _ process: ProcessIdentity, of cgroup: Cgroup, _ proc: Proc
    ) throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            let place = try Cgroup.of(process.pid, in: cgroup.hierarchy, proc: proc)
            guard try proc.identity(of: process.pid) == process else { return false }
            return !place.isWithin(cgroup)
        } catch {
            // Its cgroup is gone with all its processes, so the process is a zombie.
            if error.isNoSuchProcess || error.isNoSuchCgroup { return false }
            // A cgroup that we cannot reach is another one.
            if error.errno == EXDEV || error.errno == ENODATA { return true }
            throw error
        }
    }
}
