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
    private let core: Core
    private let cgroups: ApplicationCgroup

    init(proc: Proc, hierarchy: UnifiedHierarchy?, core: Core) {
        self.proc = proc
        self.core = core
        let daemon = hierarchy.flatMap { try? Cgroup.of(getpid(), in: $0, proc: proc) }
        cgroups = ApplicationCgroup(hierarchy: hierarchy, daemon: daemon, proc: proc)
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
    /// Whether the cgroup that it is in is its own.
    func judge(_ application: Registered) -> ApplicationCgroup.Answer {
        cgroups.judge(application.process, owner: application.user, applications: foreign) {
            core.machine.hasWindow(ProcessID($0))
        }
    }

    /// The application's own cgroup; nil if it has none.
    func ownCgroup(of application: Registered) -> Cgroup? {
        if case .own(let cgroup) = judge(application) { cgroup } else { nil }
    }

    /// The same, or its own unit if only servers are in it besides.
    func unit(of application: Registered) -> Cgroup? { unit(judge(application)) }

    func unit(_ answer: ApplicationCgroup.Answer) -> Cgroup? {
        switch answer {
        case .own(let cgroup): cgroup
        case .shared(let cgroup, let others): others.contains(where: isForeign) ? nil : cgroup
        case .foreign, .no: nil
        }
    }

    /// The cgroup that the daemon has frozen for it, or is about to, if it still exists.
    func frozenCgroup(of application: Registered) -> Cgroup? {
        cgroups.hierarchy.flatMap { application.hold?.cgroup(in: $0) }
    }

    /// The cgroup that a process is in.
    func cgroup(of process: ProcessIdentity) -> Cgroup? {
        cgroups.hierarchy.flatMap { try? Cgroup.of(process.pid, in: $0, proc: proc) }
    }

    /// The main process of the user's application in whose own unit an orphan is; nil: there is none.
    func main(around process: ProcessIdentity, of user: UInt32) -> ProcessIdentity? {
        guard let unit = cgroup(of: process)?.applicationUnit else { return nil }
        let inside = all.filter { $0.user == user && cgroup(of: $0.process)?.isWithin(unit) == true }
        guard inside.count == 1, let application = inside.first, self.unit(of: application) == unit else {
            return nil
        }
        return application.process
    }

    /// The processes of an application, besides its main process, that are in a cgroup or below it, and that a session
    /// agent may move.
    func company(of application: Registered, in cgroup: Cgroup) -> [ProcessIdentity] {
        Extent.members(of: application.process, proc: proc, isForeign: isForeign).dropFirst().filter {
            self.cgroup(of: $0)?.isWithin(cgroup) == true
                && (try? proc.status($0.pid))?.owner.isWholly(application.user) == true
        }
    }
}
