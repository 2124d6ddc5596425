import LifeCycle

/// The shell's reports of stops by signal.
extension Fact {
    /// A stop by another process; `holder` nil: the daemon's own stop, as ordered.
    static func stopped(_ number: ApplicationNumber, holder: String?) -> Fact {
        holder.map { .observed(number, StopReading(signal: .stopped), sender: $0) } ?? .stopCompleted(number)
    }

    static func continued(_ number: ApplicationNumber) -> Fact {
        .observed(number, StopReading(signal: .none))
    }
}
