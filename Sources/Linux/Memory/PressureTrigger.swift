import Glibc

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
