import Glibc

/// How much stall within how much time is worth reporting (Documentation/accounting/psi.rst, "Monitoring for pressure
/// thresholds").
public struct PressureThreshold: Hashable, Sendable, CustomStringConvertible {
    /// Which tasks' stall counts.
    public enum Kind: String, Sendable {
        /// Time in which at least one task waits for memory.
        case some
        /// Time in which all tasks that are not idle wait: no work gets done.
        case full
    }

    /// Which tasks' stall counts.
    public let kind: Kind
    /// Microseconds of stall, more than 0, at most the window.
    public let stall: UInt32
    /// Microseconds of the window that the stall must fall into.
    public let window: UInt32

    /// The windows that the kernel accepts, in microseconds: `WINDOW_MIN_US`, `WINDOW_MAX_US` of kernel/sched/psi.c.
    public static let windows: ClosedRange<UInt32> = 500_000...10_000_000

    /// Without `CAP_SYS_RESOURCE` windows must be multiples of this, in microseconds (psi.rst).
    static let unprivilegedUnit: UInt32 = 2_000_000

    /// A threshold; nil for values that the kernel accepts from no caller.
    public init?(_ kind: Kind, stall: UInt32, window: UInt32) {
        guard Self.windows.contains(window), stall > 0, stall <= window else { return nil }
        self.kind = kind
        self.stall = stall
        self.window = window
    }

    /// The same share of the next longer window that needs no privilege; unchanged if its window needs none.
    public var unprivileged: PressureThreshold {
        let unit = Self.unprivilegedUnit
        let longer = (window + unit - 1) / unit * unit
        let scaled = UInt32(UInt64(stall) * UInt64(longer) / UInt64(window))
        return PressureThreshold(kind, stall: scaled, window: longer) ?? self
    }

    /// In the kernel's format, for example `some 70000 1000000`.
    public var description: String { "\(kind.rawValue) \(stall) \(window)" }
}

/// Makes the kernel report that memory is short: one threshold on one PSI file, with a descriptor to be polled for
/// `POLLPRI` (Documentation/accounting/psi.rst).
///
/// The poll that finds it ready consumes the event: there is nothing to read, and the next poll waits for
/// more. There is at most one event in a window. `POLLERR`: the cgroup is gone, and the descriptor stays
/// ready. Watch it only for `POLLPRI`: `POLLIN` is always set.
public final class PressureTrigger {
    /// What the kernel accepted: the requested threshold, or its `unprivileged` form if we lack `CAP_SYS_RESOURCE`.
    public let inForce: PressureThreshold
    private let file: Descriptor

    /// Sets the trigger on `/proc/pressure/memory`, or on a cgroup's `memory.pressure`.
    ///
    /// Throws `ENOENT` if there is no such file (the kernel has no PSI, or it is off: `psi=0`), `EACCES` if we may not
    /// write it.
    public init(path: String, _ threshold: PressureThreshold) throws(KernelFailure) {
        // The kernel judges the window by the process that opens the file.
        let number = Capability.sysResource.use { open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) }
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: errno) }
        file = Descriptor(owning: number)
        inForce = try Self.set(threshold, number, path)
    }

    /// To be polled for `POLLPRI`. Owned by this value and closed with it, which removes the trigger.
    public var descriptor: Int32 { file.rawValue }

    private static func set(
        _ threshold: PressureThreshold, _ number: Int32, _ path: String
    ) throws(KernelFailure) -> PressureThreshold {
        do throws(KernelFailure) {
            try write(threshold, number, path)
            return threshold
        } catch {
            let scaled = threshold.unprivileged
            guard error.errno == EINVAL, scaled != threshold else { throw error }
            try write(scaled, number, path)
            return scaled
        }
    }

    private static func write(
        _ threshold: PressureThreshold, _ number: Int32, _ path: String
    ) throws(KernelFailure) {
        // The kernel writes its NUL over the last byte that it gets.
        let bytes = Array(threshold.description.utf8) + [0]
        guard Glibc.write(number, bytes, bytes.count) >= 0 else {
            throw KernelFailure(operation: "write \(threshold)", subject: path, errno: errno)
        }
    }
}

/// How much stall there was, from a PSI file that stays open (Documentation/accounting/psi.rst).
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
            if line.skip("some ") {
                some = Self.total(&line)
            } else if line.skip("full ") {
                full = Self.total(&line)
            }
            return true
        }
        guard let some, let full else { return nil }
        self.init(some: some, full: full)
    }

    /// Takes `avg10=0.22 avg60=0.17 avg300=1.11 total=58761459`.
    private static func total(_ line: inout Bytes) -> UInt64? {
        line.skip(fields: 3) && line.skip(" total=") ? line.unsigned() : nil
    }
}
