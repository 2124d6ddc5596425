import Linux

/// What a program that we start finds in its environment: `NAME=value`.
enum ProgramEnvironment {
    /// What is about this process alone, and no program of the user's: a service manager's word to its service, the startup
    /// sequence of whoever started us, and where a shell was.
    private static let own: Set<String> = [
        "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
        "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "MAINPID",
        "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY",
        "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
        "DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN", "GIO_LAUNCHED_DESKTOP_FILE",
        "GIO_LAUNCHED_DESKTOP_FILE_PID", "PWD", "OLDPWD", "SHLVL", "_",
    ]

    /// For a unit: the same as for a child, so that a program finds the same wherever it runs; what the service manager's own
    /// environment has beside that stays. One value that it does not take would have it refuse the whole unit.
    static func ofUnit(_ more: [(name: String, value: String)]) -> [String] {
        ofChild(more).filter(isTaken)
    }

    /// Whether systemd takes it: a name of letters, digits and underscores, and no control character in the value.
    private static func isTaken(_ variable: String) -> Bool {
        let name = variable.utf8.prefix { $0 != UInt8(ascii: "=") }
        let isName =
            name.first.map { !(0x30...0x39).contains($0) } == true
            && name.allSatisfy {
                (0x30...0x39).contains($0) || (0x61...0x7A).contains($0 | 0x20) || $0 == UInt8(ascii: "_")
            }
        let value = variable.utf8.dropFirst(name.count)
        return isName && value.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 || $0 == 0x0A }
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
