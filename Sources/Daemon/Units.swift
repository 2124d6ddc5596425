import LifeCycle
import Linux

/// Which application a process belongs to whose parents have ended: every process in an application's own unit belongs
/// to that application (`CgroupExtent`).
final class Units {
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    private let table: ApplicationTable
    private let now: () -> Microseconds
    private var known = Known()

    /// The units of one user's applications.
    private struct Known {
        var user: UInt32?
        var version = 0
        var time: Microseconds = 0
        var applications: [Cgroup: [ProcessIdentity]] = [:]
        /// The main processes that were asked for; nil: the unit is not one application's own.
        var mains: [Cgroup: ProcessIdentity?] = [:]
    }

    /// The most ancestors that are examined. The parent of a process that was started in a unit is mostly in it, too.
    private static let mostAncestors = 3
    /// How long the answers are valid, because a reporter may name many processes at once.
    private static let validity: Microseconds = 100_000

    init(
        proc: Proc, hierarchy: UnifiedHierarchy?, table: ApplicationTable,
        now: @escaping () -> Microseconds
    ) {
        self.proc = proc
        self.hierarchy = hierarchy
        self.table = table
        self.now = now
    }

    /// The main process of the user's application in whose own unit a process is; nil: there is none.
    func main(around pid: Int32, of user: UInt32) -> ProcessIdentity? {
        guard let unit = unit(of: pid) else { return nil }
        return main(of: unit, user)
    }

    /// Those of some processes that are in the application's own unit, and belong wholly to its user.
    ///
    /// - Parameter others: not called if the application is in no unit.
    func members(of application: Registered, among others: () -> [ProcessID]) -> [ProcessID] {
        guard let unit = unit(of: application.process.pid) else { return [] }
        let inside = others().filter { self.unit(of: $0.pid) == unit }
        guard !inside.isEmpty, main(of: unit, application.user) == application.process else { return [] }
        return inside.filter {
            // The identity comes last: until then, the number has not been given to another process.
            (try? proc.status($0.pid))?.owner.isWholly(application.user) == true
                && (try? proc.identity(of: $0.pid)) == $0.identity
        }
    }

    private func unit(of pid: Int32) -> Cgroup? {
        guard let hierarchy else { return nil }
        return (try? Cgroup.of(pid, in: hierarchy, proc: proc))?.applicationUnit
    }

    private func main(of unit: Cgroup, _ user: UInt32) -> ProcessIdentity? {
        if known.user != user || known.version != table.version || now() >= known.time + Self.validity {
            known = Known(
                user: user, version: table.version, time: now(), applications: applications(of: user))
        }
        if let found = known.mains[unit] { return found }
        let own = (known.applications[unit] ?? []).filter { isOwn(unit, of: $0) }
        let main = own.count == 1 ? own[0] : nil
        known.mains[unit] = .some(main)
        return main
    }

    private func applications(of user: UInt32) -> [Cgroup: [ProcessIdentity]] {
        var found: [Cgroup: [ProcessIdentity]] = [:]
        for application in table.all where application.user == user {
            if let unit = unit(of: application.process.pid) {
                found[unit, default: []].append(application.process)
            }
        }
        return found
    }

    /// A process that descends from another one in the unit was started there, from a terminal for example.
    private func isOwn(_ unit: Cgroup, of main: ProcessIdentity) -> Bool {
        let above = proc.lineage(of: main.pid, limit: Self.mostAncestors + 1).dropFirst()
        return !above.contains { self.unit(of: $0.pid) == unit }
    }
}
