import CLinux
import Glibc

/// What a state sets for the cgroup of an application (Documentation/admin-guide/cgroup-v2.rst). A value is the text
/// that the kernel prints, which it also accepts.
public enum CgroupKnob: String, CaseIterable, Sendable {
    /// Processor time relative to the siblings': `100`.
    case cpuWeight = "cpu.weight"
    /// The same for every disk that has no weight of its own: `default 100`, the first line.
    case ioWeight = "io.weight"
    /// The most processor time, in microseconds in each period: `20000 100000`, `max 100000`.
    case cpuMax = "cpu.max"
    /// Bytes that are taken from it only when no other cgroup has any to give, or `max`.
    case memoryLow = "memory.low"
    /// The extended attribute that asks systemd-oomd to prefer other cgroups (systemd.resource-control(5),
    /// `ManagedOOMPreference=avoid`): `1`, or nothing.
    case avoid = "user.oomd_avoid"

    /// The weights that the kernel accepts.
    public static let weights: ClosedRange<Int32> = 1...10_000
    /// Percent of one processor: the kernel accepts no less than 1 ms in 100, and 10,000 processors are enough.
    public static let percentages: ClosedRange<UInt32> = 1...1_000_000
}

extension Cgroup {
    /// `ENOENT`: the cgroup is gone, or lacks the controller.
    public func value(of knob: CgroupKnob) throws(KernelFailure) -> String {
        if knob == .avoid { return try attribute(knob.rawValue) ?? "" }
        let path = "\(directory)/\(knob.rawValue)"
        var value: String?
        try Files.forEachLine(of: path) { line in
            value = line.exactText
            return false
        }
        guard let value else { throw KernelFailure(operation: "parse", subject: path, errno: EBADMSG) }
        return value
    }

    public func set(_ knob: CgroupKnob, to value: String) throws(KernelFailure) {
        if knob == .avoid { return try setAttribute(knob.rawValue, to: value.isEmpty ? nil : value) }
        let path = "\(directory)/\(knob.rawValue)"
        try Files.write(value, to: Descriptor.open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW), named: path)
    }

    /// A short extended attribute of its directory; nil: there is none.
    private func attribute(_ name: String) throws(KernelFailure) -> String? {
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = clinux_get_attribute(directory, name, &bytes, UInt(bytes.count))
        if count == -ENODATA { return nil }
        guard count >= 0 else {
            throw KernelFailure(operation: "getxattr \(name)", subject: directory, errno: -count)
        }
        return String(decoding: bytes.prefix(Int(count)), as: UTF8.self)
    }

    private func setAttribute(_ name: String, to value: String?) throws(KernelFailure) {
        guard let value else {
            let result = clinux_remove_attribute(directory, name)
            guard result == 0 || result == -ENODATA else {
                throw KernelFailure(operation: "removexattr \(name)", subject: directory, errno: -result)
            }
            return
        }
        let result = clinux_set_attribute(directory, name, value, UInt(value.utf8.count))
        guard result == 0 else {
            throw KernelFailure(operation: "setxattr \(name)", subject: directory, errno: -result)
        }
    }
}

/// The value that is added to a process's score before the kernel's OOM killer chooses:
/// `/proc/PID/oom_score_adj`, -1000 (never) to 1000 (first); 1000 corresponds to the whole memory. Children
/// inherit it.
///
/// A value lower than the one that a process with `CAP_SYS_RESOURCE` set last needs that capability (fs/proc/base.c,
/// `__set_oom_adj`). A process without it can raise a value and lower it again to that mark. A process with
/// it moves the mark with each write, including upwards: a process that was raised in this way can no longer
/// lower itself below the new value. Therefore appstated does not use the capability here.
public enum OOMScoreAdjustment {
    /// The values that the kernel accepts.
    public static let range: ClosedRange<Int32> = -1000...1000

    /// The value of a process, by its id. `ESRCH`: there is no such process.
    public static func read(_ pid: Int32, proc: Proc) throws(KernelFailure) -> Int32 {
        try proc.readOnce(pid, "oom_score_adj") { $0.signed32() }
    }

    /// Changes a process that is still `process` and wholly the owner's.
    ///
    /// `ESRCH`: it is gone or another. `EPERM`: it is not the owner's. `EACCES`: the file belongs to another user than
    /// ours and we lack `CAP_DAC_OVERRIDE`, or the value is too low without `CAP_SYS_RESOURCE`.
    public static func write(
        _ value: Int32, to process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        let path = proc.path(process.pid, "oom_score_adj")
        // Opened first: the open file stays with this process, and the check then shows its owner.
        let number = open(path, O_WRONLY | O_CLOEXEC)
        let failure = errno
        if number < 0, failure == ENOENT { throw proc.failure("open", process.pid, "oom_score_adj", failure) }
        guard number >= 0 else { throw KernelFailure(operation: "open", subject: path, errno: failure) }
        let file = Descriptor(owning: number)
        try proc.checkOwned(process, by: uid)
        try Files.write("\(value)", to: file, named: path)
    }
}
