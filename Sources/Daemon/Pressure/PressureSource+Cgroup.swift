import LifeCycle
import Linux

extension PressureSource {
    private static let file = "/memory.pressure"

    /// What `Source=` names. A cgroup's PSI is that of the cgroup, and if the cgroup is a user's slice, that of the
    /// user.
    init(configured path: String, in hierarchy: UnifiedHierarchy?) {
        guard let hierarchy, let cgroup = Self(path: path).cgroup(in: hierarchy), !cgroup.isRoot else {
            self.init(path: path)
            return
        }
        // systemd.special(7): user.slice holds one slice for each user.
        let names = cgroup.path.split(separator: "/")
        var user: UInt32?
        if names.count > 1, names[0] == "user.slice", names[1].hasPrefix("user-"),
            names[1].hasSuffix(".slice")
        {
            user = UInt32(names[1].dropFirst("user-".count).dropLast(".slice".count))
        }
        self.init(path: path, user: user, isPart: user == nil || names.count > 2)
    }

    /// The cgroup that the file is in; nil if it is in none, like the machine's file.
    func cgroup(in hierarchy: UnifiedHierarchy) -> Cgroup? {
        guard path.hasPrefix(hierarchy.mountPoint + "/"), path.hasSuffix(Self.file) else { return nil }
        let below = path.dropFirst(hierarchy.mountPoint.count).dropLast(Self.file.count)
        let place = hierarchy.top == "/" ? String(below) : hierarchy.top + below
        return Cgroup(path: place.isEmpty ? "/" : place, in: hierarchy)
    }
}
