/// The extent rule and the owner check of lifecycle.md for cgroups, as a function of facts.
///
/// § 2, "Extent": *an application is its registered process and the descendants, ending at any other
/// registered process; a cgroup stands for it only if the whole subtree is within that extent and the
/// directory belongs to the application's uid. Whatever is done to it checks the owner again at that moment; a
/// setuid child is never touched with the daemon's rights.* § 5: *the cgroup of the application's own unit
/// (app-\*.scope, app-\*.service, or a cgroup that passes the extent rule).*
///
/// Every process in the application's own unit belongs to it, orphaned or not, for example a crash handler whose
/// parents have ended. The unit is the application's own unless its process descends from another process in the unit:
/// a program that is started in a terminal is not a reason to freeze the terminal.
public enum CgroupExtent {
    /// Whether a cgroup represents an application.
    public enum Answer: Equatable, Sendable {
        /// All processes in it are the application's, and it may be frozen. `remainder`: the application's processes
        /// that are in other cgroups, parents first; a freeze of the whole (§ 5) must stop them, too.
        case own(remainder: [ProcessIdentity])
        /// It does not represent the application, and why.
        case refused(Reason)
    }

    /// Why a cgroup does not represent an application.
    public enum Reason: Equatable, Sendable {
        /// It is the root of the hierarchy (§ 2: shared with everything).
        case rootCgroup
        /// It is the scope of a whole session (§ 2).
        case sessionScope(String)
        /// It is a service manager's own cgroup, or a slice, and not an application's unit (§ 5).
        case notApplicationUnit(String)
        /// Its directory belongs to another user than the application (§ 2).
        case directoryOf(UInt32, not: UInt32)
        /// The daemon itself is in it: it would be frozen, and would never thaw.
        case holdsDaemon(Cgroup)
        /// The registered process is not in it, or is gone.
        case mainOutside(ProcessIdentity)
        /// It has more processes or cgroups than are examined (`Extent.mostProcesses`), or a cgroup whose
        /// name we cannot represent.
        case seenInPart
        /// It holds processes that we cannot see, in other PID namespaces (§ 2).
        case unseenProcesses(Int)
        /// A process in it is not wholly the application's user's: a setuid child, or another user's (§ 2).
        case otherOwner(ProcessIdentity, Proc.Owner, not: UInt32)
        /// Another registered process is in it (§ 2: the extent ends there).
        case otherApplication(ProcessIdentity)
        /// A process in it belongs to another registered process (§ 2).
        case belowOtherApplication(ProcessIdentity, ProcessIdentity)
        /// A process in it does not descend from the registered process (§ 2), or no longer does because its parents
        /// have ended. The cgroup is not in the application's own unit.
        case stranger(ProcessIdentity, parent: Int32, session: Int32)
    }

    /// Evaluates a snapshot. `main` is the registered process and `uid` its application's user; `daemon` is
    /// the cgroup of this process, if it is in one; `isForeign` says whether a process is an application of
    /// its own, and is not called for `main`.
    public static func judge(
        _ snapshot: CgroupSnapshot, main: ProcessIdentity, owner uid: UInt32, daemon: Cgroup?,
        isForeign: (ProcessIdentity) -> Bool
    ) -> Answer {
        if let reason = reasonOfPlace(snapshot.cgroup, snapshot.directoryOwner, uid, daemon) {
            return .refused(reason)
        }
        if snapshot.isPartial { return .refused(.seenInPart) }
        guard snapshot.members.contains(where: { $0.identity == main }) else {
            return .refused(.mainOutside(main))
        }
        if snapshot.unseen > 0 { return .refused(.unseenProcesses(snapshot.unseen)) }
        for member in snapshot.members where !member.owner.isWholly(uid) {
            return .refused(.otherOwner(member.identity, member.owner, not: uid))
        }
        var lines = Lines(snapshot, main: main)
        let isOwnUnit = snapshot.cgroup.applicationUnit != nil && !lines.isBelowMember
        for member in snapshot.members {
            switch lines.origin(of: member, isForeign) {
            case .main: continue
            case .foreign(let application) where application == member.identity:
                return .refused(.otherApplication(application))
            case .foreign(let application):
                return .refused(.belowOtherApplication(member.identity, application))
            case .elsewhere where isOwnUnit:
                continue
            case .elsewhere:
                return .refused(
                    .stranger(member.identity, parent: member.parent, session: member.session))
            }
        }
        return .own(remainder: snapshot.outside)
    }

