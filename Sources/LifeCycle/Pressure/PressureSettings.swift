/// `[Pressure]`: when memory counts as short, and how far the daemon may go (§ 6).
public struct PressureSettings: Equatable, Sendable {
    /// The condition of a PSI trigger (Documentation/accounting/psi.rst of the kernel).
    public struct Trigger: Equatable, Sendable {
        public enum Kind: String, Sendable, CaseIterable {
            /// At least one task waits for memory.
            case some
            /// All tasks that could run wait for memory.
            case full
        }

        public var kind: Kind
        /// The stall time, in microseconds,
        public var stall: Microseconds
        /// within this window: 500 ms to 10 s, as the kernel accepts it.
        public var window: Microseconds

        public init(_ kind: Kind, _ stall: Microseconds, in window: Microseconds) {
            self.kind = kind
            self.stall = stall
            self.window = window
        }
    }

    /// An amount of memory.
    public enum Amount: Equatable, Sendable {
        case bytes(UInt64)
        /// A share of all memory, in hundredths of a per cent; at most 512 MiB (§ 6).
        case share(UInt32)

        /// The amount in bytes if there are `total` bytes: never more than half of them. Otherwise a typing
        /// error could make memory count as short on an idle machine.
        public func bytes(of total: UInt64) -> UInt64 {
            switch self {
            case .bytes(let bytes): return min(bytes, total / 2)
            case .share(let share):
                let (product, overflow) = total.multipliedReportingOverflow(by: UInt64(share))
                return min(overflow ? .max : product / 10_000, 512 << 20, total / 2)
            }
        }
    }

    /// lmkd's partial stall.
    public var warning = Trigger(.some, 70_000, in: 1_000_000)
    /// lmkd's complete stall.
    public var critical = Trigger(.full, 700_000, in: 1_000_000)
    /// Below this much MemAvailable the level is critical, whatever PSI says.
    public var criticalAvailable = Amount.share(500)
    /// `ThrashingLimit`: the share of the file cache that is evicted and read back within a second, in hundredths of a
    /// per cent; nil: no application is ended for thrashing.
    public var thrashingLimit: UInt32? = 1_000
    /// PSI files to watch; empty: the machine's and, if it has one, each user slice's.
    public var sources: [String] = []
    /// How long the daemon waits for a killed application to be gone before it considers the next one. lmkd
    /// waits 100 ms.
    public var killWait: Microseconds = 250_000
    /// The time between `WillTerminate` and SIGKILL of a background application.
    public var terminateGrace: Microseconds = 1_000_000
    /// The most applications that may be ended for one source in one event.
    public var killsPerEvent = 16
    /// Whether to provide org.freedesktop.LowMemoryMonitor, if no other process does.
    public var servesLowMemoryMonitor = true

    public init() {}
}
