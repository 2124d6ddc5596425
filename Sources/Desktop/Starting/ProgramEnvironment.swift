import Linux

/// The environment of a program that we start: `NAME=value`.
enum ProgramEnvironment {
    /// Variables that concern only this process and none of the user's programs: what a service manager passes to its
    /// service, the startup sequence of the process that started us, and the state of a shell.
    private static let own: Set<String> = [
        "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
        "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "MAINPID",
        "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "CREDENTIALS_DIRECTORY", "RUNTIME_DIRECTORY",
        "STATE_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
        "DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN", "GIO_LAUNCHED_DESKTOP_FILE",
        "GIO_LAUNCHED_DESKTOP_FILE_PID", "PWD", "OLDPWD", "SHLVL", "_",
    ]

    /// Variables that say which session of the user the program belongs to. The service manager, which all sessions
    /// share, has those of the session that began last.
    private static let session: Set<String> = [
        "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "SWAYSOCK", "I3SOCK", "HYPRLAND_INSTANCE_SIGNATURE",
        "NIRI_SOCKET", "GNOME_SETUP_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "SESSION_MANAGER",
        "DESKTOP_SESSION", "KDE_FULL_SESSION", "KDE_SESSION_VERSION", "XDG_CURRENT_DESKTOP",
        "XDG_MENU_PREFIX", "XDG_SEAT", "XDG_SESSION_CLASS", "XDG_SESSION_DESKTOP", "XDG_SESSION_ID",
        "XDG_SESSION_TYPE", "XDG_VTNR",
    ]

    /// For a unit, which has the service manager's variables too: those of a child that the service manager does not
    /// have, and those of the session. Others may have changed since we were started. A single invalid value would make
    /// the service manager refuse the whole unit.
    ///
    /// - Parameter known: the names of the service manager's variables.
    /// - Returns: `unset`: the names of the service manager's variables that the unit must not have: those of another
    ///   session, and used tokens. A program would open its window in the session that began last.
    static func ofUnit(
        _ more: [(name: String, value: String)], known: Set<String>
    ) -> (set: [String], unset: [String]) {
        let ours = ours
        let set = merged(ours.filter { !known.contains($0.name) || session.contains($0.name) }, more)
        let given = Set((ours + more).map(\.name))
        let hasDisplay = !given.isDisjoint(with: ["DISPLAY", "WAYLAND_DISPLAY"])
        let foreign = hasDisplay ? known.intersection(ofOneStart).subtracting(given) : []
        return (set.filter(isTaken), foreign.sorted())
    }

    /// Variables of the service manager that concern another session, or a program that was started before.
    private static let ofOneStart = session.subtracting(["DBUS_SESSION_BUS_ADDRESS"])
        .union(["DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN"])

    /// Whether systemd accepts the variable: the name consists of letters, digits and underscores, and the value has no
    /// control character.
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

    /// For a child: all our variables except those that concern us.
    static func ofChild(_ more: [(name: String, value: String)]) -> [String] {
        merged(ours, more)
    }

    private static var ours: [(name: String, value: String)] {
        Environment.variables(of: "self").filter { !own.contains($0.name) }
    }

    private static func merged(
        _ variables: [(name: String, value: String)], _ more: [(name: String, value: String)]
    ) -> [String] {
        let names = Set(more.map(\.name))
        return (variables.filter { !names.contains($0.name) } + more).map { "\($0.name)=\($0.value)" }
    }
}
