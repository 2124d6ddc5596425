import AppStateBus
import AppStateContract
import Systemd

/// Tells the daemon who needs an application that is suspended.
final class Demands: DaemonSpeaker {
    private let line: DaemonLine
    private let journal: Journal
    private let log: ((String) -> Void)?
    /// What is still to be told, by the process that is needed: of several demands one is enough.
    private var due: [Int32: (reason: DemandReason, by: Int32)] = [:]

    /// A connection to the bus may await 128 answers at once: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 16

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
    ///   - log: gets a line for each demand that is told.
    init(
        bus: Bus, deaf: @escaping (MethodError) -> Void, journal: Journal, log: ((String) -> Void)?
    ) throws(BusFailure) {
        self.journal = journal
        self.log = log
        line = try DaemonLine(bus: bus, deaf: deaf, journal: journal)
        line.speaker = self
    }

    /// Somebody needs the application of this process.
    ///
    /// - Parameter other: the process that does; 0: not known.
    func report(_ pid: Int32, _ reason: DemandReason, by other: Int32) {
        due[pid] = (reason, other)
        line.proceed()
    }

    func speak() throws {
        for (pid, demand) in due.prefix(Self.mostCalls) {
            due[pid] = nil
            try line.call(
                ReporterMethod.reportDemand,
                { message in
                    try message.append(UInt32(pid))
                    try message.append(demand.reason.rawValue)
                    try message.append(UInt32(demand.by))
                },
                // It has ended, or is no application any more.
                refused: { [journal] in
                    journal.log(.debug, "\(ReporterMethod.reportDemand.rawValue) \(pid): \($0)")
                })
            log?(
                "\(ReporterMethod.reportDemand.rawValue) pid \(pid): \(demand.reason.rawValue) by pid \(demand.by)"
            )
        }
    }

    /// The next daemon finds for itself who is needed then.
    func forget() { due = [:] }
}
