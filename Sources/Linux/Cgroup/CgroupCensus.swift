import Glibc

/// How many cgroups users have made, and so how deep a process's cgroup can be at most.
///
/// The time in which the kernel names the cgroup of a process is quadratic in its depth (`kernfs_path_from_node` in
/// fs/kernfs/dir.c): 0.6 ms for 500 levels, 10 ms for 1,900, and 0.65 s for 8,000 (Linux 6.18). A user may nest any
/// number of cgroups below their own service manager. How many cgroups there are below another is known at once
/// (`cgroup.stat`, cgroups(7)), and there are no more levels than cgroups.
struct CgroupCensus {
    /// Where the unified hierarchy is mounted.
    let mountPoint: String
    /// With so many levels, a cgroup is named within 3 ms.
    var most: UInt64 = 1_000

    /// systemd's two layouts: the unified one, and the hybrid one.
    static let usual: CgroupCensus = {
        let unified = "/sys/fs/cgroup"
        return CgroupCensus(
            mountPoint: Files.exists(unified + "/cgroup.controllers") ? unified : unified + "/unified")
    }()

    /// Whether a process's cgroup can be named soon. Users can make cgroups only where there is a `user.slice`.
    ///
    /// - Parameter user: the process's real user; nil: it cannot be determined.
    func isShallow(of user: () -> UInt32?) -> Bool {
        guard let all = count(below: "user.slice"), all > most else { return true }
        guard let user = user(), let own = count(below: "user.slice/user-\(user).slice") else { return false }
        return own <= most
    }

    private func count(below slice: String) -> UInt64? {
        let count = "\(mountPoint)/\(slice)/cgroup.stat".withCString { path in
            Files.readOnce(path) { $0.take("nr_descendants ") ? $0.unsigned() : nil }
        }
        return try? count.get()
    }
}

extension Proc {
    /// Whether the kernel can name the process's cgroup in a few milliseconds. If not, its user has made more than a
    /// thousand cgroups, or another user has, and the process belongs to no user with a slice of their own.
    public func canNameCgroup(of pid: Int32) -> Bool {
        CgroupCensus.usual.isShallow { (try? status(pid))?.owner.real }
    }
}
