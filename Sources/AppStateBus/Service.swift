import CSystemd

/// What a service and the service manager tell each other: sd-daemon(3).
public enum Service {
    /// Tells the service manager; without one that listens (NOTIFY_SOCKET), nothing.
    ///
    /// - Parameter state: assignments, one a line, as in sd_notify(3): `READY=1`, `STOPPING=1`, `STATUS=…`.
    public static func notify(_ state: String) {
        sd_notify(0, state)
    }

    /// Tells the service manager that a reload began, for Type=notify-reload; `READY=1` ends it.
    ///
    /// - Parameter now: CLOCK_MONOTONIC, in microseconds.
    public static func notifyReloading(at now: UInt64) {
        notify("RELOADING=1\nMONOTONIC_USEC=\(now)")
    }

    /// Whether the machine was booted with systemd: sd_booted(3).
    public static var isBooted: Bool { sd_booted() > 0 }
}
