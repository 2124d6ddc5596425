import Glibc

/// The unified hierarchy of control groups (cgroups(7), "Cgroups version 2"): where the file system
/// `cgroup2` is mounted. On a hybrid machine that is below the mounts of version 1.
public struct UnifiedHierarchy: Hashable, Sendable {
    /// Without a slash at its end.
    public let mountPoint: String

    /// The cgroup that the mount shows as its root: `/`, but for bind mounts, such as a container's.
    public let top: String

    /// A hierarchy that is known to be mounted there, or a made-up tree in tests.
    public init(mountPoint: String, top: String = "/") {
        self.mountPoint = mountPoint
        self.top = top
    }

    /// Looks once in `/proc/self/mountinfo` (proc_pid_mountinfo(5)) for a mount of `cgroup2`: one of the
    /// whole hierarchy before one of a part. Throws `ENODEV` where there is none.
    public static func find(proc: Proc = Proc()) throws(KernelFailure) -> UnifiedHierarchy {
        var found: UnifiedHierarchy?
        let path = "\(proc.root)/self/mountinfo"
        try Files.forEachLine(of: path) { line in
            guard let mount = Self(mountinfo: String(decoding: line, as: UTF8.self)) else { return true }
            if found == nil || mount.top == "/" { found = mount }
            return mount.top != "/"
        }
        guard let found else {
            throw KernelFailure(operation: "find cgroup2 in", subject: path, errno: ENODEV)
        }
        return found
    }

    /// A line such as `41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw`; nil
    /// for other file systems, and for a part of the hierarchy that lies outside of our cgroup namespace.
    init?(mountinfo line: String) {
        let fields = line.split(separator: " ")
        guard fields.count > 6, let dash = fields[6...].firstIndex(of: "-"), dash + 1 < fields.count,
            fields[dash + 1] == "cgroup2"
        else { return nil }
        let top = Self.unescape(fields[3])
        let mountPoint = Self.unescape(fields[4])
        guard top.hasPrefix("/"), !top.hasPrefix("/.."), mountPoint.hasPrefix("/") else { return nil }
        self.init(mountPoint: mountPoint, top: top)
    }

    /// The kernel writes blank, tab, newline and backslash as a backslash and three octal digits.
    private static func unescape(_ field: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = Array(field.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.count >= 3,
                let value = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest.removeFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The directory of a cgroup; nil for one that the mount does not show.
    func directory(of path: String) -> String? {
        if top == "/" { return path == "/" ? mountPoint : mountPoint + path }
        guard path == top || path.hasPrefix(top + "/") else { return nil }
        return mountPoint + path.dropFirst(top.count)
    }
}
