import Foundation
import Linux
import TestSupport

/// A made-up hierarchy of cgroups, for controllers that this machine may not have.
final class CgroupTree {
    let hierarchy: UnifiedHierarchy

    init() throws {
        let root = FileManager.default.temporaryDirectory.path + "/cgroups-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
        hierarchy = UnifiedHierarchy(mountPoint: root)
    }

    deinit { try? FileManager.default.removeItem(atPath: hierarchy.mountPoint) }

    @discardableResult
    func make(_ name: String, _ values: [CgroupKnob: String]) throws -> Cgroup {
        let cgroup = try self[name]
        try FileManager.default.createDirectory(
            atPath: cgroup.directory, withIntermediateDirectories: true)
        for (knob, value) in values {
            try "\(value)\n".write(
                toFile: "\(cgroup.directory)/\(knob.rawValue)", atomically: false, encoding: .utf8)
        }
        return cgroup
    }

    subscript(name: String) -> Cgroup {
        get throws {
            guard let cgroup = Cgroup(path: "/" + name, in: hierarchy) else {
                throw TestFailure("not the name of a cgroup: \(name)")
            }
            return cgroup
        }
    }
}
