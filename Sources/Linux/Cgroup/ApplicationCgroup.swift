/// Whether a cgroup is one application's own: it may be frozen, killed and given a share only then.
///
/// A cgroup is an application's own if
/// 1. its directory belongs to the application's user,
/// 2. every process in it belongs wholly to that user, and
/// 3. every process in it descends from the main process, or it is the application's own unit, and the process is an
///    orphan of the application.
///
/// The unit is not the application's own if the main process descends from another process in it, or an orphan in it is
/// older: a program that is started in a terminal is no reason to freeze the terminal. A unit that Flatpak or snapd has
/// made is the application's own, whatever is in it. An orphan is a process whose parents have ended, so that
/// its parent is process 1 or a process above the application, a service manager for example. An orphan in a session of
/// its own (setsid(2)) without a window is a server that the application happened to start, not a part of it.
public struct ApplicationCgroup {
    /// What a judgement finds.
    public enum Answer: Equatable, Sendable {
        /// It holds the application and nothing else.
        case own(Cgroup)
        /// It is the application's own unit once these have left it: servers, and other applications.
        case shared(Cgroup, others: [ProcessIdentity])
        /// It is another's, and why: the application has to leave it.
        case foreign(String)
        /// No cgroup can be the application's own, and why.
        case no(String)
    }

    /// nil: there are no cgroups.
    public let hierarchy: UnifiedHierarchy?
    /// The cgroup of this process: neither it nor one around it is ever an application's own.
    public let daemon: Cgroup?
    private let proc: Proc

    public init(hierarchy: UnifiedHierarchy?, daemon: Cgroup?, proc: Proc) {
        self.hierarchy = hierarchy
        self.daemon = daemon
        self.proc = proc
    }

    /// Judges the unit that the main process is in, or else the cgroup that it is in, with one reading of its processes.
    ///
    /// - Parameters:
    ///   - applications: the main processes of all applications.
    ///   - hasWindow: whether a process owns a window.
    public func judge(
        _ main: ProcessIdentity, owner uid: UInt32, applications: Set<ProcessIdentity>,
        hasWindow: (ProcessIdentity) -> Bool
    ) -> Answer {
        guard let hierarchy else { return .no("there are no cgroups") }
        do throws(KernelFailure) {
            let here = try Cgroup.of(main.pid, in: hierarchy, proc: proc)
            let unit = here.applicationUnit ?? here
            let answer = try judge(unit, main, uid, applications, hasWindow)
            if case .own = answer { return answer }
            if unit != here, case .own(let own) = try judge(here, main, uid, applications, hasWindow) {
                return .own(own)
            }
            return answer
        } catch {
            return .no("\(error)")
        }
    }

    private func judge(
        _ cgroup: Cgroup, _ main: ProcessIdentity, _ uid: UInt32, _ applications: Set<ProcessIdentity>,
        _ hasWindow: (ProcessIdentity) -> Bool
    ) throws(KernelFailure) -> Answer {
        func no(_ why: String) -> Answer { .no("\(cgroup): \(why)") }
        func foreign(_ why: String) -> Answer { .foreign("\(cgroup): \(why)") }
        if let why = try reasonOfPlace(cgroup, uid) { return foreign(why) }
        let found = try cgroup.members()
        guard found.processes.contains(main.pid), try proc.identity(of: main.pid) == main else {
            return no("process \(main.pid) is not in it")
        }
        var tree = try Tree(found.processes, of: main, applications, proc)
        let isSandbox = cgroup.isSandbox
        let isOwnUnit = isSandbox || cgroup.applicationUnit != nil && !tree.isBelowMember
        let refuse = isOwnUnit ? no : foreign
        if found.isPartial { return refuse("it has too many processes or cgroups") }
        if found.unseen > 0 { return refuse("it has processes of another PID namespace") }
        for pid in found.processes where try !isWholly(pid, uid) {
            return refuse("process \(pid) in it does not run with the rights of user \(uid) alone")
        }
        if isSandbox { return .own(cgroup) }
        var others: [ProcessIdentity] = []
        var orphans: [Int32: [ProcessIdentity]] = [:]
        for pid in found.processes where !tree.isChild(pid) {
            guard let process = tree[pid] else { continue }
            switch tree.origin(of: process) {
            case .main: break
            case .orphan(let first) where isOwnUnit: orphans[first, default: []].append(process.identity)
            case .orphan, .elsewhere: others.append(process.identity)
            }
        }
        // It cannot be the application's.
        if let older = orphans.keys.first(where: { tree.isOlder($0) }) {
            return foreign("process \(older) in it is older than the application")
        }
        for (first, family) in orphans where tree.hasOwnSession(first) && !family.contains(where: hasWindow) {
            others += family
        }
        guard let first = others.min(by: { $0.pid < $1.pid }) else { return .own(cgroup) }
        if isOwnUnit { return .shared(cgroup, others: others.sorted { $0.pid < $1.pid }) }
        return foreign("process \(first.pid) in it does not belong to the application")
    }