    /// Why the cgroup cannot represent an application, regardless of its processes; nil if it may.
    static func reasonOfPlace(
        _ cgroup: Cgroup, _ directoryOwner: UInt32, _ uid: UInt32, _ daemon: Cgroup?
    ) -> Reason? {
        switch cgroup.purpose {
        case .root: return .rootCgroup
        case .session: return .sessionScope(cgroup.name)
        case .manager: return .notApplicationUnit(cgroup.name)
        case .any: break
        }
        guard directoryOwner == uid else { return .directoryOf(directoryOwner, not: uid) }
        if let daemon, daemon.isWithin(cgroup) { return .holdsDaemon(daemon) }
        return nil
    }
}

extension CgroupExtent.Reason: CustomStringConvertible {
    /// What comes after "its cgroup is not frozen: ".
    public var description: String {
        switch self {
        case .rootCgroup: "it is the root of all cgroups"
        case .sessionScope(let name): "\(name) holds a whole session"
        case .notApplicationUnit(let name): "\(name) is not an application's unit"
        case .directoryOf(let owner, let uid): "it belongs to uid \(owner), the application to uid \(uid)"
        case .holdsDaemon(let cgroup): "appstated itself is in it, in \(cgroup)"
        case .mainOutside(let main): "process \(main) is not in it"
        case .seenInPart: "not all of it can be examined"
        case .unseenProcesses(let count):
            "\(count) of its processes cannot be seen from this PID namespace"
        case .otherOwner(let process, let owner, let uid):
            "process \(process) in it runs as uid \(owner.others(than: uid)), the application as uid \(uid)"
        case .otherApplication(let process): "process \(process) in it is an application of its own"
        case .belowOtherApplication(let process, let application):
            "process \(process) in it belongs to another application, process \(application)"
        case .stranger(let process, let parent, let session):
            "process \(process) in it (parent \(parent), session \(session)) does not descend from the "
                + "application"
        }
    }
}

extension Proc.Owner {
    /// The ids that are not `uid`, each once, as text.
    fileprivate func others(than uid: UInt32) -> String {
        var found: [UInt32] = []
        for id in [real, effective, saved, filesystem] where id != uid && !found.contains(id) {
            found.append(id)
        }
        return found.map(String.init).joined(separator: ", ")
    }
}

/// The lines of descent in a snapshot.
private struct Lines {
    enum Origin {
        case main
        case foreign(ProcessIdentity)
        case elsewhere
    }

    /// Whether the main process descends from another process in the cgroup.
    let isBelowMember: Bool
    private let main: ProcessIdentity
    private let processes: [Int32: CgroupSnapshot.Process]
    private var origins: [Int32: Origin] = [:]

    init(_ snapshot: CgroupSnapshot, main: ProcessIdentity) {
        self.main = main
        // A process that left the cgroup during the examination may be in both lists.
        processes = Dictionary(
            (snapshot.members + snapshot.forebears).map { ($0.identity.pid, $0) },
            uniquingKeysWith: { first, _ in first })
        let members = Set(snapshot.members.map(\.identity.pid))
        var above = processes[main.pid].flatMap { [processes] in processes[$0.parent] }
        // Inconsistent facts could form a circle.
        for _ in 0..<processes.count {
            guard let process = above, !members.contains(process.identity.pid) else { break }
            above = processes[process.parent]
        }
        isBelowMember = above.map { members.contains($0.identity.pid) } ?? false
    }

    /// The origin of a process: the nearest process upwards, itself included, that is `main` or foreign.
    mutating func origin(
        of process: CgroupSnapshot.Process, _ isForeign: (ProcessIdentity) -> Bool
    ) -> Origin {
        var line: [Int32] = []
        let origin = follow(process, isForeign, &line)
        // This is called for each process of a long line, so the line is followed only once.
        for pid in line { origins[pid] = origin }
        return origin
    }

    private func follow(
        _ process: CgroupSnapshot.Process, _ isForeign: (ProcessIdentity) -> Bool, _ line: inout [Int32]
    ) -> Origin {
        var current = process
        // Inconsistent facts could form a circle.
        for _ in 0...processes.count {
            if current.identity == main { return .main }
            if isForeign(current.identity) { return .foreign(current.identity) }
            if let known = origins[current.identity.pid] { return known }
            line.append(current.identity.pid)
            // A parent is older; a younger process has taken the id of one that is gone.
            guard let parent = processes[current.parent],
                parent.identity.startTime <= current.identity.startTime
            else { return .elsewhere }
            current = parent
        }
        return .elsewhere
    }
}
