import CLinux
import Glibc

/// The mark of a cgroup that we freeze: an extended attribute of its directory, which is still there if every file of
/// ours is lost. It is set before the freeze and removed after the thaw. Linux has such attributes of cgroups since 5.7.
extension Cgroup {
    private static let attribute = "user.appstate1.frozen"

    /// The value of the attribute. The daemons of a container or of a test have other directories, and leave what is
    /// frozen by ours alone. nil: without a directory nothing survives us, and nothing is marked.
    public static let marker: String? = Environment["RUNTIME_DIRECTORY"].map(Environment.firstDirectory)

    /// Says that we freeze it, or are about to.
    public func mark() throws(KernelFailure) {
        if let marker = Self.marker { try mark(as: marker) }
    }

    public func mark(as marker: String) throws(KernelFailure) {
        try check("mark", clinux_set_attribute(directory, Self.attribute, marker, UInt(marker.utf8.count)))
    }

    /// Says that our freeze is over.
    public func unmark() throws(KernelFailure) {
        let result = clinux_remove_attribute(directory, Self.attribute)
        if result != -ENODATA { try check("unmark", result) }
    }

    /// Whether we froze it, or were about to, and have not thawed it since.
    public var isMarked: Bool { Self.marker.map(isMarked(as:)) ?? false }

    public func isMarked(as marker: String) -> Bool {
        var value = [UInt8](repeating: 0, count: marker.utf8.count)
        let size = clinux_get_attribute(directory, Self.attribute, &value, UInt(value.count))
        return Int(size) == value.count && value.elementsEqual(marker.utf8)
    }

    /// Thaws a cgroup that we froze, and removes the mark. Returns whether it was still frozen.
    public func endFreeze() throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            let isFrozen = try wantsFrozen()
            if isFrozen { try thaw() }
            try? unmark()
            return isFrozen
        } catch {
            if error.isNoSuchCgroup { return false }
            throw error
        }
    }

    /// All marked cgroups, from one walk over the hierarchy.
    ///
    /// - Returns: also why some could not be read, for example for lack of descriptors; nil: all were.
    public static func marked(in hierarchy: UnifiedHierarchy) -> (cgroups: [Cgroup], failure: KernelFailure?)
    {
        var found: [Cgroup] = []
        var failure: KernelFailure?
        var rest = [Cgroup(path: "/", in: hierarchy)].compactMap { $0 }
        while let cgroup = rest.popLast() {
            if cgroup.isMarked { found.append(cgroup) }
            do throws(KernelFailure) {
                try cgroup.forEachChild { child in
                    // One whose name is not UTF-8 cannot be ours.
                    if let child { rest.append(child) }
                    return true
                }
            } catch {
                if error.isExhaustion { failure = error }
            }
        }
        return (found, failure)
    }

    private func check(_ operation: String, _ result: Int32) throws(KernelFailure) {
        guard result < 0 else { return }
        throw KernelFailure(operation: operation, subject: directory, errno: -result)
    }
}
