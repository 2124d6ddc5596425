import Glibc

/// The unified hierarchy of control groups (cgroups(7), "Cgroups version 2").
public struct UnifiedHierarchy: Hashable, Sendable {
    /// Without a slash at its end.
    public let mountPoint: String

    /// A hierarchy that is known to be mounted there, or a made-up tree in tests.
    public init(mountPoint: String) { self.mountPoint = mountPoint }

    /// The hierarchy where the service manager mounts it: the second place is that of a machine that also has version 1.
    /// nil: it is in neither.
    public static func find() -> UnifiedHierarchy? {
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].first { Files.exists($0 + "/cgroup.controllers") }
            .map(Self.init)
    }
}

/// A control group by its place in the unified hierarchy (cgroups(7)); nothing is opened or made here.
///
/// This is a place, not an identity: when a cgroup is removed, another may be created there. `identifier()`
/// distinguishes the two. Only the owner can replace a cgroup, in a hierarchy that belongs to the owner
/// anyway.
public struct Cgroup: Hashable, Sendable, CustomStringConvertible {
    /// The path from the root of the hierarchy, as in `/proc/PID/cgroup`: `/` or `/a/b`.
    public let path: String
    /// Where the hierarchy is mounted.
    public let hierarchy: UnifiedHierarchy
    /// Its directory, without a slash at its end.
    public var directory: String { isRoot ? hierarchy.mountPoint : hierarchy.mountPoint + path }

    /// A cgroup by its path. Nil for a path that is relative, or holds an empty component, `.` or `..` (the kernel
    /// shows `/..` for what lies outside of our cgroup namespace, cgroup_namespaces(7)).
    public init?(path: String, in hierarchy: UnifiedHierarchy) {
        guard path.utf8.first == Self.slash, !path.utf8.contains(0) else { return nil }
        let components = path.utf8.dropFirst().split(separator: Self.slash, omittingEmptySubsequences: false)
        guard path == "/" || components.allSatisfy({ !Self.isReserved($0) }) else { return nil }
        self.path = path
        self.hierarchy = hierarchy
    }

    /// The cgroup of a process, from the line `0::` of `/proc/PID/cgroup`.
    ///
    /// Throws `ESRCH` if the process is gone, `ENODATA` if it has no such line, `ENOENT` if its cgroup is removed (the
    /// kernel adds ` (deleted)`, for a zombie), `EXDEV` if we cannot reach it.
    public static func of(
        _ pid: Int32, in hierarchy: UnifiedHierarchy, proc: Proc = Proc()
    ) throws(KernelFailure) -> Cgroup {
        let operation = "find cgroup of"
        let subject = "pid \(pid)"
        guard let path = try proc.unifiedCgroup(of: pid) else {
            throw KernelFailure(operation: operation, subject: subject, errno: ENODATA)
        }
        guard let cgroup = Cgroup(path: path, in: hierarchy) else {
            throw KernelFailure(operation: operation, subject: subject, errno: EXDEV)
        }
        // A living cgroup may have such a name.
        if path.hasBytes(suffix: " (deleted)"), !Files.exists(cgroup.directory) {
            throw KernelFailure(operation: operation, subject: subject, errno: ENOENT)
        }
        return cgroup
    }

    /// Whether it is the root of the hierarchy, which can be neither frozen nor killed.
    public var isRoot: Bool { path == "/" }

    /// The last component of the path; empty for the root.
    public var name: String {
        isRoot ? "" : String(Substring(path.utf8[path.utf8.index(after: lastSlash)...]))
    }

    /// Whether it has a file of this name, which shows whether a controller is enabled for it.
    public func has(_ file: String) -> Bool { Files.exists("\(directory)/\(file)") }

    /// The cgroup above; nil for the root.
    public var parent: Cgroup? {
        guard !isRoot else { return nil }
        let above = path.utf8[..<lastSlash]
        return Cgroup(path: above.isEmpty ? "/" : String(Substring(above)), in: hierarchy)
    }

    /// The cgroups above it, nearest first.
    public var ancestors: some Sequence<Cgroup> { sequence(first: self, next: \.parent).dropFirst() }

    /// Whether it is `other` or lies below it.
    public func isWithin(_ other: Cgroup) -> Bool {
        guard hierarchy == other.hierarchy else { return false }
        return other.isRoot || path.isSameBytes(as: other.path) || path.hasBytes(prefix: other.path + "/")
    }

    /// The path.
    public var description: String { path }

    /// Compares bytes, not characters: two cgroups may have equal characters.
    public static func == (left: Cgroup, right: Cgroup) -> Bool {
        left.path.isSameBytes(as: right.path) && left.hierarchy == right.hierarchy
    }

    public func hash(into hasher: inout Hasher) { hasher.combine(path) }

    private var lastSlash: String.Index { path.utf8.lastIndex(of: Self.slash) ?? path.startIndex }

    static let slash = UInt8(ascii: "/")

    private static func isReserved(_ component: Substring.UTF8View) -> Bool {
        component.isEmpty || component.elementsEqual(".".utf8) || component.elementsEqual("..".utf8)
    }
}

extension KernelFailure {
    /// The cgroup is gone: `ENOENT`, or `ENODEV` for a file of it that was open before.
    public var isNoSuchCgroup: Bool { errno == ENOENT || errno == ENODEV }
}

extension Cgroup {
    /// Removes the limit of processor time (`cpu.max`), so that its processes die quickly. Removes only its own limit,
    /// not those of the cgroups above, which hold others. The limit is not restored, because dying processes
    /// do not need it.
    ///
    /// Does nothing if there is no limit, or no cpu controller.
    public func liftCPULimit() throws(KernelFailure) {
        do throws(KernelFailure) {
            let isLimited = try readOnce("cpu.max") { !$0.skip("max") }
            guard isLimited else { return }
        } catch {
            if error.errno == ENOENT { return }
            throw error
        }
        // The period stays as it is (cgroup-v2.rst, "cpu.max").
        try write("max", to: "cpu.max")
    }
}
