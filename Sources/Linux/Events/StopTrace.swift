import CLinux
import Glibc

/// Job-control signals, and those that ask a process to end, as the kernel generates them, whoever sends them: one perf
/// event per online CPU on the tracepoint `signal:signal_generate`, filtered in the kernel.
///
/// A hint says that a signal was sent, not that it worked: it comes in the sender's context, before the
/// target has stopped, and for signals that are ignored too. Look with `Proc.isStopped(_:)`, and once more
/// shortly after. A CPU that goes online later is not watched, and one that goes off takes its event with it, as all
/// but one do while the machine sleeps: ask `isWhole` after that.
public final class StopTrace {
    /// One SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU, or one of `endings`, on its way.
    public struct Hint: Equatable, Sendable {
        /// The thread that it was generated for: for kill(2) the leading one. `Proc.status(_:)` tells its
        /// process.
        public let target: Int32
        /// Its number.
        public let signal: Int32
        /// The process that ran at that moment: the sender; for a terminal's key, whoever the interrupt met.
        public let sender: Int32
    }

    /// Signals by which people and service managers ask a process to end.
    public static let endings = [SIGTERM, SIGHUP, SIGINT, SIGQUIT]

    /// Whether a drain gave all there was.
    public enum Drained: Equatable, Sendable {
        /// Every hint was given.
        case complete
        /// The kernel dropped some: scan the processes.
        case lost
    }

    private let rings: [PerfRing]
    private let cpus: [Int32]
    private let format: Hint.Format
    /// 32 KiB with pages of 4: about 450 records.
    private static let dataPages = 8
    static let tracepoints = ["signal:signal_generate"]
    private static let proof = "of signal:signal_generate with our own SIGCONT"

    /// Opens the trace, and proves it with a SIGCONT to our own process, which must come out of it.
    ///
    /// Scan the processes once after it: what was sent before it, or during its proof, is not hinted.
    /// `root` is where tracefs is mounted; without it the usual places are tried, then a mount attached
    /// nowhere. Needs `CAP_PERFMON`, and root's eyes for tracefs.
    ///
    /// Throws `EXDEV` in another PID namespace than the machine's first, whose ids the records hold;
    /// `EBUSY` if SIGCONT has a handler in this process; `ENODATA` if the proof failed; else what the
    /// kernel gave.
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
        let signals = [SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU] + Self.endings
        let filter = signals.map { "sig==\($0)" }.joined(separator: "||")
        let source = PerfRing.Source(tracepoint: tracepoint, filter: filter)
        rings = try PerfRing.rings([source], on: cpus, dataPages: Self.dataPages, handed: handed)
        self.cpus = cpus
        self.format = format
    }

    /// Whether it still tells of every CPU that is on now: each is asked to generate a SIGCONT to our own process. Hints
    /// of others that come meanwhile are lost: scan the processes after it.
    public func isWhole() -> Bool {
        guard let online = try? CPUList.online(), online == cpus else { return false }
        // As many CPUs as Linux can be built for.
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

    /// Whether a SIGCONT to our own process comes out of one of the rings.
    private func hearsItself(_ rings: [PerfRing]) throws(KernelFailure) -> Bool {
        // A flood of others may crowd ours out.
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

    /// One for each CPU, to be polled for readability; they live as long as this value.
    public var descriptors: [Int32] { rings.map(\.descriptor) }

    /// Takes what is in the ring of one of `descriptors`, oldest first.
    public func drain(_ descriptor: Int32, _ body: (Hint) -> Void) -> Drained {
        guard let ring = rings.first(where: { $0.descriptor == descriptor }) else {
            preconditionFailure("a descriptor of another trace")
        }
        return drain(ring, body) ? .complete : .lost
    }

    /// Whether this is the leading thread of a process, and no other thread: asked of the kernel by a signal that is
    /// none, which costs a hundredth of reading its status. False for one that is gone.
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
    /// Where a record has the fields `sig` and `pid`: four bytes each.
    struct Format: Equatable {
        let signal: Int
        let target: Int

        /// Nil where a field is missing or is not four bytes.
        init?(_ format: Tracepoint.Format) {
            guard let signal = format.offset(ofInt32: "sig"), let target = format.offset(ofInt32: "pid")
            else {
                return nil
            }
            self.signal = signal
            self.target = target
        }
    }

    /// A sample with `PERF_SAMPLE_TID` and `PERF_SAMPLE_RAW`: the sender's process and thread id, the length
    /// of the raw data, the raw data. Nil where it is too short.
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