    /// Why the cgroup can be no single application's, whatever is in it; nil: it can.
    private func reasonOfPlace(_ cgroup: Cgroup, _ uid: UInt32) throws(KernelFailure) -> String? {
        switch cgroup.purpose {
        case .root: return "it is the root of all cgroups"
        case .session: return "it holds a whole session"
        case .manager: return "it is not an application's unit"
        case .any: break
        }
        let owner = try cgroup.owner()
        guard owner == uid else { return "it belongs to user \(owner), the application to user \(uid)" }
        return daemon?.isWithin(cgroup) == true ? "appstated itself is in it" : nil
    }

    /// Also true for a process that has ended.
    private func isWholly(_ pid: Int32, _ uid: UInt32) throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            return try proc.isWholly(pid, uid)
        } catch {
            if error.isNoSuchProcess { return true }
            throw error
        }
    }
}

/// The processes of a cgroup, and where they descend from.
private struct Tree {
    enum Origin {
        case main
        /// It descends from this orphan in the cgroup, or is it.
        case orphan(Int32)
        case elsewhere
    }

    /// Whether the main process descends from another process in the cgroup.
    var isBelowMember: Bool { !above.isDisjoint(with: members) }

    private let main: Proc.Stat
    private let members: Set<Int32>
    /// The processes that the main process descends from.
    private let above: Set<Int32>
    /// Children of the main process in the cgroup that are no applications: mostly these are all, or many.
    private let children: Set<Int32>
    private let applications: Set<ProcessIdentity>
    private let proc: Proc
    private var known: [Int32: Proc.Stat] = [:]
    private var origins: [Int32: Origin] = [:]

    /// A session is some ten processes deep.
    private static let deepest = 256

    init(
        _ members: [Int32], of main: ProcessIdentity, _ applications: Set<ProcessIdentity>, _ proc: Proc
    ) throws(KernelFailure) {
        self.members = Set(members)
        self.applications = applications
        self.proc = proc
        self.main = try proc.stat(main.pid)
        above = Set(proc.lineage(of: main.pid, limit: Self.deepest).dropFirst().map(\.pid))
        children = Set(proc.childrenOfLeadingThread(of: main.pid)).subtracting(applications.lazy.map(\.pid))
    }

    /// Whether it need not be read again.
    func isChild(_ pid: Int32) -> Bool { pid == main.pid || children.contains(pid) }

    /// nil: it has ended.
    subscript(pid: Int32) -> Proc.Stat? {
        mutating get {
            if let stat = known[pid] { return stat }
            let stat = (try? proc.stat(pid)).flatMap { $0.isExiting ? nil : $0 }
            known[pid] = stat
            return stat
        }
    }

    /// Whether an orphan is in a session that neither the application nor a process above it is in.
    mutating func hasOwnSession(_ pid: Int32) -> Bool {
        guard let session = self[pid]?.session else { return false }
        return session != main.session && !above.contains(session)
    }

    mutating func isOlder(_ pid: Int32) -> Bool { self[pid].map { $0.startTime < main.startTime } ?? false }

    mutating func origin(of process: Proc.Stat) -> Origin {
        var line: [Int32] = []
        let origin = follow(process, &line)
        for pid in line { origins[pid] = origin }
        return origin
    }

    private mutating func follow(_ process: Proc.Stat, _ line: inout [Int32]) -> Origin {
        var current = process
        while line.count < Self.deepest {
            if isChild(current.pid) { return .main }
            if applications.contains(current.identity) { return .elsewhere }
            if let known = origins[current.pid] { return known }
            line.append(current.pid)
            // A parent is older; a younger process has taken the id of one that is gone.
            if current.parent > 1, !above.contains(current.parent), let parent = self[current.parent],
                parent.startTime <= current.startTime
            {
                current = parent
                continue
            }
            return members.contains(current.pid) ? .orphan(current.pid) : .elsewhere
        }
        return .elsewhere
    }
}
