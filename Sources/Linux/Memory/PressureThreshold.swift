/// How much stall within how much time is worth telling (Documentation/accounting/psi.rst, "Monitoring for
/// pressure thresholds").
public struct PressureThreshold: Hashable, Sendable, CustomStringConvertible {
    /// Whose stall counts.
    public enum Kind: String, Sendable {
        /// Time in which at least one task waits for memory.
        case some
        /// Time in which all tasks that are not idle do: nothing is got done.
        case full
    }

    /// Whose stall counts.
    public let kind: Kind
    /// Microseconds of stall, more than 0, at most the window.
    public let stall: UInt32
    /// Microseconds that they must fall into.
    public let window: UInt32

    /// Microseconds that the kernel takes as a window: `WINDOW_MIN_US`, `WINDOW_MAX_US` of
    /// kernel/sched/psi.c.
    public static let windows: ClosedRange<UInt32> = 500_000...10_000_000

    /// The windows of those without `CAP_SYS_RESOURCE` are multiples of this, in microseconds (psi.rst).
    static let unprivilegedUnit: UInt32 = 2_000_000

    /// A threshold; nil for what the kernel does not take of anybody.
    public init?(_ kind: Kind, stall: UInt32, window: UInt32) {
        guard Self.windows.contains(window), stall > 0, stall <= window else { return nil }
        self.kind = kind
        self.stall = stall
        self.window = window
    }

    /// The same share of the next longer window that needs no privilege; itself where its window is one.
    public var unprivileged: PressureThreshold {
        let unit = Self.unprivilegedUnit
        let longer = (window + unit - 1) / unit * unit
        let scaled = UInt32(UInt64(stall) * UInt64(longer) / UInt64(window))
        return PressureThreshold(kind, stall: scaled, window: longer) ?? self
    }

    /// As the kernel takes it, such as `some 70000 1000000`.
    public var description: String { "\(kind.rawValue) \(stall) \(window)" }
}
