import LifeCycle
import Linux

/// Checks whether the active application waits for its own pages, if it has a cgroup with a memory controller (§ 6).
/// The files are opened when an event needs them, and closed after it.
final class FrontSensor {
    /// The active application, and its own cgroup.
    struct Front {
        let number: ApplicationNumber
        let cgroup: () -> Cgroup?
    }

    private var number: ApplicationNumber?
    private var files: CgroupWorkingSet?

    /// The figures about it; nil: no application is active, or it has no such cgroup.
    func read(_ front: Front?) -> FrontMemory? {
        guard let front else { return nil }
        if number != front.number {
            number = front.number
            files = front.cgroup().flatMap { try? CgroupWorkingSet($0) }
        }
        guard let figures = try? files?.read() else { return nil }
        return FrontMemory(
            front.number, cached: figures.cached, refaulted: figures.refaulted, waited: figures.waited)
    }

    /// The application may have another cgroup the next time.
    func forget() {
        number = nil
        files = nil
    }
}
