import AppStateBus
import Glibc
import TestSupport

/// The programs in Tests/DaemonTests/Scripts: clients in a language that real clients are written in.
enum Scripts {
    static let python = Programs.python
    static let haveGI: Bool = Programs.pythonHas("gi.repository.Gio")
    static let haveDBus: Bool = Programs.pythonHas("dbus.mainloop.glib") && haveGI
    /// Whether another user can read and run them.
    static let othersCanRun: Bool = {
        guard App.canBeOthers,
            let probe = try? Child("test", ["-r", path(of: "listen.py")], uid: App.nobody)
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    /// Starts one, on this bus.
    static func start(
        _ name: String, _ arguments: [String] = [], on bus: PrivateBus, uid: UInt32? = nil
    ) throws -> Child {
        try Child(python, [path(of: name)] + arguments, environment: bus.environment, uid: uid)
    }

    private static func path(of name: String) -> String {
        "\(Programs.root)/Tests/DaemonTests/Scripts/\(name)"
    }
}

extension Variant {
    /// The value as GVariant prints it, without type annotations. The scripts print their caches in this form.
    var printed: String {
        switch self {
        case .string(let value), .objectPath(let value): "'\(value)'"
        case .bool(let value): "\(value)"
        case .uint32(let value): "\(value)"
        case .uint64(let value): "\(value)"
        case .array(_, let values): "[\(values.map(\.printed).joined(separator: ", "))]"
        case .structure(let values): "(\(values.map(\.printed).joined(separator: ", ")))"
        default: "\(self)"
        }
    }
}
