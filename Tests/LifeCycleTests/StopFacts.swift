import LifeCycle

/// What the shell reports of stops by signal.
extension Fact {
    /// By somebody else; `holder` nil: by us, as it was ordered.
    static func stopped(_ number: ApplicationNumber, holder: String?) -> Fact {
        holder.map { .looked(number, Standing(signal: .stopped), sender: $0) } ?? .stopCompleted(number)
    }

    static func continued(_ number: ApplicationNumber) -> Fact { .looked(number, Standing(signal: .none)) }

    /// What stands by our freeze was stopped beneath it, and is not any more.
    static func foreignStopEnded(_ number: ApplicationNumber) -> Fact {
        .looked(
            number,
            Standing(
                signal: .none, freeze: Standing.Freeze(cgroup: "app", isOurs: true, isComplete: true)))
    }
}
