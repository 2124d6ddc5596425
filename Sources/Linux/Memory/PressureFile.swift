import Glibc

/// How much stall there was: a PSI file that stays open (Documentation/accounting/psi.rst).
///
/// For one thread at a time. Reading allocates nothing: it is done when memory has run out.
public final class PressureFile {
    /// One line of it.
    public struct Stall: Equatable, Sendable {
        /// Microseconds since the machine, or the cgroup, began.
        public var total: UInt64
        /// The share of the last ten seconds, in hundredths of a percent; the kernel reckons it anew every
        /// two seconds.
        public var average10: UInt32

        /// Figures as they were read.
        public init(total: UInt64, average10: UInt32) {
            self.total = total
            self.average10 = average10
        }
    }

    /// What the file says.
    public struct Figures: Equatable, Sendable {
        /// Of time in which at least one task waited.
        public var some: Stall
        /// Of time in which all that were not idle did.
        public var full: Stall

        /// Figures as they were read.
        public init(some: Stall, full: Stall) {
            self.some = some
            self.full = full
        }

        /// The line of one kind.
        public subscript(kind: PressureThreshold.Kind) -> Stall {
            switch kind {
            case .some: some
            case .full: full
            }
        }

        /// Two lines in any order; nil where one is missing or cut off.
        init?(parsing text: UnsafeRawBufferPointer) {
            var some: Stall?
            var full: Stall?
            text.forEachLine { line in
                if line.take("some ") {
                    some = Stall(parsing: &line)
                } else if line.take("full ") {
                    full = Stall(parsing: &line)
                }
                return true
            }
            guard let some, let full else { return nil }
            self.init(some: some, full: full)
        }
    }

    private let file: KeptFile

    /// Opens `/proc/pressure/memory`, or a cgroup's `memory.pressure`.
    ///
    /// Throws `ENOENT` where there is no such file: the kernel has no PSI, or it is off (`psi=0`).
    public init(path: String) throws(KernelFailure) {
        file = try KeptFile(path, capacity: 256)
    }

    /// The PSI file.
    public var path: String { file.path }

    /// What it says now. Throws `ENODEV` once the cgroup is removed.
    public func read() throws(KernelFailure) -> Figures {
        guard let figures = Figures(parsing: try file.read()) else { throw file.failure("parse", EBADMSG) }
        return figures
    }
}

extension PressureFile.Stall {
    /// `avg10=0.22 avg60=0.17 avg300=1.11 total=58761459`
    fileprivate init?(parsing line: inout Bytes) {
        guard line.take("avg10="), let percent = line.unsigned32(), percent <= 100, line.take("."),
            let hundredths = line.unsigned32(), hundredths < 100,
            line.skip(fields: 2), line.take(" total="), let total = line.unsigned()
        else { return nil }
        self.init(total: total, average10: percent * 100 + hundredths)
    }
}
