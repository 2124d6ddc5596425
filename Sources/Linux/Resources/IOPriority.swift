import CLinux
import Glibc

/// The I/O class and level of a thread: ioprio_set(2). Only some schedulers use it: BFQ, mq-deadline.
public struct IOPriority: Equatable, Sendable, CustomStringConvertible {
    /// The scheduling class.
    public enum Class: Int32, Sendable {
        /// None of its own: class and level follow the nice value.
        case none = 0
        /// Before all others; needs `CAP_SYS_ADMIN` or `CAP_SYS_NICE`.
        case realtime = 1
        /// The normal class, ordered by level.
        case bestEffort = 2
        /// Only when no other process wants the disk.
        case idle = 3
    }

    /// In the kernel's format: the class in the three bits from 13 on, below them the level and, since Linux 6.5,
    /// hints.
    public let rawValue: Int32

    /// A value as the kernel gave it. Before Linux 5.15 the kernel names a level beside the class `none`, and takes no
    /// such level (block/ioprio.c, `get_task_ioprio`, `ioprio_check_cap`), so it is dropped.
    public init(rawValue: Int32) {
        self.rawValue = rawValue >> 13 & 7 == Class.none.rawValue ? rawValue & ~7 : rawValue
    }

    /// A class, and a level from 0 (first) to 7 (last).
    public init(_ ioClass: Class, level: Int32 = 0) {
        rawValue = ioClass.rawValue << 13 | min(max(level, 0), 7)
    }

    /// The class; nil for an unknown one.
    public var ioClass: Class? { Class(rawValue: rawValue >> 13 & 7) }
    /// From 0 (first) to 7 (last); has no meaning in the classes `none` and `idle`.
    public var level: Int32 { rawValue & 7 }

    public var description: String {
        switch ioClass {
        case .none?: "none"
        case .realtime?: "realtime \(level)"
        case .bestEffort?: "best-effort \(level)"
        case .idle?: "idle"
        case nil: "\(rawValue)"
        }
    }

    /// The priority of a thread, by the thread's id. `ESRCH`: there is no such thread.
    public static func read(_ thread: Int32) throws(KernelFailure) -> IOPriority {
        let result = clinux_ioprio_get(thread)
        guard result >= 0 else {
            throw KernelFailure(operation: "ioprio_get", subject: "thread \(thread)", errno: -result)
        }
        return IOPriority(rawValue: result)
    }

    /// Changes a thread by its id, whoever owns it. Fails as `Niceness.set` does, and with `EINVAL` for a class or
    /// level that the kernel does not know.
    func set(_ thread: Int32) throws(KernelFailure) {
        let result = clinux_ioprio_set(thread, rawValue)
        guard result >= 0 else {
            throw KernelFailure(
                operation: "ioprio_set \(self)", subject: "thread \(thread)", errno: -result)
        }
    }
}
