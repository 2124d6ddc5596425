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

extension CgroupSnapshot {
    /// A session is some ten processes deep. An application that a user starts at the end of a chain of thousands is
    /// stopped by signal.
    private static let mostForebears = 256

    /// Examines a cgroup once, and the extent of an application. A process that forks or moves meanwhile may be missing.
    /// A frozen cgroup no longer changes, so examine and evaluate it again once it is frozen, and thaw it if the second
    /// result is negative.
    ///
    /// Throws the errors of `Cgroup.members()`, and errors such as `EMFILE`.
    ///
    /// - Parameter extent: the application's processes, as they were found before.
    init(of cgroup: Cgroup, extent: [ProcessIdentity], proc: Proc) throws(KernelFailure) {
        let found = try cgroup.members()
        var look = Look()
        var members: [Process] = []
        var forebears: [Process] = []
        var outside: [ProcessIdentity] = []
        var isPartial = found.isPartial
        if !isPartial {
            for pid in found.processes {
                if let member = try look.at(pid, proc) { members.append(member) }
            }
            let within = Set(members.map(\.identity.pid))
            for member in members {
                var above = member.parent
                while above > 0, !within.contains(above), !look.seen.contains(above) {
                    if forebears.count == Self.mostForebears { isPartial = true }
                    guard !isPartial, let forebear = try look.at(above, proc) else { break }
                    forebears.append(forebear)
                    above = forebear.parent
                }
            }
            for process in extent where !within.contains(process.pid) {
                // It may have ended, or have been born in the cgroup or moved there, since.
                if try look.isOutside(process, of: cgroup, proc) { outside.append(process) }
            }
        }
        self.init(
            cgroup: cgroup, directoryOwner: try cgroup.owner(), members: members, forebears: forebears,
            outside: outside, unseen: found.unseen, isPartial: isPartial)
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
