/// The limits of one look at processes, because users determine how many open files, locks and threads there
/// are.
public struct LookBudget: Sendable {
    /// The most open files that one look opens.
    public static let mostFiles = 16_384
    /// The most processor time that one look takes.
    public static let mostMicroseconds: UInt64 = 500_000

    private let files: Int
    private var opened = 0
    private let end: UInt64

    /// A budget that the calling thread spends from now on.
    public init(files: Int = mostFiles, microseconds: UInt64 = mostMicroseconds) {
        self.files = files
        end = Clock.threadMicroseconds + microseconds
    }

    /// Counts one more open file.
    mutating func openFile() throws(LookLimit) {
        guard opened < files else { throw .files(files) }
        opened += 1
        try checkTime()
    }

    func checkTime() throws(LookLimit) {
        if Clock.threadMicroseconds >= end { throw .time }
    }
}

/// Why a look gave no result: there is more than it may examine.
public enum LookLimit: Error, Equatable, Sendable, CustomStringConvertible {
    /// There are more open files than this.
    case files(Int)
    /// There are more bytes of `/proc/locks` than this.
    case locks(Int)
    /// The look took too much processor time.
    case time

    /// The text that `CanSuspend` returns.
    public var description: String {
        switch self {
        case .files(let most): "cannot be determined: more than \(most) open files"
        case .locks(let most):
            "cannot be determined: more than \(most >> 10) KiB of file locks on the machine"
        case .time: "cannot be determined: its processes take too long to examine"
        }
    }
}

extension Proc {
    /// The process that traces one of these processes, or one of their threads; nil if there is none. Processes that
    /// are gone are skipped. A debugger traces all threads, strace(1) may trace one.
    public func tracer(
        ofAny pids: some Sequence<Int32>, _ budget: inout LookBudget
    ) throws(LookLimit) -> Int32? {
        for pid in pids {
            try budget.checkTime()
            guard let tracer = try? status(pid).tracer else { continue }
            if tracer != 0 { return tracer }
            guard let threads = try? threads(of: pid), threads.count > 1 else { continue }
            for thread in threads where thread != pid {
                try budget.checkTime()
                if let tracer = try? status(thread).tracer, tracer != 0 { return tracer }
            }
        }
        return nil
    }
}
