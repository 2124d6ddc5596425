import AppStateBus
import AppStateContract
import Linux
import Systemd

/// Has the daemon tell applications of the ends of their transfers, one after the other, and each once.
///
/// That the daemon is asked is written down first. Where no answer has come, because the daemon or this program has
/// crashed, it is asked again: it does not tell a running application twice. If a run of the application has ended since,
/// that run may have been the one that was told, and the daemon is not asked again.
final class Teller {
    private let bus: Bus
    private let daemon: BusPeer
    private let store: Store
    private let journal: Journal
    private var timer: Timer?
    private var waiting: [Transfer] = []
    private var question: Slot?
    private var isAsking = false
    private var failures: UInt64 = 0

    /// After so many failures, only a new daemon, a new end or the next start leads to another attempt.
    private static let mostFailures: UInt64 = 10
    /// The daemon waits for the session agent and for the application. Microseconds.
    private static let patience: UInt64 = 120_000_000

    init(bus: Bus, loop: EventLoop, store: Store, journal: Journal) throws(BusFailure) {
        self.bus = bus
        self.store = store
        self.journal = journal
        daemon = BusPeer(BusNames.service, bus: bus) {
            journal.log(.notice, "the bus does not report on \(BusNames.service): \($0)")
        }
        timer = try loop.timer { [unowned self] in next() }
        daemon.onOwnerChange { [unowned self] in
            if daemon.owner != nil { retry() }
        }
        try daemon.start()
    }

    /// Whether something is under way, or will be soon.
    var isBusy: Bool { isAsking || !waiting.isEmpty && failures < Self.mostFailures }

    func tell(_ transfer: Transfer) {
        guard !transfer.record.application.isEmpty, transfer.record.notice != .given else { return }
        if !waiting.contains(where: { $0 === transfer }) { waiting.append(transfer) }
        retry()
    }

    func forget(_ transfer: Transfer) { waiting.removeAll { $0 === transfer } }

    private func retry() {
        failures = 0
        next()
    }

    private func next() {
        timer?.disarm()
        guard !isAsking, let transfer = waiting.first else { return }
        isAsking = true
        if case .asked(let since) = transfer.record.notice { return review(transfer, since) }
        transfer.record.notice = .asked(Clock.realMicroseconds)
        // If this cannot be written, it could be told twice.
        store.save(transfer.record) { [unowned self] failure in
            if failure == nil {
                ask(transfer)
            } else {
                transfer.record.notice = .none
                postpone(transfer)
            }
        }
    }

    private func ask(_ transfer: Transfer) {
        let record = transfer.record
        let result = Dictionary(uniqueKeysWithValues: record.result.map { ($0.0.rawValue, $0.1) })
        call(ManagerMethod.launch) { message throws(BusFailure) in
            try message.append(record.application)
            try message.appendDictionary([
                (LaunchKey.launchMode.rawValue, .string("background")),
                (LaunchKey.reason.rawValue, .string(LaunchReason.transfer.rawValue)),
                (
                    LaunchKey.payload.rawValue,
                    .dictionary(["id": .string(record.id), "result": .dictionary(result)])
                ),
            ])
        } answered: { [unowned self] reply in
            guard let error = reply.error else { return conclude(transfer) }
            journal.log(
                .info, "\(record.application) is not told of transfer \(record.id) now: \(error.message)")
            switch ErrorName(rawValue: error.name) {
            case .noSuchApplication, .notSupported, .invalidArgs, .accessDenied: conclude(transfer)
            case .noSessionAgent, .limitsExceeded:
                transfer.record.notice = .none
                postpone(transfer)
            default:
                if Absence(error: error.name) != nil { transfer.record.notice = .none }
                postpone(transfer)
            }
        }
    }

    /// Whether the application may have been told, and has ended since.
    private func review(_ transfer: Transfer, _ since: UInt64) {
        let application = transfer.record.application
        call(ManagerMethod.getHistory) { message throws(BusFailure) in
            try message.append(application)
        } answered: { [unowned self] reply in
            switch reply.error {
            case let error? where error.name != ErrorName.notSupported.rawValue: postpone(transfer)
            case nil where (try? Self.lastEnd(reply)).map({ $0 >= since }) == true: conclude(transfer)
            default: ask(transfer)
            }
        }
    }

    private static func lastEnd(_ reply: borrowing Message) throws(BusFailure) -> UInt64 {
        guard try reply.enter(.array, "(tssi)"), try reply.enter(.struct, "tssi") else { return 0 }
        return try reply.readUInt64()
    }

    private func call(
        _ method: ManagerMethod, _ body: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void
    ) {
        do throws(BusFailure) {
            let message = try bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.manager,
                member: method.rawValue)
            try body(message)
            question = try bus.callAsync(message, timeout: Self.patience, handler: answered)
        } catch {
            // The connection is lost, which ends the program.
            journal.log(.debug, "\(error)")
        }
    }

    /// It was told, or never can be.
    private func conclude(_ transfer: Transfer) {
        forget(transfer)
        (isAsking, failures) = (false, 0)
        transfer.record.notice = .given
        // It may have been cancelled meanwhile.
        if transfer.isKept { store.save(transfer.record) }
        next()
    }

    private func postpone(_ transfer: Transfer) {
        isAsking = false
        failures += 1
        // Another application's may fare better.
        if waiting.first === transfer, waiting.count > 1 { waiting.append(waiting.removeFirst()) }
        if failures < Self.mostFailures {
            timer?.arm(at: EventLoop.clock + min(1_000_000 << (failures - 1), 60_000_000))
        }
    }
}
