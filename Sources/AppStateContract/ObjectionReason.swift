/// Work in progress of an application that policy does not suspend: what `KeepWhile=` and `keep-while` name beside the
/// reported reasons (`ExemptionReason`).
public enum ObjectionReason: String, Sendable, CaseIterable {
    /// It transfers more than `NetworkRate=` over TCP.
    case network
    /// A command runs in the foreground of its terminal.
    case terminalJob = "terminal-job"
    /// It has an inhibitor of systemd-logind against sleep, shutdown or idleness.
    case inhibitor
}
