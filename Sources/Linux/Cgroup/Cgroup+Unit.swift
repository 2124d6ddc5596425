/// The names that systemd gives to cgroups (systemd.unit(5); docs/DESKTOP_ENVIRONMENTS in its source).
extension Cgroup {
    /// The name, if it is that of a scope or service, without the `_` that systemd puts before names that could be
    /// mistaken for the kernel's own files.
    public var unit: String? { Self.unit(named: name) }

    private static func unit(named name: String) -> String? {
        let unit = unitName(name)
        let length = unit.utf8.count
        return length > 6 && unit.hasBytes(suffix: ".scope")
            || length > 8 && unit.hasBytes(suffix: ".service") ? unit : nil
    }

    /// The unit of one application that it is, or lies in: below a user's service manager any service or scope, elsewhere
    /// one that is named so (`app-…`, `snap.…`). The outermost counts, because an application may make cgroups of its own
    /// below its unit, and may name them as it likes.
    public var applicationUnit: Cgroup? {
        var isManaged = false
        var end: Substring.Index?
        for component in path.utf8.split(separator: Self.slash) {
            let name = Self.unitName(String(Substring(component)))
            if Self.isManager(name) {
                (isManaged, end) = (true, nil)
            } else if end == nil, Self.unit(named: name) != nil, name != Self.managersOwn,
                isManaged || name.hasBytes(prefix: "app-") || name.hasBytes(prefix: Self.snap)
            {
                end = component.endIndex
            }
        }
        // A cgroup that the mount does not show is nil.
        return end.flatMap { Cgroup(path: String(Substring(path.utf8[..<$0])), in: hierarchy) }
    }

    /// Whether Flatpak or snapd has made it, for one application: both find their processes by it.
    var isSandbox: Bool { Self.isSandbox(name) }

    static func isSandbox(_ name: String) -> Bool {
        let name = unitName(name)
        return name.hasBytes(prefix: snap) || name.hasBytes(prefix: "app-flatpak-")
    }

    private static let snap = "snap."
    private static let managersOwn = "init.scope"

    private static func isManager(_ name: String) -> Bool {
        name.hasBytes(prefix: "user@") && name.hasBytes(suffix: ".service")
    }

    /// The purpose of the cgroup: some units contain more than one application by design.
    var purpose: Purpose {
        let unit = Self.unitName(name)
        if isRoot { return .root }
        if unit.hasBytes(prefix: "session-"), unit.hasBytes(suffix: ".scope") { return .session }
        if Self.isManager(unit) || unit == Self.managersOwn || unit.hasBytes(suffix: ".slice") {
            return .manager
        }
        return .any
    }

    /// The purpose of a cgroup, as far as its name indicates it.
    enum Purpose: Equatable {
        /// The root of the hierarchy.
        case root
        /// Everything that runs in a logind session: `session-ID.scope`.
        case session
        /// A service manager's own cgroup, or a slice, which holds units.
        case manager
        /// All others: applications' units, services, cgroups without a unit.
        case any
    }

    private static func unitName(_ name: String) -> String {
        name.hasBytes(prefix: "_") ? String(Substring(name.utf8.dropFirst())) : name
    }

    /// A unit's name, or a part of one, with `\x2d` and the like decoded (systemd-escape(1)): bytes of any kind.
    static func unescaped(_ unit: String) -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = Array(unit.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.first == UInt8(ascii: "x"), rest.count >= 3,
                rest.dropFirst().prefix(2).allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }),
                let value = UInt8(String(decoding: rest.dropFirst().prefix(2), as: UTF8.self), radix: 16)
            {
                bytes.append(value)
                rest.removeFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return bytes
    }
}
