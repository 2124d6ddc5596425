/// `[Pressure]`: when memory counts as short, and how far the daemon may go (§ 6).
public struct PressureSettings: Equatable, Sendable {
    /// What a PSI trigger waits for (Documentation/accounting/psi.rst of the kernel).
    public struct Trigger: Equatable, Sendable {
        public enum Kind: String, Sendable, CaseIterable {
            /// At least one task waits for memory.
            case some
            /// All that could run wait for memory.
            case full
        }

        public var kind: Kind
        /// So much waiting, in microseconds,
        public var stall: Microseconds
        /// within so much time: 500 ms to 10 s, as the kernel takes it.
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
        /// Of all memory, in hundredths of a per cent; at most 512 MiB (§ 6).
        case share(UInt32)

        /// The amount in bytes where there are `total` bytes: never more than half of these. A machine that does nothing
        /// would be short of memory, because of a slip of the pen.
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
    /// Below so much MemAvailable it is critical, whatever PSI says.
    public var criticalAvailable = Amount.share(500)
    /// `ThrashingLimit`: so much of the file cache is taken and read back within a second, in hundredths of a per cent;
    /// nil: nobody is ended for it.
    public var thrashingLimit: UInt32? = 1_000
    /// PSI files to watch; empty: the machine's and, where they have one, each user slice's.
    public var sources: [String] = []
    /// How long a killed application may take to be gone before the next is looked at. lmkd waits 100 ms.
    public var killWait: Microseconds = 250_000
    /// Between `WillTerminate` and SIGKILL of a background application.
    public var terminateGrace: Microseconds = 1_000_000
    /// Applications that one source may cost in one event.
    public var killsPerEvent = 16
    /// Serve org.freedesktop.LowMemoryMonitor, if nobody else does.
    public var servesLowMemoryMonitor = true

    public init() {}
}
