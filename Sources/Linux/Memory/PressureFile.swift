import Glibc

/// How much stall there was, from a PSI file that stays open (Documentation/accounting/psi.rst).
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class PressureFile {
    /// The values of the file, in microseconds since the machine, or the cgroup, began.
    public struct Figures: Equatable, Sendable {
        /// Time in which at least one task waited.
        public var some: UInt64
        /// Time in which all tasks that were not idle waited.
        public var full: UInt64

        /// The time of one kind.
        public subscript(kind: PressureThreshold.Kind) -> UInt64 {
            switch kind {
            case .some: some
            case .full: full
            }
        }
    }

    private let file: KeptFile

    /// Opens `/proc/pressure/memory`, or a cgroup's `memory.pressure`.
    ///
    /// Throws `ENOENT` if there is no such file: the kernel has no PSI, or it is off (`psi=0`).
    public init(path: String) throws(KernelFailure) {
        file = try KeptFile(path, capacity: 256)
    }

    /// The path of the PSI file.
    public var path: String { file.path }

    /// The values now. Throws `ENODEV` once the cgroup is removed.
    public func read() throws(KernelFailure) -> Figures {
        guard let figures = Figures(parsing: try file.read()) else { throw file.failure("parse", EBADMSG) }
        return figures
    }
}

extension PressureFile.Figures {
    /// Takes two lines in any order; nil if one is missing or cut off.
    init?(parsing text: UnsafeRawBufferPointer) {
        var some: UInt64?
        var full: UInt64?
        text.forEachLine { line in
            if line.take("some ") {
                some = Self.total(&line)
            } else if line.take("full ") {
                full = Self.total(&line)
            }
            return true
        }
        guard let some, let full else { return nil }
        self.init(some: some, full: full)
    }

    /// Takes `avg10=0.22 avg60=0.17 avg300=1.11 total=58761459`.
    private static func total(_ line: inout Bytes) -> UInt64? {
        line.skip(fields: 3) && line.take(" total=") ? line.unsigned() : nil
    }
}
