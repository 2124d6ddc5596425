import Linux

/// What a program that we start finds in its environment: `NAME=value`.
enum ProgramEnvironment {
    /// What belongs to a desktop session, and the user's service manager need not know.
    private static let session = [
        "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "SWAYSOCK", "I3SOCK", "XDG_CURRENT_DESKTOP",
        "XDG_SESSION_DESKTOP", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SEAT",
        "XDG_VTNR",
        "DESKTOP_SESSION", "DBUS_SESSION_BUS_ADDRESS",
    ]

    /// What is about this process alone, and no program of the user's: a service manager's word to its service, and the
    /// startup sequence of whoever started us.
    private static let own: Set<String> = [
        "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
        "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "MAINPID",
        "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY",
        "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
        "DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN", "GIO_LAUNCHED_DESKTOP_FILE",
        "GIO_LAUNCHED_DESKTOP_FILE_PID",
    ]

    /// For a unit: what the service manager's own environment is to have beside it.
    static func ofUnit(_ more: [(name: String, value: String)]) -> [String] {
        merged(session.compactMap { name in Environment[name].map { (name, $0) } }, more)
    }

    /// For a child: all of ours but what is about us.
    static func ofChild(_ more: [(name: String, value: String)]) -> [String] {
        let whole = (try? WholeFile.read("/proc/self/environ")) ?? []
        let variables = whole.split(separator: 0).compactMap { bytes -> (name: String, value: String)? in
            guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            return (
                String(decoding: bytes[..<equals], as: UTF8.self),
                String(decoding: bytes[(equals + 1)...], as: UTF8.self)
            )
        }
        return merged(variables.filter { !own.contains($0.name) }, more)
    }

    private static func merged(
        _ variables: [(name: String, value: String)], _ more: [(name: String, value: String)]
    ) -> [String] {
        let names = Set(more.map(\.name))
        return (variables.filter { !names.contains($0.name) } + more).map { "\($0.name)=\($0.value)" }
    }
}
