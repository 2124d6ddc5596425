/// Work in progress that keeps policy from suspending an application. `KeepWhile=` and `keep-while` use these names
/// beside the reported reasons (`ExemptionReason`).
public enum ObjectionReason: String, Sendable, CaseIterable {
    /// It transfers more than `NetworkRate=` over TCP.
    case network
    /// It writes more than `DiskRate=` to files.
    case disk
    /// It uses a tenth of a processor. A game does so as well, so this counts only if the user's rule names it.
    case cpu
    /// It has a device open that speaks for itself: a serial line, a camera, an input device.
    case device
    /// Its service manager would end it, because it would no longer say that it is alive.
    case watchdog
    /// A command runs in its terminal, in the foreground or in the background.
    case terminalJob = "terminal-job"
    /// It holds an inhibitor of systemd-logind against sleep, shutdown or idleness.
    case inhibitor

    /// Whether it counts without a rule.
    public var isDefault: Bool { self != .cpu }
}
