import Glibc

/// Has the kernel tell when memory is short: one threshold on one PSI file, by a descriptor to be polled for
/// `POLLPRI` (Documentation/accounting/psi.rst).
///
/// The poll that finds it ready takes the event: nothing is to be read, and the next waits for more. At most
/// one event comes in a window. `POLLERR`: the cgroup is gone, and it stays ready. Watch it for `POLLPRI`
/// alone: `POLLIN` is always set.
public final class PressureTrigger {
    /// What the kernel took: what was asked for, or its `unprivileged` where we lack `CAP_SYS_RESOURCE`.
    public let inForce: PressureThreshold
    private let file: Descriptor

    /// Sets the trigger on `/proc/pressure/memory`, or on a cgroup's `memory.pressure`.
    ///
    /// Throws `ENOENT` where there is no such file (the kernel has no PSI, or it is off: `psi=0`), `EACCES`
    /// where we may not write it.
    public init(path: String, _ threshold: PressureThreshold) throws(KernelFailure) {
        // The window is judged by who opens the file.
        let number = Capability.sysResource.use { open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC) }
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: errno) }
        file = Descriptor(owning: number)
        inForce = try Self.set(threshold, number, path)
    }

    /// To be polled for `POLLPRI`; ours, and closed with this value, which takes the trigger back.
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
