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

    /// Whether a drain returned every hint.
    public enum Drained: Equatable, Sendable {
        /// No hint was lost.
        case complete
        /// The kernel dropped hints: scan the processes.
        case lost
    }

    private let rings: [PerfRing]
    private let cpus: [Int32]
    private let format: Hint.Format
    /// 32 KiB with 4 KiB pages: about 450 records.
    private static let dataPages = 8
    static let tracepoints = ["signal:signal_generate"]
    private static let proof = "of signal:signal_generate with our own SIGCONT"

    /// Opens the trace, and tests it with a SIGCONT to our own process, which must appear in the trace.
    ///
    /// Scan the processes once afterwards: signals that were sent before the trace was open, or during its test, give
    /// no hint. `root` is where tracefs is mounted; without it the usual places are tried, then a mount attached
    /// nowhere. Needs `CAP_PERFMON`, and root's access to tracefs.
    ///
    /// Throws `EXDEV` in a PID namespace other than the machine's first, because the records hold the ids of the first;
    /// `EBUSY` if this process has a handler for SIGCONT; `ENODATA` if the test failed; otherwise the kernel's error.
    public static func open(
        proc: Proc = Proc(), tracefs root: String? = nil, handed: HandedOver = HandedOver()
    ) throws(KernelFailure) -> StopTrace {
        guard proc.isInitialPIDNamespace else {
            throw KernelFailure(
                operation: "trace signals", subject: "from another PID namespace", errno: EXDEV)
        }
        let tracepoint = try Tracepoint.find(tracepoints, root: root)[0]
        let trace = try StopTrace(tracepoint, cpus: CPUList.online(), handed)
        try trace.prove()
        return trace
    }

    private init(_ tracepoint: Tracepoint, cpus: [Int32], _ handed: HandedOver) throws(KernelFailure) {
        guard let format = Hint.Format(tracepoint.format) else {
            throw KernelFailure(operation: "parse format of", subject: tracepoint.name, errno: EBADMSG)
        }
        // The numbers differ between architectures.
        let stops = [SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU].map { "sig==\($0)" }
        let ends = Self.endings.map { "sig==\($0)" }
        // TRACE_SIGNAL_IGNORED is 1: a request to end that the target ignores is none.
        let filter =
            "\(stops.joined(separator: "||"))||(\(ends.joined(separator: "||")))&&result!=1"
        let source = PerfRing.Source(tracepoint: tracepoint, filter: filter)
        rings = try PerfRing.rings([source], on: cpus, dataPages: Self.dataPages, handed: handed)
        self.cpus = cpus
        self.format = format
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
            guard clinux_set_affinity(UInt(length), only) >= 0 else { return false }
            return (try? hearsItself([ring])) == true
        }
    }

    /// Whether a SIGCONT to our own process appears in one of the rings.
    private func hearsItself(_ rings: [PerfRing]) throws(KernelFailure) -> Bool {
        // A flood of other signals may displace ours.
        for _ in 0..<8 {
            guard kill(getpid(), SIGCONT) == 0 else {
                throw KernelFailure(operation: "self-test", subject: Self.proof, errno: errno)
            }
            var isSeen = false
            for ring in rings {
                _ = drain(ring) { hint in
                    if hint == Hint(target: getpid(), signal: SIGCONT, sender: getpid()) { isSeen = true }
                }
            }
            if isSeen { return true }
        }
        return false
    }

    /// One descriptor for each CPU, to be polled for readability. They stay open as long as this value lives.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Takes the hints in the ring of one of `descriptors`, oldest first.
    public func drain(_ descriptor: Int32, _ body: (Hint) -> Void) -> Drained {
        guard let ring = rings.first(where: { $0.descriptor == descriptor }) else {
            preconditionFailure("a descriptor of another trace")
        }
        return drain(ring, body) ? .complete : .lost
    }

    /// Whether a thread is the leading thread of a process; false for a thread that is gone. Sends the null signal,
    /// which costs a hundredth of reading the thread's status.
    public static func leadsProcess(_ thread: Int32) -> Bool {
        clinux_tgkill(thread, thread, 0) != -ESRCH
    }

    private func drain(_ ring: PerfRing, _ body: (Hint) -> Void) -> Bool {
        var isWhole = true
        let drained = ring.drain { type, record in
            switch type {
            case UInt32(PERF_RECORD_SAMPLE.rawValue):
                if let hint = Hint(record: record, format: format) {
                    body(hint)
                } else {
                    isWhole = false
                }
            case UInt32(PERF_RECORD_LOST.rawValue), UInt32(PERF_RECORD_THROTTLE.rawValue):
                isWhole = false
            default:
                break
            }
        }
        return drained && isWhole
    }

    private func prove() throws(KernelFailure) {
        var action = sigaction()
        // SIG_DFL is 0 and SIG_IGN is 1 (signal(2)); neither keeps SIGCONT from being generated.
        guard sigaction(SIGCONT, nil, &action) == 0,
            unsafeBitCast(action.__sigaction_handler.sa_handler, to: UInt.self) <= 1
        else {
            throw KernelFailure(operation: "self-test", subject: Self.proof, errno: EBUSY)
        }
        guard try hearsItself(rings) else {
            throw KernelFailure(operation: "self-test", subject: Self.proof, errno: ENODATA)
        }
    }
}

extension StopTrace.Hint {
    /// The offsets of the fields `sig` and `pid` in a record, four bytes each.
    struct Format: Equatable {
        let signal: Int
        let target: Int

        /// Nil if a field is missing or is not four bytes long.
        init?(_ format: Tracepoint.Format) {
            guard let signal = format.offset(ofInt32: "sig"), let target = format.offset(ofInt32: "pid")
            else {
                return nil
            }
            self.signal = signal
            self.target = target
        }
    }

    /// Parses a sample with `PERF_SAMPLE_TID` and `PERF_SAMPLE_RAW`: the sender's process and thread id, the length of
    /// the raw data, the raw data. Nil if it is too short.
    init?(record: UnsafeRawBufferPointer, format: Format) {
        let rawStart = 12
        guard record.count >= rawStart else { return nil }
        let length = Int(record.loadUnaligned(fromByteOffset: 8, as: UInt32.self))
        guard length <= record.count - rawStart, format.signal + 4 <= length, format.target + 4 <= length
        else { return nil }
        sender = record.loadUnaligned(fromByteOffset: 0, as: Int32.self)
        signal = record.loadUnaligned(fromByteOffset: rawStart + format.signal, as: Int32.self)
        target = record.loadUnaligned(fromByteOffset: rawStart + format.target, as: Int32.self)
    }
}
