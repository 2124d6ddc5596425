/// The unit of one application, as launchers name it.
///
/// - systemd, docs/DESKTOP_ENVIRONMENTS, "XDG standardization for applications": `app[-LAUNCHER]-ID-RANDOM.scope` and
///   `app[-LAUNCHER]-ID[@RANDOM].service`, each part escaped as by systemd-escape(1), so that it holds no `-` of its
///   own. Flatpak is such a launcher.
/// - snapd: `snap.SNAP.APP-UUID.scope` (older ones: `snap.SNAP.APP.UUID.scope`) and `snap.SNAP.APP.service`; the
///   desktop entry is `SNAP_APP`; for a parallel installation `SNAP_KEY` it is `SNAP+KEY_APP`.
///
/// A name that follows none of these rules is still a unit, but its application is not guessed.
public struct ApplicationUnit: Hashable, Sendable {
    /// Its cgroup: the path from the root of the hierarchy to the unit.
    public let path: String
    /// The id of the application's desktop entry, at most 255 bytes without control characters and `/`; nil if the name
    /// holds none. The process that starts a unit chooses the name: it is a name, not an identity.
    public let application: String?

    /// The outermost application's unit of a path: an application may make cgroups of its own below its unit, and may
    /// name them as it likes.
    ///
    /// - Parameter path: as in `/proc/PID/cgroup`.
    public init?(inPath path: some StringProtocol) {
        let path = String(path)
        for component in path.utf8.split(separator: UInt8(ascii: "/")) {
            let whole = String(Substring(component))
            // systemd puts it before names that could be mistaken for the kernel's own files.
            let name = whole.hasBytes(prefix: "_") ? String(Substring(whole.utf8.dropFirst())) : whole
            guard let unit = Self.body(of: name) else { continue }
            self.path = String(Substring(path.utf8[..<component.endIndex]))
            application =
                unit.hasBytes(prefix: Self.snap)
                ? Self.snapID(unit) : Self.desktopID(unit, name.hasBytes(suffix: Self.scope))
            return
        }
        return nil
    }

    /// Whether Flatpak or snapd has made it, for one application whose processes start each other.
    public var isSandbox: Bool {
        path.split(separator: "/").last.map { Cgroup.isSandbox(String($0)) } ?? false
    }

    /// Whether it is named after the application that begins with this process: no process in it is older. A terminal, or
    /// a launcher that has exited, may have started others in its unit.
    public func isNamed(after main: Int32, proc: Proc = Proc()) -> Bool {
        guard !isSandbox, let hierarchy = UnifiedHierarchy.find(),
            let members = try? Cgroup(path: path, in: hierarchy)?.processes(),
            let start = try? proc.stat(main).startTime
        else { return true }
        return members.allSatisfy { (try? proc.stat($0).startTime).map { $0 >= start } ?? true }
    }

    private static let app = "app-"
    private static let snap = "snap."
    private static let scope = ".scope"
    private static let service = ".service"

    /// The name without its type; nil if it is not an application's unit.
    private static func body(of name: String) -> String? {
        guard name.hasBytes(prefix: app) || name.hasBytes(prefix: snap) else { return nil }
        for type in [scope, service] where name.hasBytes(suffix: type) {
            return String(Substring(name.utf8.dropLast(type.utf8.count)))
        }
        return nil
    }

    private static func desktopID(_ body: String, _ isScope: Bool) -> String? {
        var rest = Substring(body.utf8.dropFirst(app.utf8.count))
        if !isScope { rest = rest.prefix { $0 != "@" } }
        var parts = rest.split(separator: "-", omittingEmptySubsequences: false)
        if isScope, let random = parts.popLast(), random.isEmpty { return nil }
        // LAUNCHER and ID.
        guard (1...2).contains(parts.count), parts.allSatisfy({ !$0.isEmpty }), let id = parts.last else {
            return nil
        }
        return plausible(Cgroup.unescaped(String(id)))
    }

    private static func snapID(_ body: String) -> String? {
        var parts = body.split(separator: ".", omittingEmptySubsequences: false)
        // Hooks have one part more.
        if parts.count == 4, isUUID(parts[3]) { parts.removeLast() }
        guard parts.count == 3, !parts[1].isEmpty else { return nil }
        var name = parts[2]
        if name.count > uuidLength, isUUID(name.suffix(uuidLength)), name.dropLast(uuidLength).last == "-" {
            name = name.dropLast(uuidLength + 1)
        }
        guard !name.isEmpty else { return nil }
        // There is no other underscore in a snap's name.
        let snap = parts[1].map { $0 == "_" ? "+" : String($0) }.joined()
        return plausible(Array("\(snap)_\(name)".utf8))
    }

    /// `8-4-4-4-12` hexadecimal digits.
    private static let uuidLength = 36

    private static func isUUID(_ text: Substring) -> Bool {
        text.split(separator: "-", omittingEmptySubsequences: false).map(\.count) == [8, 4, 4, 4, 12]
            && text.allSatisfy { $0 == "-" || $0.isASCII && $0.isHexDigit }
    }

    /// The id, if it may be the name of a desktop entry's file.
    private static func plausible(_ bytes: [UInt8]) -> String? {
        guard (1...255).contains(bytes.count), let id = String(validating: bytes, as: UTF8.self),
            id.unicodeScalars.allSatisfy({
                !["/", "\u{FFFD}"].contains($0) && $0.properties.generalCategory != .control
            })
        else { return nil }
        return id
    }
}
