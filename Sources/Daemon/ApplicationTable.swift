import Glibc
import LifeCycle
import Linux

/// The registered applications, by how each is reached. Only the executor changes it.
final class ApplicationTable {
    private var applications: [ApplicationNumber: Registered] = [:]
    /// Processes at which an extent ends: those that are applications of their own, and our own.
    private(set) var foreign: Set<ProcessIdentity> = []
    private var numbers: [ProcessIdentity: ApplicationNumber] = [:]

    init(proc: Proc) {
        if let own = try? proc.identity(of: getpid()) { foreign.insert(own) }
    }

    var all: some Collection<Registered> { applications.values }

    subscript(number: ApplicationNumber) -> Registered? { applications[number] }

    /// The application that begins with this process.
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
        // Its process may have registered itself in its place.
        if numbers[application.process] == number {
            numbers[application.process] = nil
            foreign.remove(application.process)
        }
        return application
    }
}

extension ApplicationTable {
    /// How long the texts are that it brought with it, in its launch options and its properties.
    func textBytes(of application: Application) -> Int {
        application.textBytes + (self[application.number]?.keptBytes ?? 0)
    }
}

// MARK: Their cgroups

extension ApplicationTable {
    /// The application's own cgroup, if it has one and that can be told within the budget.
    func ownCgroup(of application: Registered, within budget: Budget) -> Cgroup? {
        if case .found(let cgroup) = application.suspender.ownCgroup(within: budget, isForeign) {
            return cgroup
        }
        return nil
    }

    /// The directories of a cgroup that is this application's own, where it has weights, and where its memory can be
    /// protected. Weights stand for the whole extent. nil: ask again, in another event.
    func ownControllers(
        of application: Registered, within budget: Budget
    ) -> (weights: String?, memory: String?)? {
        switch application.suspender.ownCgroup(within: budget, isForeign) {
        case .interrupted: return nil
        case .none: return (nil, nil)
        case .found(let cgroup):
            func has(_ file: String) -> String? {
                access(cgroup.directory + file, F_OK) == 0 ? cgroup.directory : nil
            }
            return (has("/cpu.weight"), has("/memory.low"))
        }
    }
}
