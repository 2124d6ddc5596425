import Glibc
import LifeCycle
import Linux

/// The registered applications, by number and by process. Only the executor changes it.
final class ApplicationTable {
    private var applications: [ApplicationNumber: Registered] = [:]
    /// Processes at which an extent ends: the registered processes and the daemon itself.
    private(set) var foreign: Set<ProcessIdentity> = []
    private var numbers: [ProcessIdentity: ApplicationNumber] = [:]
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?

    init(proc: Proc, hierarchy: UnifiedHierarchy?) {
        self.proc = proc
        self.hierarchy = hierarchy
        if let own = try? proc.identity(of: getpid()) { foreign.insert(own) }
    }

    var all: some Collection<Registered> { applications.values }

    subscript(number: ApplicationNumber) -> Registered? { applications[number] }

    /// The application whose main process this is.
    subscript(process: ProcessIdentity) -> Registered? { numbers[process].flatMap { applications[$0] } }

    /// Whether an extent ends at this process.
    func isForeign(_ process: ProcessIdentity) -> Bool { foreign.contains(process) }

    func add(_ application: Registered) {
        applications[application.number] = application
        numbers[application.process] = application.number
        foreign.insert(application.process)
    }

    func remove(_ number: ApplicationNumber) -> Registered? {
        guard let application = applications.removeValue(forKey: number) else { return nil }
        // The process may have registered itself in place of this application.
        if numbers[application.process] == number {
            numbers[application.process] = nil
            foreign.remove(application.process)
        }
        return application
    }
}

// MARK: Their cgroups

extension ApplicationTable {
    /// The application's own cgroup; nil if it has none.
    func ownCgroup(of application: Registered) -> Cgroup? { application.suspender.ownCgroup(isForeign) }

    /// The user's application in whose own unit a process is. Its parents may have ended.
    func application(around pid: Int32, of user: UInt32) -> Registered? {
        guard let unit = unit(of: pid), let pids = try? unit.processes() else { return nil }
        let inside = Set(pids)
        let own = pids.compactMap { pid -> Registered? in
            guard let process = try? proc.identity(of: pid), let application = self[process],
                application.user == user
            else { return nil }
            // What was started in the unit of another program, a terminal for example, has none of its own.
            let above = proc.lineage(of: pid).dropFirst()
            return above.contains { inside.contains($0.pid) } ? nil : application
        }
        return own.count == 1 ? own[0] : nil
    }

    /// Those of some processes that are in the application's own unit, and belong wholly to its user.
    func members(of application: Registered, among others: [ProcessID]) -> [ProcessID] {
        guard !others.isEmpty, let unit = unit(of: application.process.pid) else { return [] }
        return others.filter {
            // The identity comes last: until then, the number has not been given to another process.
            unit == self.unit(of: $0.pid)
                && self.application(around: $0.pid, of: application.user) === application
                && (try? proc.status($0.pid))?.owner.isWholly(application.user) == true
                && (try? proc.identity(of: $0.pid)) == $0.identity
        }
    }

    private func unit(of pid: Int32) -> Cgroup? {
        guard let hierarchy else { return nil }
        return (try? Cgroup.of(pid, in: hierarchy, proc: proc))?.applicationUnit
    }
}
