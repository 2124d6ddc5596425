import AppStateBus
import AppStateContract

/// The suspended applications that are needed and of which the daemon must still be told.
struct Demands {
    struct Demand: Equatable {
        let reason: DemandReason
        /// The process that needs it; 0: not known.
        let other: Int32

        /// Appends what `ReportDemand` takes.
        func write(to message: borrowing Message, about pid: Int32) throws(BusFailure) {
            try message.append(UInt32(pid))
            try message.append(reason.rawValue)
            try message.append(UInt32(other))
        }
    }

    /// By the process that is needed: one of several demands is enough.
    private(set) var due: [Int32: Demand] = [:]
    /// When the daemon has accepted a demand, and whether it was one to end, by the process.
    private var accepted: [Int32: (time: UInt64, asksToEnd: Bool)] = [:]

    /// An application that is needed runs for at least 0.2 s; half of it, in microseconds.
    private static let leastGrace: UInt64 = 100_000

    /// The application of this process is needed.
    mutating func note(_ pid: Int32, _ reason: DemandReason, by other: Int32, at now: UInt64) {
        accepted = accepted.filter { now < $0.value.time + Self.leastGrace }
        // It cannot have been suspended again since then. One that is asked to end runs longer, so that counts anew.
        if let known = accepted[pid], known.asksToEnd || !reason.asksToEnd { return }
        if due[pid]?.reason.asksToEnd == true, !reason.asksToEnd { return }
        due[pid] = Demand(reason: reason, other: other)
    }

    /// The daemon need not be told of this any more.
    mutating func settle(_ pid: Int32, _ demand: Demand) {
        if due[pid] == demand { due[pid] = nil }
    }

    /// The daemon has accepted it.
    mutating func noteAccepted(_ pid: Int32, _ demand: Demand, at now: UInt64) {
        accepted[pid] = (now, demand.reason.asksToEnd)
    }

    /// Demands that this daemon has not answered are reported to the next one.
    mutating func forget() { accepted = [:] }
}
