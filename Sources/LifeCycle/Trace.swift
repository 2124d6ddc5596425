public import AppStateContract

/// One step of one application: what happened, and how it changed the state. The journal, `Explain` and the
/// simulator print the same line, so that a line from a user's machine can be used in a test.
public struct TraceEntry: Equatable, Sendable, CustomStringConvertible {
    /// CLOCK_MONOTONIC, microseconds.
    public let time: Microseconds
    public let reason: StateChangeReason
    public let from: LifeCycleState
    public let to: LifeCycleState
    public let level: Application.WindowLevel
    public let isStopped: Bool
    public let enforcement: StopStatus.Enforcement
    /// The reasons of the holds, in the order they were taken.
    public let holds: [HoldReason]

    public var description: String {
        var line = "\(Self.seconds(time)) \(reason.rawValue): "
        line +=
            from == to ? from.rawValue : from.walk(to: to).reduce(from.rawValue) { "\($0)→\($1.to.rawValue)" }
        line += " windows=\(level)"
        if isStopped { line += " stopped" }
        if enforcement != .none { line += " enforcement=\(enforcement.rawValue)" }
        if !holds.isEmpty { line += " holds=" + holds.map(\.rawValue).joined(separator: ",") }
        return line
    }

    /// `12.000345`
    static func seconds(_ time: Microseconds) -> String {
        let fraction = String(time % 1_000_000)
        return "\(time / 1_000_000)." + String(repeating: "0", count: 6 - fraction.utf8.count) + fraction
    }
}
