import Glibc

/// Traces which processes the kernel's out-of-memory killer chooses, for the whole machine or for a cgroup's limit.
/// Uses a perf event on the tracepoint `oom:mark_victim` (mm/oom_kill.c) for every online CPU. The event comes right
/// after the victim's SIGKILL, so the victim's end may be seen first.
public final class OOMTrace {
    private let rings: [PerfRing]
    private let target: Int
    static let tracepoints = ["oom:mark_victim"]

    /// Opens the trace. Needs and throws what `StopTrace.open` does.
    public init(
        proc: Proc = Proc(), tracefs root: String? = nil, handed: HandedOver = HandedOver()
    ) throws(KernelFailure) {
        guard proc.isInitialPIDNamespace else {
            throw KernelFailure(
                operation: "trace oom kills", subject: "from another PID namespace", errno: EXDEV)
        }
        let tracepoint = try Tracepoint.find(Self.tracepoints, root: root)[0]
        target = try tracepoint.offset(of: "pid")
        let source = PerfRing.Source(tracepoint: tracepoint, filter: nil)
        rings = try PerfRing.rings([source], on: CPUList.online(), handed: handed)
    }

    /// One descriptor for each CPU, to be polled for readability. They stay open as long as this value lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// The ids of the processes that were chosen since the last call. In a flood, some may be missing.
    public func victims() -> [Int32] {
        var victims: [Int32] = []
        for ring in rings {
            _ = ring.drain { record in
                record.field(at: target).map { victims.append($0) } != nil
            }
        }
        return victims
    }
}
