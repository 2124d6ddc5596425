import Glibc

/// Tells when memory is being taken, before anybody has to wait for it: a software event of the kernel
/// (`PERF_COUNT_SW_PAGE_FAULTS`, perf_event_open(2)) on each CPU, that comes after so many page faults.
///
/// Who takes memory faults, once for each page, or for more at once where pages are large. Who only works faults,
/// too: an alarm says look, not that anything is gone. An idle machine does not fault, and is not woken. While it
/// is armed, a fault costs some 30 ns more.
public final class FaultAlarm {
    private let rings: [PerfRing]
    static let never = UInt64(Int64.max)

    /// Opens it; it is not armed. Needs `CAP_PERFMON`; throws `EACCES` or `EPERM` without.
    public init(handed: HandedOver = HandedOver()) throws(KernelFailure) {
        let source = PerfRing.Source(pageFaults: Self.never)
        rings = try PerfRing.rings([source], on: CPUList.online(), handed: handed)
        try disarm()
    }

    /// One for each CPU, to be polled for readability; they live as long as this value.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Has it come once some CPU has seen so many faults from now on.
    public func arm(after faults: UInt64) throws(KernelFailure) {
        for ring in rings {
            _ = ring.discard()
            try ring.restart(every: max(faults, 1))
        }
    }

    /// It comes no more.
    public func disarm() throws(KernelFailure) {
        for ring in rings { try ring.turn(on: false) }
    }

    /// Whether it has come, on any CPU, since it was armed or asked last.
    public func take() -> Bool {
        rings.reduce(false) { $1.discard() || $0 }
    }
}
