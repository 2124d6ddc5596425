/// Identifies a process for as long as the machine runs: process ids are reused, but not with the same start time.
public struct ProcessIdentity: Hashable, Sendable, CustomStringConvertible {
    /// The process id in the PID namespace of the `Proc` that gave it.
    public let pid: Int32
    /// When it started, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc(5)).
    public let startTime: UInt64

    /// An identity that was seen or recorded.
    public init(pid: Int32, startTime: UInt64) {
        self.pid = pid
        self.startTime = startTime
    }

    /// The two numbers, for example `12@3456`.
    public var description: String { "\(pid)@\(startTime)" }
}
