/// How much stall within how much time is worth reporting (Documentation/accounting/psi.rst, "Monitoring for pressure
/// thresholds").
public struct PressureThreshold: Hashable, Sendable, CustomStringConvertible {
    /// Which tasks' stall counts.
    public enum Kind: String, Sendable {
        /// Time in which at least one task waits for memory.
        case some
        /// Time in which all tasks that are not idle wait: no work gets done.
        case full
    }

    /// Which tasks' stall counts.
    public let kind: Kind
    /// Microseconds of stall, more than 0, at most the window.
    public let stall: UInt32
    /// Microseconds of the window that the stall must fall into.
    public let window: UInt32

    /// The windows that the kernel accepts, in microseconds: `WINDOW_MIN_US`, `WINDOW_MAX_US` of kernel/sched/psi.c.
    public static let windows: ClosedRange<UInt32> = 500_000...10_000_000

    /// Without `CAP_SYS_RESOURCE` windows must be multiples of this, in microseconds (psi.rst).
    static let unprivilegedUnit: UInt32 = 2_000_000

    /// A threshold; nil for values that the kernel accepts from no caller.
    public init?(_ kind: Kind, stall: UInt32, window: UInt32) {
        guard Self.windows.contains(window), stall > 0, stall <= window else { return nil }
        self.kind = kind
        self.stall = stall
        self.window = window
    }

    /// The same share of the next longer window that needs no privilege; unchanged if its window needs none.
    public var unprivileged: PressureThreshold {
        let unit = Self.unprivilegedUnit
        let longer = (window + unit - 1) / unit * unit
        let scaled = UInt32(UInt64(stall) * UInt64(longer) / UInt64(window))
        return PressureThreshold(kind, stall: scaled, window: longer) ?? self
    }

    /// In the kernel's format, for example `some 70000 1000000`.
    public var description: String { "\(kind.rawValue) \(stall) \(window)" }
}
