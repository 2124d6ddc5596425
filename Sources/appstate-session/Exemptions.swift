import AppStateBus
import AppStateContract
import Systemd

/// Tells the daemon which processes must not be suspended by policy, and why: the whole set whenever it is another.
///
/// Nothing is sent while an answer is awaited; what happens meanwhile is one change. What was told ends with the
/// connection, so nothing has to be taken back at the end.
final class Exemptions {
    /// What is known now, from whichever observer knows.
    typealias Known = [ExemptionReason: Set<Int32>]

    private let bus: Bus
    private let journal: Journal
    private let log: ((String) -> Void)?
    private var present: [Row] = []
    /// What the daemon knows; nil where that is uncertain.
    private var told: [Row]? = []
    /// Nobody owns the name, or nobody lets us speak: nothing is sent until it gets an owner.
    private var isAbsent = false
    private var awaited: Slot?
    private var isAwaiting = false
    private var ownerChange: Slot?

    private struct Row: Equatable {
        let pid: UInt32
        let reason: ExemptionReason
    }

    /// The daemon takes 1,024 of one user (org.appstate1.Reporter, "ReplaceExemptions"), who may have more sessions.
    private static let mostRows = 256

    /// - Parameters:
    ///   - deaf: called when the bus does not tell of the daemon.
    ///   - log: gets a line for each set that is sent.
    init(
        bus: Bus, deaf: @escaping (MethodError) -> Void, journal: Journal, log: ((String) -> Void)?
    ) throws(BusFailure) {
        self.bus = bus
        self.journal = journal
        self.log = log
        ownerChange = try bus.watchOwner(of: BusNames.service, failed: deaf) { [unowned self] _, owner in
            awaited = nil
            isAwaiting = false
            told = nil
            isAbsent = owner == nil
            send()
        }
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
        send()
    }

    private func send() {
        guard !isAwaiting, !isAbsent, present != told else { return }
        let rows = present
        do {
            let message = try bus.newCall(ReporterMethod.replaceExemptions)
            try message.withContainer(.array, "(us)") {
                for row in rows {
                    try message.withContainer(.struct, "us") {
                        try message.append(row.pid)
                        try message.append(row.reason.rawValue)
                    }
                }
            }
            awaited = try bus.callAsync(message) { [unowned self] reply in
                isAwaiting = false
                if let error = reply.error { refused(error) }
                send()
            }
        } catch {
            // The connection is gone, which somebody else is told of.
            journal.log(.debug, "\(error)")
            return
        }
        isAwaiting = true
        told = rows
        log?(
            (["\(ReporterMethod.replaceExemptions.rawValue) \(rows.count)"]
                + rows.map { "  \($0.reason.rawValue) pid \($0.pid)" })
                .joined(separator: "\n"))
    }

    private func refused(_ error: MethodError) {
        told = nil
        // It is slow, or was replaced: what it knows is uncertain, and it is told anew.
        if error.isNoReply { return }
        isAbsent = true
        journal.log(.info, "\(BusNames.service) cannot be told what must not be suspended: \(error)")
    }
}
