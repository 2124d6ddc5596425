import Glibc
import LifeCycle
import Linux

/// The registered applications, by number and by process. Only the executor changes it.
final class ApplicationTable {
    private var applications: [ApplicationNumber: Registered] = [:]
    /// Processes at which an extent ends: the registered processes and the daemon itself.
    private(set) var foreign: Set<ProcessIdentity> = []
    private var numbers: [ProcessIdentity: ApplicationNumber] = [:]
    /// Differs after each change.
    private(set) var version = 0

    init(proc: Proc) {
        if let own = try? proc.identity(of: getpid()) { foreign.insert(own) }
    }

    var all: some Collection<Registered> { applications.values }

    subscript(number: ApplicationNumber) -> Registered? { applications[number] }

    /// The application whose main process this is.
    subscript(process: ProcessIdentity) -> Registered? { numbers[process].flatMap { applications[$0] } }

    /// Whether an extent ends at this process.
    func isForeign(_ process: ProcessIdentity) -> Bool { foreign.contains(process) }

    func add(_ application: Registered) {
        version += 1
        applications[application.number] = application
        numbers[application.process] = application.number
        foreign.insert(application.process)
    }

    func remove(_ number: ApplicationNumber) -> Registered? {
        guard let application = applications.removeValue(forKey: number) else { return nil }
        version += 1
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

    /// The directory of the application's own cgroup, for its weights and for the protection of its memory; each is nil
    /// where the cgroup does not offer it. Weights apply to the whole extent.
    func ownControllers(of application: Registered) -> (weights: String?, memory: String?) {
        guard let cgroup = ownCgroup(of: application) else { return (nil, nil) }
        func has(_ file: String) -> String? { cgroup.has(file) ? cgroup.directory : nil }
        return (has("cpu.weight"), has("memory.low"))
    }
}
