import AppStateBus
import AppStateContract
import Systemd

/// Reports to the daemon which processes must not be suspended by policy, and why: the whole set whenever it changes.
///
/// The reports end with the connection, so nothing has to be withdrawn at the end.
final class Objections: DaemonSpeaker {
    /// The processes that must not be suspended now, from all observers.
    typealias Known = [ObjectionReason: Set<Int32>]

    private let line: DaemonLine
    private let journal: Journal
    private let log: ((String) -> Void)?
    private var present: [Row] = []
    /// The set that the daemon knows. Nil: uncertain.
    private var told: [Row]? = []
    /// The daemon had no room for the last set, so the next report is sent in any case.
    private var hadNoRoom = false

    private struct Row: Equatable {
        let pid: UInt32
        let reason: ObjectionReason
    }

    /// The daemon accepts this many rows from one user (org.appstate1.Reporter, "ReplaceObjections").
    private static let mostRows = 256

    /// - Parameters:
    ///   - deaf: called if the bus refuses a match rule for the daemon.
    ///   - log: gets a line for each set that is sent.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, journal: Journal,
        log: ((String) -> Void)?
    ) throws(BusFailure) {
        self.log = log
        self.journal = journal
        line = try DaemonLine(bus: bus, loop: loop, deaf: deaf, journal: journal)
        line.speaker = self
    }

    /// Sets the present objections. They are sent as soon as the daemon can be called.
    func report(_ known: Known) {
        var rows: [Row] = []
        for reason in ObjectionReason.allCases {
            rows += (known[reason] ?? []).sorted().compactMap { pid in
                UInt32(exactly: pid).flatMap { $0 > 0 ? Row(pid: $0, reason: reason) : nil }
            }
        }
        present = Array(rows.prefix(Self.mostRows))
        if hadNoRoom { forget() }
        line.proceed()
    }

    func speak() throws {
        guard present != told else { return }
        let rows = present
        try line.call(
            ReporterMethod.replaceObjections,
            { message in
                try message.withContainer(.array, "(us)") {
                    for row in rows {
                        try message.withContainer(.struct, "us") {
                            try message.append(row.pid)
                            try message.append(row.reason.rawValue)
                        }
                    }
                }
            },
            refused: { [unowned self] error in
                guard ErrorName(rawValue: error.name) == .limitsExceeded else {
                    return line.refused(error, "does not accept objections")
                }
                if line.tryAgainForRoom("does not accept objections", error) { return forget() }
                // Other programs of this user have too many objections now, and may have fewer later.
                line.haveRoom()
                hadNoRoom = true
            }, answered: { [unowned self] _ in line.haveRoom() })
        told = rows
        hadNoRoom = false
        log?(
            (["\(ReporterMethod.replaceObjections.rawValue) \(rows.count)"]
                + rows.map { "  \($0.reason.rawValue) pid \($0.pid)" })
                .joined(separator: "\n"))
    }

    func forget() { told = nil }
}
