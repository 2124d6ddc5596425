import Glibc

/// A cgroup's share of processors and disks in the unified hierarchy
/// (Documentation/admin-guide/cgroup-v2.rst): its shares relative to its siblings, 1 to 10000, 100 by default
/// (`cpu.weight`, `io.weight`), its limit (`cpu.max`), and its protected memory (`memory.low`).
///
/// The caller has to know whose cgroup it is.
public struct CgroupShares: Sendable {
    /// Its directory, without a slash at its end.
    public let directory: String

    /// The shares that the kernel accepts.
    public static let range: ClosedRange<Int32> = 1...10_000

    /// The value of a cgroup without a limit of its own.
    public static let unlimited: Int32 = -1
    /// Percent of one processor: the kernel accepts no less than 1 ms in 100, and 10,000 processors are enough.
    public static let percentages: ClosedRange<UInt32> = 1...1_000_000
    /// The period that limits refer to, in microseconds: the kernel's own.
    private static let period: Int64 = 100_000

    /// The cgroup with this directory.
    public init(directory: String) {
        self.directory = directory
    }

    /// The share of processor time. `ENOENT`: the cgroup is gone, or has no cpu controller.
    public func cpu() throws(KernelFailure) -> Int32 {
        try read("cpu.weight") { bytes in bytes.signed32() }
    }

    /// The share of every disk that has no share of its own: the line `default`. `ENOENT`: the cgroup is gone, or has
    /// no io controller with weights (`CONFIG_BLK_CGROUP_IOCOST`).
    public func io() throws(KernelFailure) -> Int32 {
        try read("io.weight") { bytes in bytes.take("default") ? bytes.signed32() : nil }
    }

    /// The limit of processor time, in microseconds in each 100 ms, whatever its period is; or `unlimited`. `ENOENT`:
    /// the cgroup is gone, or has no cpu controller.
    public func cpuQuota() throws(KernelFailure) -> Int32 {
        try read("cpu.max") { bytes in
            if bytes.take("max") { return Self.unlimited }
            guard let quota = bytes.signed32(), bytes.take(" "), let period = bytes.signed32(), period > 0
            else { return nil }
            return Int32(clamping: Int64(quota) * Self.period / Int64(period))
        }
    }

    /// Pages that are taken from it only when no other cgroup has any to give; `Int32.max` for all of them. `ENOENT`:
    /// the cgroup is gone, or has no memory controller.
    public func memoryLow() throws(KernelFailure) -> Int32 {
        try read("memory.low") { bytes in
            if bytes.take("max") { return Int32.max }
            return bytes.unsigned().map { Int32(clamping: $0 / UInt64(getpagesize())) }
        }
    }

    /// Sets the pages that the kernel takes from it last.
    public func set(memoryLow pages: Int32) throws(KernelFailure) {
        let bytes = Int64(pages) * Int64(getpagesize())
        try write(pages == Int32.max ? "max" : "\(bytes)", to: "memory.low")
    }

    /// A share of the machine's memory in pages.
    ///
    /// - Parameter share: in hundredths of a per cent.
    public static func pages(_ share: UInt32) -> Int32 {
        Int32(clamping: Int64(sysconf(Int32(_SC_PHYS_PAGES))) * Int64(share) / 10_000)
    }

    /// Sets the limit of processor time: at least 1000, or `unlimited`.
    public func set(cpuQuota: Int32) throws(KernelFailure) {
        try write(cpuQuota == Self.unlimited ? "max" : "\(cpuQuota) \(Self.period)", to: "cpu.max")
    }

    /// Sets the share of processor time; `ERANGE` from the kernel if it is out of range.
    public func set(cpu weight: Int32) throws(KernelFailure) {
        try write("\(weight)", to: "cpu.weight")
    }

    /// Sets the share of every disk that has no share of its own.
    public func set(io weight: Int32) throws(KernelFailure) {
        try write("default \(weight)", to: "io.weight")
    }

    /// Distinguishes this cgroup from a later one of the same name: the number of its inode.
    public func inode() throws(KernelFailure) -> UInt64 {
        var status = Glibc.stat()
        guard stat(directory, &status) == 0 else {
            throw KernelFailure(operation: "stat", subject: directory, errno: errno)
        }
        return UInt64(status.st_ino)
    }

    private func read(
        _ name: String, _ parse: (inout Bytes) -> Int32?
    ) throws(KernelFailure) -> Int32 {
        let path = "\(directory)/\(name)"
        var value: Int32?
        // `default` is the first line (blkcg prints it before the disks).
        try Files.forEachLine(of: path) { line in
            value = parse(&line)
            return value == nil
        }
        guard let value else { throw KernelFailure(operation: "parse", subject: path, errno: EBADMSG) }
        return value
    }

    private func write(_ text: String, to name: String) throws(KernelFailure) {
        let path = "\(directory)/\(name)"
        try Files.write(text, to: Descriptor.open(path, O_WRONLY | O_TRUNC | O_NOFOLLOW), named: path)
    }
}
