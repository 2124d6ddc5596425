import CLinux
import Glibc

/// Traces job-control signals, and signals that ask a process to end, as the kernel generates them, from any sender.
/// Uses one perf event per online CPU on the tracepoint `signal:signal_generate`, filtered in the kernel.
///
/// A hint means that a signal was sent, not that it took effect: it comes in the sender's context, before the target
/// has stopped, and also for stop signals that are ignored. Check with `Proc.isStopped(_:)`, and once more shortly
/// after. A CPU that comes online later is not traced. A CPU that goes offline takes its event with it, and all but one
/// CPU go offline while the machine sleeps: check `isWhole` after that.
public final class StopTrace {
    /// One SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU, or one of `endings`, that was generated.
    public struct Hint: Equatable, Sendable {
        /// The thread that the signal was generated for; for kill(2) the leading thread. `Proc.status(_:)` gives its
        /// process.
        public let target: Int32
        /// The signal's number.
        public let signal: Int32
        /// The process that was running at that moment: the sender, or for a terminal's key whichever process was
        /// interrupted.
        public let sender: Int32
    }

    /// Signals with which people and service managers ask a process to end.
    public static let endings = [SIGTERM, SIGHUP, SIGINT, SIGQUIT]

    private let rings: [PerfRing]
    private let cpus: [Int32]
    /// Where a record has the fields `sig` and `pid`.
    private let offsets: (signal: Int, target: Int)
    static let tracepoints = ["signal:signal_generate"]
    /// 32 KiB with 4 KiB pages: about 450 records.
    private static let dataPages = 8

    /// Opens the trace, and tests it with a SIGCONT to our own process, which must appear in the trace.
    ///
    /// Scan the processes once afterwards: signals that were sent before the trace was open, or during its test, give
    /// no hint. `root` is where tracefs is mounted; without it the usual places are tried, then a mount attached
    /// nowhere. Needs `CAP_PERFMON`, and root's access to tracefs.
    ///
    /// Throws `EXDEV` in a PID namespace other than the machine's first, because the records hold the ids of the first;
    /// `ENODATA` if the test failed; otherwise the kernel's error.
    public static func open(
        proc: Proc = Proc(), tracefs root: String? = nil, handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> StopTrace {
        guard proc.isInitialPIDNamespace else {
            throw KernelFailure(
                operation: "trace signals", subject: "from another PID namespace", errno: EXDEV)
        }
        let tracepoint = try Tracepoint.find(tracepoints, root: root)[0]
        let trace = try StopTrace(tracepoint, cpus: CPUList.online(), handed)
        guard trace.hearsItself(trace.rings) else {
            throw KernelFailure(
                operation: "self-test", subject: "of signal:signal_generate with our own SIGCONT",
                errno: ENODATA)
        }
        return trace
    }

    private init(_ tracepoint: Tracepoint, cpus: [Int32], _ handed: HandedOver) throws(KernelFailure) {
        offsets = (try tracepoint.offset(of: "sig"), try tracepoint.offset(of: "pid"))
        // The numbers differ between architectures.
        let stops = [SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU].map { "sig==\($0)" }
        let ends = Self.endings.map { "sig==\($0)" }
        // TRACE_SIGNAL_IGNORED is 1: a request to end that the target ignores is none.
        let filter =
            "\(stops.joined(separator: "||"))||(\(ends.joined(separator: "||")))&&result!=1"
        let source = PerfRing.Source(tracepoint: tracepoint, filter: filter)
        rings = try PerfRing.rings([source], on: cpus, dataPages: Self.dataPages, handed: handed)
        self.cpus = cpus
    }

    /// Whether the trace still covers every CPU that is online now. Has each CPU generate a SIGCONT to our own process.
    /// Hints about other signals that arrive meanwhile are lost, so scan the processes afterwards.
    public func isWhole() -> Bool {
        guard let online = try? CPUList.online(), online == cpus else { return false }
        // Enough for the most CPUs that Linux can be built for.
        var usual = [UInt](repeating: 0, count: 8192 / UInt.bitWidth)
        let length = clinux_get_affinity(UInt(usual.count * MemoryLayout<UInt>.size), &usual)
        guard length >= 0 else { return false }
        defer { clinux_set_affinity(UInt(length), usual) }
        return zip(cpus, rings).allSatisfy { cpu, ring in
            var only = [UInt](repeating: 0, count: usual.count)
            only[Int(cpu) / UInt.bitWidth] = 1 << (Int(cpu) % UInt.bitWidth)
            return clinux_set_affinity(UInt(length), only) >= 0 && hearsItself([ring])
        }
    }

    /// Whether a SIGCONT to our own process appears in one of the rings.
    private func hearsItself(_ rings: [PerfRing]) -> Bool {
        let own = Hint(target: getpid(), signal: SIGCONT, sender: getpid())
        // A flood of other signals may displace ours.
        for _ in 0..<8 {
            kill(getpid(), SIGCONT)
            var isSeen = false
            _ = drain(rings) { if $0 == own { isSeen = true } }
            if isSeen { return true }
        }
        return false
    }

    /// One descriptor for each CPU, to be polled for readability. They stay open as long as this value lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Takes the hints, oldest first for each CPU. False if the kernel has dropped some: scan the processes.
    public func drain(_ body: (Hint) -> Void) -> Bool { drain(rings, body) }

    private func drain(_ rings: [PerfRing], _ body: (Hint) -> Void) -> Bool {
        var isWhole = true
        for ring in rings {
            let isDrained = ring.drain { record in
                guard let signal = record.field(at: offsets.signal),
                    let target = record.field(at: offsets.target)
                else { return false }
                body(Hint(target: target, signal: signal, sender: record.process))
                return true
            }
            if !isDrained { isWhole = false }
        }
        return isWhole
    }
}
