import AppStateBus
import AppStateContract
import Systemd

/// Reports to the daemon which suspended applications are needed, and by which process.
final class Demands: DaemonSpeaker {
    private let bus: Bus
    private let loop: EventLoop
    private let line: DaemonLine
    private let journal: Journal
    private let log: ((String) -> Void)?
    /// The demands that must still be reported, by the process that is needed: one of several demands is
    /// enough.
    private(set) var due: [Int32: Demand]
    /// When the daemon has accepted a demand, and whether it was one to end, by the process.
    private var told: [Int32: (time: UInt64, asksToEnd: Bool)] = [:]

    struct Demand: Equatable {
        let reason: DemandReason
        let other: Int32
    }

    /// An application that is needed runs for at least 0.2 s; half of it, in microseconds.
    private static let leastGrace: UInt64 = 100_000

    /// A connection to the bus may have 128 replies pending: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 16

    /// - Parameters:
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    ///   - due: the demands to report first.
    ///   - log: gets a line for each demand that is reported.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, due: [Int32: Demand],
        journal: Journal, log: ((String) -> Void)?
    ) throws(BusFailure) {
        self.bus = bus
        self.loop = loop
        self.due = due
        self.journal = journal
        self.log = log
        line = try DaemonLine(bus: bus, loop: loop, deaf: deaf, journal: journal)
        line.speaker = self
        if !due.isEmpty { line.proceed() }
    }

    /// The application of this process is needed.
    ///
    /// - Parameter other: the process that needs it; 0: not known.
    func report(_ pid: Int32, _ reason: DemandReason, by other: Int32) {
        // It cannot have been suspended again since then. One that is asked to end runs longer, so that counts anew.
        if let told = told[pid], loop.now < told.time + Self.leastGrace, told.asksToEnd || !reason.asksToEnd {
            return
        }
        if due[pid]?.reason.asksToEnd == true, !reason.asksToEnd { return }
        due[pid] = Demand(reason: reason, other: other)
        line.proceed()
    }

    /// The same, for callers that cannot continue before it is reported: this does not wait for the answer.
    func urge(_ pid: Int32, _ reason: DemandReason) {
        do {
            let message = try bus.newCall(ReporterMethod.reportDemand)
            try message.append(UInt32(pid))
            try message.append(reason.rawValue)
            try message.append(UInt32(0))
            try bus.send(message)
            try bus.flush()
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    func speak() throws {
        told = told.filter { loop.now < $0.value.time + Self.leastGrace }
        for (pid, demand) in due.prefix(Self.mostCalls) {
            try line.call(
                ReporterMethod.reportDemand,
                { message in
                    try message.append(UInt32(pid))
                    try message.append(demand.reason.rawValue)
                    try message.append(UInt32(demand.other))
                },
                refused: { [unowned self] in refused(pid, demand, $0) },
                answered: { [unowned self] _ in
                    settle(pid, demand)
                    told[pid] = (loop.now, demand.reason.asksToEnd)
                })
            log?(
                "\(ReporterMethod.reportDemand.rawValue) pid \(pid): \(demand.reason.rawValue) by pid \(demand.other)"
            )
        }
    }

    private func settle(_ pid: Int32, _ demand: Demand) {
        if due[pid] == demand { due[pid] = nil }
    }

    private func refused(_ pid: Int32, _ demand: Demand, _ error: MethodError) {
        switch ErrorName(rawValue: error.name) {
        case .noSuchProcess?, .noSuchApplication?:
            // It has ended, or is no longer an application.
            settle(pid, demand)
            journal.log(.debug, "\(ReporterMethod.reportDemand.rawValue) \(pid): \(error)")
        default:
            if !line.tryAgain("cannot report that process \(pid) is needed", error) { settle(pid, demand) }
        }
    }

    /// Demands that this daemon has not answered are reported to the next one.
    func forget() { told = [:] }
}
