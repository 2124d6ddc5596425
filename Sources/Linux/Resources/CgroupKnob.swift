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
