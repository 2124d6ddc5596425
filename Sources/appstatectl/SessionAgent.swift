import Glibc
import Linux
import SessionRules

/// The session agents of the caller. Each of them applies the rules of its configuration to all applications of its
/// user on its bus, whatever their session.
enum SessionAgent {
    /// How an agent was started.
    struct Start {
        let arguments: [String]
        /// Empty if it may not be read.
        let environment: [String: String]

        /// Whether the agent applies the rules of a file. If that cannot be told, it counts as applying them.
        ///
        /// - Parameters:
        ///   - file: the user's configuration; nil: the user has none.
        ///   - bus: the address of the bus; nil: the system bus.
        func applies(_ file: String?, onBus bus: String?) -> Bool {
            if isLaunchOnly { return false }
            if let own = ownConfiguration, own != file { return false }
            if environment.isEmpty { return true }
            let address = environment["DBUS_SYSTEM_BUS_ADDRESS"]
            guard SessionAgent.normal(address) == SessionAgent.normal(bus) else { return false }
            guard let file, ownConfiguration == nil else { return true }
            guard let theirs = Configuration.ownFile(environment: { environment[$0] }) else { return false }
            return theirs == file
                || UserFile.resolved(theirs).map { $0 == UserFile.resolved(file) } ?? false
        }

        /// Whether the agent watches no windows.
        var isLaunchOnly: Bool { arguments.contains("--launch-only") }

        /// The value of `--config`.
        private var ownConfiguration: String? {
            for (index, word) in arguments.enumerated() {
                if word == "--config", index + 1 < arguments.count { return arguments[index + 1] }
                if word.hasPrefix("--config=") { return String(word.dropFirst("--config=".count)) }
            }
            return nil
        }
    }

    private static let program = "appstate-session"

    /// Why nobody applies the rules of a file; nil: an agent does.
    ///
    /// - Parameters:
    ///   - file: the user's configuration; nil: the user has none.
    ///   - bus: the address of the bus that the user names; nil: that of the environment.
    static func absence(file: String?, bus: String?) throws -> String? {
        let bus = bus ?? Environment["DBUS_SYSTEM_BUS_ADDRESS"]
        let running = try processes().map(\.pid)
        if running.contains(where: { start(of: $0).applies(file, onBus: bus) }) { return nil }
        guard let other = running.first else {
            return "the session agent is not running (systemctl --user start appstate-session)"
        }
        return "the session agent that runs (pid \(other)) uses another bus or another configuration"
    }

    /// The agents that run, and their users.
    ///
    /// - Parameter ofEverybody: not only those of the caller; for root.
    static func processes(ofEverybody: Bool = false) throws -> [(pid: Int32, uid: UInt32)] {
        let proc = Proc()
        return try proc.processes().compactMap { pid in
            guard let owner = try? proc.status(pid).owner,
                owner.isWholly(ofEverybody ? owner.real : getuid()), (try? proc.program(of: pid)) == program
            else { return nil }
            return (pid, owner.real)
        }
    }

    static func start(of pid: Int32) -> Start {
        let line = (try? WholeFile.read("/proc/\(pid)/cmdline")) ?? []
        let variables = Environment.variables(of: "\(pid)").filter { !$0.value.isEmpty }
        return Start(
            arguments: line.split(separator: 0).map { String(decoding: $0, as: UTF8.self) },
            environment: Dictionary(variables.map { ($0.name, $0.value) }) { first, _ in first })
    }

    /// An address in the form that others are compared with: without the id of the bus.
    private static func normal(_ address: String?) -> String {
        let usual = "unix:path=/run/dbus/system_bus_socket"
        guard let address, !address.isEmpty else { return usual }
        let plain = address.split(separator: ",").filter { !$0.hasPrefix("guid=") }.joined(separator: ",")
        return plain == "unix:path=/var/run/dbus/system_bus_socket" ? usual : plain
    }
}
