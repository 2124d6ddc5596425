/// CLOCK_MONOTONIC in microseconds. The core has no clock: each step is given the time.
public typealias Microseconds = UInt64

/// A bus connection's unique name, such as `:1.42`.
public typealias ConnectionName = String

/// A process, identified so that it cannot be mistaken for a later process with the same pid.
public struct ProcessID: Hashable, Sendable, CustomStringConvertible {
    public let pid: Int32
    /// Clock ticks since boot, field 22 of proc_pid_stat(5).
    public let startTime: UInt64

    public init(pid: Int32, startTime: UInt64) {
        self.pid = pid
        self.startTime = startTime
    }

    public var description: String { "pid \(pid)" }
}

/// The N of `/org/appstate1/application/N`. A number is used again only after all 4,294,967,295 have been used, and
/// never while its application exists.
public struct ApplicationNumber: Hashable, Comparable, Sendable, CustomStringConvertible {
    public let rawValue: UInt32

    public init(_ rawValue: UInt32) { self.rawValue = rawValue }

    public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    public var description: String { String(rawValue) }
}

/// The scope of one focus: a logind session or, without logind, everything that a user runs.
public enum SessionKey: Hashable, Comparable, Sendable, CustomStringConvertible {
    case login(String)
    case user(UInt32)

    public var description: String {
        switch self {
        case .login(let id): "session \(id)"
        case .user(let uid): "user \(uid)"
        }
    }

    /// Any order that is the same in every run.
    public static func < (left: Self, right: Self) -> Bool { left.description < right.description }
}
