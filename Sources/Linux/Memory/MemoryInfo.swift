import Glibc

/// How much memory the machine has left: `/proc/meminfo` (proc_meminfo(5)), kept open.
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class MemoryInfo {
    /// The values, in bytes.
    public struct Figures: Equatable, Sendable {
        /// `MemTotal`: without the memory that the kernel itself occupies from the start.
        public var total: UInt64
        /// `MemAvailable`: the kernel's estimate of the memory that can be allocated without swapping.
        public var available: UInt64
        /// `SwapTotal`; 0 if there is no swap.
        public var swapTotal: UInt64
        /// `SwapFree`.
        public var swapFree: UInt64
    }

    private let file: KeptFile

    /// Opens `meminfo` below `root`, where proc is mounted, or in a made-up tree in tests.
    public init(root: String = "/proc") throws(KernelFailure) {
        // The four lines are among the first twenty, of 28 bytes each.
        file = try KeptFile("\(root)/meminfo", capacity: 4096)
    }

    /// The values now.
    public func read() throws(KernelFailure) -> Figures {
        guard let figures = Figures(parsing: try file.read()) else { throw file.failure("parse", EBADMSG) }
        return figures
    }
}

extension MemoryInfo.Figures {
    /// Nil if a line is missing.
    init?(parsing text: UnsafeRawBufferPointer) {
        var total: UInt64?
        var available: UInt64?
        var swapTotal: UInt64?
        var swapFree: UInt64?
        text.forEachLine { line in
            if line.take("MemTotal:") {
                total = line.kibibytes()
            } else if line.take("MemAvailable:") {
                available = line.kibibytes()
            } else if line.take("SwapTotal:") {
                swapTotal = line.kibibytes()
            } else if line.take("SwapFree:") {
                swapFree = line.kibibytes()
                return false
            }
            return true
        }
        guard let total, let available, let swapTotal, let swapFree else { return nil }
        self.init(total: total, available: available, swapTotal: swapTotal, swapFree: swapFree)
    }
}
