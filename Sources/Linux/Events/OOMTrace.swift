import CLinux
import Glibc

/// Traces which processes the kernel's out-of-memory killer chooses, for the whole machine or for a cgroup's limit.
/// Uses a perf event on the tracepoint `oom:mark_victim` (mm/oom_kill.c) for every online CPU. The event comes right
/// after the victim's SIGKILL, so the victim's end may be seen first.
public final class OOMTrace {
    private let rings: [PerfRing]
    private let target: Int
    static let tracepoints = ["oom:mark_victim"]

    /// Opens the trace. Needs and throws what `StopTrace.open` does.
    public static func open(
        proc: Proc = Proc(), tracefs root: String? = nil, handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> OOMTrace {
        guard proc.isInitialPIDNamespace else {
            throw KernelFailure(
                operation: "trace oom kills", subject: "from another PID namespace", errno: EXDEV)
        }
        let tracepoint = try Tracepoint.find(tracepoints, root: root)[0]
        guard let target = tracepoint.format.offset(ofInt32: "pid") else {
            throw KernelFailure(operation: "parse format of", subject: tracepoint.name, errno: EBADMSG)
        }
        let source = PerfRing.Source(tracepoint: tracepoint, filter: nil)
        return OOMTrace(try PerfRing.rings([source], on: CPUList.online(), handed: handed), target)
    }

    private init(_ rings: [PerfRing], _ target: Int) {
        self.rings = rings
        self.target = target
    }

    /// One descriptor for each CPU, to be polled for readability. They stay open as long as this value lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// The ids of the processes that were chosen since the last call. In a flood, some may be missing.
    public func victims() -> [Int32] {
        var victims: [Int32] = []
        for ring in rings {
            _ = ring.drain { type, record in
                // The raw data follows pid, tid, and its size (perf_event_open(2), PERF_RECORD_SAMPLE).
                let start = 12
                guard type == UInt32(PERF_RECORD_SAMPLE.rawValue), record.count >= start + target + 4 else {
                    return
                }
                victims.append(record.loadUnaligned(fromByteOffset: start + target, as: Int32.self))
            }
        }
        return victims
    }
}
