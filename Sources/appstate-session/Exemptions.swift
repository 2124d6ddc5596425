import AppStateBus
import AppStateContract
import Systemd

/// Tells the daemon which processes must not be suspended by policy, and why: the whole set whenever it is another.
///
/// What was told ends with the connection, so nothing has to be taken back at the end.
final class Exemptions: DaemonSpeaker {
    /// What is known now, from whichever observer knows.
    typealias Known = [ExemptionReason: Set<Int32>]

    private let line: DaemonLine
    private let journal: Journal
    private let log: ((String) -> Void)?
    private var present: [Row] = []
    /// What the daemon knows; nil where that is uncertain.
    private var told: [Row]? = []
    /// The daemon had no room for the last set: the next report is told whatever it is.
    private var hadNoRoom = false

    private struct Row: Equatable {
        let pid: UInt32
        let reason: ExemptionReason
    }

    /// The daemon takes so many of one user (org.appstate1.Reporter, "ReplaceExemptions").
    private static let mostRows = 256

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
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

    /// What is so now, of which the daemon learns as soon as it listens.
    func report(_ known: Known) {
        var rows: [Row] = []
        for reason in ExemptionReason.allCases {
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
            ReporterMethod.replaceExemptions,
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
                // Others of this user have too many now, and may have fewer later.
                guard ErrorName(rawValue: error.name) != .limitsExceeded else {
                    journal.log(.info, "not told what must not be suspended: \(error.message)")
                    hadNoRoom = true
                    return
                }
                line.refused(error, "cannot be told what must not be suspended")
            })
        told = rows
        hadNoRoom = false
        log?(
            (["\(ReporterMethod.replaceExemptions.rawValue) \(rows.count)"]
                + rows.map { "  \($0.reason.rawValue) pid \($0.pid)" })
                .joined(separator: "\n"))
    }

    func forget() { told = nil }
}
