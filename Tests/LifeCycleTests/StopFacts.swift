import LifeCycle

/// The shell's reports of stops by signal.
extension Fact {
    /// A stop by another process; `holder` nil: the daemon's own stop, as ordered.
    static func stopped(_ number: ApplicationNumber, holder: String?) -> Fact {
        holder.map { .looked(number, Standing(signal: .stopped), sender: $0) } ?? .stopCompleted(number)
    }

    static func continued(_ number: ApplicationNumber) -> Fact { .looked(number, Standing(signal: .none)) }

    /// The application is frozen by the daemon; a foreign stop signal beneath the freeze has ended.
    static func foreignStopEnded(_ number: ApplicationNumber) -> Fact {
        .looked(
            number,
            Standing(
                signal: .none, freeze: Standing.Freeze(cgroup: "app", isOurs: true, isComplete: true)))
    }
}
