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

    /// The application of one source.
    private struct Slot {
        let number: ApplicationNumber
        let files: CgroupWorkingSet?
        let openedAt: Microseconds
    }

    private var slots: [PressureSource: Slot] = [:]

    /// The pause before another attempt: the search for the cgroup may have been interrupted, or the application has
    /// moved.
    private static let pause: Microseconds = 500_000

    /// The figures about it; nil: no application is active, or it has no such cgroup.
    ///
    /// - Parameter now: when the loop woke up.
    func read(_ front: Front?, of source: PressureSource, at now: Microseconds) -> FrontMemory? {
        guard let front else { return nil }
        var slot = slots[source]
        if slot?.number != front.number { slot = nil }
        if slot.map({ $0.files == nil && now - $0.openedAt >= Self.pause }) ?? true {
            let files = front.cgroup().flatMap { try? CgroupWorkingSet($0) }
            slot = Slot(number: front.number, files: files, openedAt: now)
            slots[source] = slot
        }
        guard let files = slot?.files else { return nil }
        guard let figures = try? files.read() else {
            slots[source] = Slot(number: front.number, files: nil, openedAt: now)
            return nil
        }
        return FrontMemory(
            front.number, cached: figures.cached, refaulted: figures.refaulted, waited: figures.waited)
    }

    /// The application of this source may have another cgroup the next time.
    func forget(_ source: PressureSource) { slots[source] = nil }

    /// The same for all sources.
    func forgetAll() { slots = [:] }
}
