import Glibc

/// The facts that `CgroupExtent` judges: a cgroup, who is in it, and how they descend.
public struct CgroupSnapshot: Equatable, Sendable {
    /// One process as one look at it found it.
    public struct Process: Equatable, Sendable {
        /// Who it is.
        public let identity: ProcessIdentity
        /// Its parent's id.
        public let parent: Int32
        /// Its session (setsid(2)): of no weight, but the trace of where an orphan comes from.
        public let session: Int32
        /// Its four user ids.
        public let owner: Proc.Owner

        /// A process as it was seen.
        public init(identity: ProcessIdentity, parent: Int32, session: Int32, owner: Proc.Owner) {
            self.identity = identity
            self.parent = parent
            self.session = session
            self.owner = owner
        }
    }

    /// The cgroup in question.
    public let cgroup: Cgroup
    /// Who owns its directory.
    public let directoryOwner: UInt32
    /// All processes in it and below, in ascending order of their ids.
    public let members: [Process]
    /// Processes outside of it from which some member descends, on the way up to process 1.
    public let forebears: [Process]
    /// Processes of the application's extent that are outside of it, parents first: a freeze does not reach
    /// them.
    public let outside: [ProcessIdentity]
    /// How many are in PID namespaces that we do not see.
    public let unseen: Int
    /// Whether some members are missing: see `Cgroup.Members`.
    public let isPartial: Bool

    /// A snapshot of made-up facts.
    public init(
        cgroup: Cgroup, directoryOwner: UInt32, members: [Process], forebears: [Process] = [],
        outside: [ProcessIdentity] = [], unseen: Int = 0, isPartial: Bool = false
    ) {
        self.cgroup = cgroup
        self.directoryOwner = directoryOwner
        self.members = members
        self.forebears = forebears
        self.outside = outside
        self.unseen = unseen
        self.isPartial = isPartial
    }

    /// Looks at the cgroup, and at the extent of the application that `main` begins.
    ///
    /// One look: whoever forks or moves meanwhile may be missing. What stands still changes no more, so look
    /// and judge again once the cgroup is frozen, and thaw where the second answer is no.
    /// Throws what `Cgroup.members()` throws, and `EMFILE` and the like.
    public init(
        of cgroup: Cgroup, main: ProcessIdentity, proc: Proc = Proc(),
        isForeign: (ProcessIdentity) -> Bool
    ) throws(KernelFailure) {
        // The extent first: who is born after it was walked is found in the cgroup, with its parents.
        let extent = Extent.members(of: main, proc: proc, isForeign: isForeign)
        let found = try cgroup.members()
        var look = Look(proc: proc)
        var members: [Process] = []
        for pid in found.processes {
            if let member = try look.at(pid) { members.append(member) }
        }
        let within = Set(members.map(\.identity.pid))
        var forebears: [Process] = []
        for member in members {
            var next = member.parent
            while next > 0, !within.contains(next), !look.seen.contains(next) {
                guard let forebear = try look.at(next) else { break }
                forebears.append(forebear)
                next = forebear.parent
            }
        }
        var outside: [ProcessIdentity] = []
        for process in extent where !within.contains(process.pid) {
            // It may have ended, or have been born into the cgroup or moved there, since.
            guard try look.isOutside(process, of: cgroup) else { continue }
            outside.append(process)
        }
        self.init(
            cgroup: cgroup, directoryOwner: try cgroup.owner(), members: members, forebears: forebears,
            outside: outside, unseen: found.unseen, isPartial: found.isPartial)
    }
}

/// Looks at processes, each once.
private struct Look {
    let proc: Proc
    private(set) var seen: Set<Int32> = []

    init(proc: Proc) {
        self.proc = proc
    }

    /// The process; nil if it is gone, or has ended and waits for its parent.
    mutating func at(_ pid: Int32) throws(KernelFailure) -> CgroupSnapshot.Process? {
        seen.insert(pid)
        do throws(KernelFailure) {
            let stat = try proc.stat(pid)
            let owner = try proc.status(pid).owner
            // The two files of one process, not of two with the same id; and the parent it has now.
            let after = try proc.stat(pid)
            guard after.startTime == stat.startTime else { return nil }
            return CgroupSnapshot.Process(
                identity: after.identity, parent: after.parent, session: after.session, owner: owner)
        } catch {
            if error.isNoSuchProcess { return nil }
            throw error
        }
    }

    func isOutside(_ process: ProcessIdentity, of cgroup: Cgroup) throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            let place = try Cgroup.of(process.pid, in: cgroup.hierarchy, proc: proc)
            guard try proc.identity(of: process.pid) == process else { return false }
            return !place.isWithin(cgroup)
        } catch {
            // Its cgroup is gone with all that lived in it: a zombie.
            if error.isNoSuchProcess || error.isNoSuchCgroup { return false }
            // A cgroup that we cannot reach is another.
            if error.errno == EXDEV || error.errno == ENODATA { return true }
            throw error
        }
    }
}
