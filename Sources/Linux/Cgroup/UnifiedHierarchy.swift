import Glibc

/// The unified hierarchy of control groups (cgroups(7), "Cgroups version 2"): where the file system
/// `cgroup2` is mounted. On a hybrid machine that is below the mounts of version 1.
public struct UnifiedHierarchy: Hashable, Sendable {
    /// Without a slash at its end.
    public let mountPoint: String

    /// The cgroup that the mount shows as its root: `/`, except for bind mounts, such as a container's.
    public let top: String

    /// A hierarchy that is known to be mounted there, or a made-up tree in tests.
    public init(mountPoint: String, top: String = "/") {
        self.mountPoint = mountPoint
        self.top = top
    }

    /// Searches `/proc/self/mountinfo` (proc_pid_mountinfo(5)) once for a mount of `cgroup2`, and prefers one
    /// of the whole hierarchy to one of a part. Throws `ENODEV` if there is none.
    public static func find(proc: Proc = Proc()) throws(KernelFailure) -> UnifiedHierarchy {
        var found: UnifiedHierarchy?
        try Mount.forEach(proc: proc) { mount in
            guard let hierarchy = Self(mount) else { return true }
            if found == nil || hierarchy.top == "/" { found = hierarchy }
            return hierarchy.top != "/"
        }
        guard let found else {
            throw KernelFailure(operation: "find cgroup2 in", subject: Mount.path(proc), errno: ENODEV)
        }
        return found
    }

    /// nil for other file systems, and for a part of the hierarchy that lies outside of our cgroup namespace.
    init?(_ mount: Mount) {
        guard mount.fileSystem == "cgroup2", mount.root.hasPrefix("/"), !mount.root.hasPrefix("/.."),
            mount.mountPoint.hasPrefix("/")
        else { return nil }
        self.init(mountPoint: mount.mountPoint, top: mount.root)
    }

    /// The directory of a cgroup; nil if the mount does not show it.
    func directory(of path: String) -> String? {
        if top == "/" { return path == "/" ? mountPoint : mountPoint + path }
        guard path.isSameBytes(as: top) || path.hasBytes(prefix: top + "/") else { return nil }
        return mountPoint + String(Substring(path.utf8.dropFirst(top.utf8.count)))
    }
}
