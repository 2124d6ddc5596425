import Glibc

/// Reports that memory is being allocated, before any process has to wait for it: a software event of the
/// kernel (`PERF_COUNT_SW_PAGE_FAULTS`, perf_event_open(2)) on each CPU, which fires after a number of page
/// faults.
///
/// A process that allocates memory causes a fault for each page, or for several at once if pages are large. A
/// process that only works also causes faults: an alarm is a reason to check, not proof that memory is gone.
/// An idle machine has no faults, and is not woken. While the alarm is armed, a fault costs some 30 ns more.
public final class FaultAlarm {
    private let rings: [PerfRing]
    static let never = UInt64(Int64.max)

    /// Opens the alarm without arming it. Needs `CAP_PERFMON`; throws `EACCES` or `EPERM` without it.
    public init(handed: HandedOver = HandedOver()) throws(KernelFailure) {
        let source = PerfRing.Source(pageFaults: Self.never)
        rings = try PerfRing.rings([source], on: CPUList.online(), handed: handed)
        try disarm()
    }

    /// One descriptor for each CPU, to be polled for readability. They stay open as long as this value lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Makes the alarm fire once any CPU has had this many faults from now on.
    public func arm(after faults: UInt64) throws(KernelFailure) {
        for ring in rings {
            _ = ring.discard()
            try ring.restart(every: max(faults, 1))
        }
    }

    /// Disarms the alarm.
    public func disarm() throws(KernelFailure) {
        for ring in rings { try ring.turn(on: false) }
    }

    /// Whether it has fired, on any CPU, since it was armed or since the last call.
    public func consume() -> Bool {
        rings.reduce(false) { $1.discard() || $0 }
    }
}
