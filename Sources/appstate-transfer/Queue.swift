import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// All transfers of the user: which of them run, and what follows their attempts.
///
///     Begin ─▶ on the disk ─▶ waiting ─▶ running ─▶ landing ─▶ on the disk ─▶ the application is told
///                               ▲           │
///                               └── retry ◀─┴─▶ failed ─▶ on the disk ─▶ the application is told
final class Queue {
    let store: Store
    private(set) var transfers: [UInt64: Transfer] = [:]
    private let engine: Engine
    private let journal: Journal
    private let settings: Settings
    private var timer: Timer?

    /// nil: there is no system bus, or it is not connected yet.
    var conditions: Conditions?
    /// Properties of a transfer have new values.
    var changed: (Transfer, [TransferProperty]) -> Void = { _, _ in }
    /// It exists from now on, or no longer.
    var added: (Transfer) -> Void = { _ in }
    var removed: (Transfer) -> Void = { _ in }
    /// It has ended, and that is on the disk.
    var ended: (Transfer) -> Void = { _ in }

    struct Settings {
        /// Seconds without a byte after which an attempt ends.
        var stall = 30
        /// Attempts without a new byte after which a transfer fails.
        var attempts = 12
    }

    /// How many run at once.
    private static let running = 6
    /// Of one user, with those that have ended.
    static let most = 1_024
    /// Ended transfers are forgotten then. Microseconds.
    private static let memory: UInt64 = 7 * 86_400 * 1_000_000
    /// Progress is announced once in this time. Microseconds.
    private static let pace: UInt64 = 500_000
    /// What was received in this time is lost by a crash. Microseconds.
    private static let syncPace: UInt64 = 5_000_000
    /// The pause after the first failure, and the longest. Microseconds.
    private static let pauses: (first: UInt64, longest: UInt64) = (1_000_000, 300_000_000)

    init(directory: String, loop: EventLoop, settings: Settings, journal: Journal) throws {
        store = try Store(directory: directory, loop: loop, journal: journal)
        engine = try Engine(loop: loop)
        self.settings = settings
        self.journal = journal
        timer = try loop.timer { [unowned self] in schedule() }
    }

    /// Goes on with what an earlier program has left.
    func restore() {
        for record in store.load() {
            let transfer = Transfer(record)
            transfer.best = record.received
            transfers[record.number] = transfer
        }
        prune()
        for transfer in inOrder {
            if transfer.record.stage == .landing { land(transfer, nil) }
            if transfer.record.isEnded { ended(transfer) }
        }
        schedule()
    }

    var inOrder: [Transfer] { transfers.values.sorted { $0.record.number < $1.record.number } }

    /// Whether nothing is to be done but to wait for calls.
    var isIdle: Bool { store.pending == 0 && transfers.values.allSatisfy(\.record.isEnded) }

    // MARK: What callers ask for

    func begin(_ record: Record, then: @escaping (Result<Transfer, MethodError>) -> Void) {
        prune()
        guard transfers.count < Self.most else {
            return then(
                .failure(
                    MethodError(
                        ErrorName.limitsExceeded.rawValue,
                        "More than \(Self.most) transfers of user \(geteuid())")))
        }
        let transfer = Transfer(record)
        transfer.activity = .recording
        transfers[record.number] = transfer
        store.add(record) { [unowned self] failure in
            if let failure {
                transfers[record.number] = nil
                return then(.failure(.failed("The transfer cannot be recorded: \(failure)")))
            }
            transfer.activity = .none
            added(transfer)
            then(.success(transfer))
            schedule()
        }
    }

    /// Ends it without a trace, or forgets one that has ended. The target stays.
    func cancel(_ transfer: Transfer) throws(MethodError) {
        switch transfer.activity {
        case .recording, .landing: throw .failed("The transfer is just being recorded: try again")
        case .running(let attempt): engine.stop(attempt)
        case .none, .waiting, .pausing: break
        }
        transfer.activity = .none
        forget(transfer)
        schedule()
    }

    func retry(_ transfer: Transfer) throws(MethodError) {
        guard !transfer.record.isEnded || transfer.record.stage == .failed else {
            throw .failed("The transfer has finished")
        }
        if case .recording = transfer.activity {
            throw .failed("The transfer is just being recorded: try again")
        }
        transfer.failures = 0
        if transfer.record.stage == .failed {
            transfer.record.stage = .waiting
            transfer.record.retries += 1
            transfer.record.notice = .none
            transfer.record.error = ""
            store.save(transfer.record)
        }
        if case .pausing = transfer.activity { transfer.activity = .none }
        changed(transfer, [.id, .state, .waitsFor, .error])
        schedule()
    }

    private func forget(_ transfer: Transfer) {
        let record = transfer.record
        transfers[record.number] = nil
        transfer.isKept = false
        store.remove(record)
        store.run {
            TargetFile.removeTemporary(record)
        } then: {
        }
        removed(transfer)
    }

    /// Forgets what has ended long ago and, if there are too many, what nobody has to be told any more.
    private func prune() {
        let now = Clock.realMicroseconds
        for transfer in inOrder where transfer.record.isEnded && !transfer.isRecording {
            let isOver = transfer.record.application.isEmpty || transfer.record.notice == .given
            if now > transfer.record.ended + Self.memory || isOver && transfers.count >= Self.most {
                forget(transfer)
            }
        }
    }

    // MARK: Attempts

    /// Starts and interrupts attempts, as the conditions and the number of those that run say.
    func schedule() {
        let now = EventLoop.clock
        var running = transfers.values.count { $0.attempt != nil }
        var next: UInt64?
        // What need not be done now gives way.
        let order = inOrder.filter { !$0.record.isDiscretionary } + inOrder.filter(\.record.isDiscretionary)
        for transfer in order where transfer.record.stage == .waiting {
            switch transfer.activity {
            case .recording, .landing: continue
            case .running(let attempt):
                guard let need = conditions?.need(of: transfer.record) else { continue }
                engine.stop(attempt)
                running -= 1
                keep(attempt, of: transfer)
                sync(transfer, attempt)
                wait(transfer, .waiting(need))
            case .pausing(let end) where end > now && conditions?.need(of: transfer.record) == nil:
                next = min(next ?? end, end)
            case .none, .waiting, .pausing:
                // An interruption may have been the network's: it is tried at once when that is back.
                if let need = conditions?.need(of: transfer.record) {
                    transfer.failures = 0
                    wait(transfer, .waiting(need))
                } else if running >= Self.running {
                    wait(transfer, .waiting(.turn))
                } else {
                    start(transfer)
                    if transfer.attempt != nil { running += 1 }
                }
            }
        }
        if let next { timer?.arm(at: next) } else { timer?.disarm() }
    }

    private func wait(_ transfer: Transfer, _ activity: Transfer.Activity) {
        let before = (transfer.state, transfer.need)
        transfer.activity = activity
        if before != (transfer.state, transfer.need) { changed(transfer, [.state, .waitsFor, .received]) }
    }

    private func start(_ transfer: Transfer) {
        let record = transfer.record
        do throws(TargetFile.Failure) {
            let attempt = try Attempt(record, stall: settings.stall)
            transfer.isContinued = attempt.received > 0
            if attempt.isWhole {
                transfer.record.received = attempt.received
                return land(transfer, attempt)
            }
            attempt.begun = { [unowned self, unowned transfer] tag, total in
                note(tag, total, of: transfer)
            }
            transfer.nextSync = EventLoop.clock + Self.syncPace
            attempt.progressed = { [unowned self, unowned transfer, unowned attempt] in
                let now = EventLoop.clock
                if now >= transfer.nextSync { sync(transfer, attempt) }
                guard now - transfer.announced >= Self.pace else { return }
                transfer.announced = now
                changed(transfer, [.received, .total])
            }
            attempt.ended = { [unowned self, unowned transfer, unowned attempt] outcome in
                keep(attempt, of: transfer)
                take(outcome, of: transfer, attempt)
                schedule()
            }
            transfer.activity = .running(attempt)
            engine.start(attempt)
            changed(transfer, [.state, .waitsFor, .received, .total])
        } catch {
            fail(transfer, error.word, error.sentence)
        }
    }

    /// Another entity begins.
    private func note(_ tag: String, _ total: UInt64, of transfer: Transfer) {
        let wasOfUse = transfer.record.synced > 0
        (transfer.record.tag, transfer.record.total, transfer.record.synced) = (tag, total, 0)
        if wasOfUse { store.save(transfer.record) }
    }

    /// Puts what was received on the disk: after a crash, the next attempt goes on from there.
    private func sync(_ transfer: Transfer, _ attempt: Attempt) {
        // Without a tag it is of no use, and what an upload is answered has none.
        guard let file = attempt.file, !transfer.record.tag.isEmpty, attempt.received > transfer.record.synced
        else { return }
        transfer.nextSync = .max
        transfer.record.synced = attempt.received
        transfer.record.received = attempt.received
        store.save(transfer.record, syncing: file) { failure in
            // The descriptor is the attempt's.
            withExtendedLifetime(attempt) {}
            if failure != nil { transfer.record.synced = 0 }
            transfer.nextSync = EventLoop.clock + Self.syncPace
        }
    }

    private func keep(_ attempt: Attempt, of transfer: Transfer) {
        transfer.record.received = attempt.received
        transfer.record.total = attempt.total
        transfer.record.status = attempt.status
        transfer.activity = .none
        if attempt.received > transfer.best {
            transfer.best = attempt.received
            transfer.failures = 0
        }
    }

    private func take(_ outcome: Attempt.Outcome, of transfer: Transfer, _ attempt: Attempt) {
        switch outcome {
        case .complete:
            if transfer.record.target.isEmpty { finish(transfer) } else { land(transfer, attempt) }
        case .interrupted(let why, let seconds):
            sync(transfer, attempt)
            pause(transfer, why, atLeast: seconds * 1_000_000)
        case .useless(let why): discard(transfer, why)
        case .failed(let word, let sentence): fail(transfer, word, sentence)
        }
    }

    /// What was received is of no use: it is requested again from the beginning.
    private func discard(_ transfer: Transfer, _ why: String) {
        transfer.record.tag = ""
        (transfer.record.received, transfer.record.total) = (0, 0)
        transfer.activity = .recording
        store.save(transfer.record) { [unowned self] _ in
            transfer.activity = .none
            pause(transfer, why)
            schedule()
        }
    }

    private func pause(_ transfer: Transfer, _ why: String, atLeast least: UInt64 = 0) {
        transfer.failures += 1
        transfer.interruption = why
        guard transfer.failures < settings.attempts else { return fail(transfer, .network, why) }
        journal.log(.debug, "\(transfer.path): \(why)")
        let pause = Self.pauses.first << min(UInt64(transfer.failures) - 1, 16)
        let span = max(min(pause, Self.pauses.longest), min(least, 86_400_000_000))
        wait(transfer, .pausing(until: EventLoop.clock + span))
    }

    // MARK: Ends

    /// - Parameter attempt: holds the file that it has written until that has its name; nil: after a crash.
    private func land(_ transfer: Transfer, _ attempt: Attempt?) {
        transfer.activity = .landing
        // Landing puts it on the disk.
        if let attempt { transfer.record.synced = attempt.received }
        let (directory, record, file) = (store.directory, transfer.record, attempt?.file)
        store.run { () -> TargetFile.Failure? in
            do throws(TargetFile.Failure) {
                try TargetFile.land(record, received: file) { inode throws(KernelFailure) in
                    var landing = record
                    landing.stage = .landing
                    landing.inode = inode
                    try DurableFile.write(landing.bytes, to: String(record.number), in: directory)
                }
                return nil
            } catch {
                return error
            }
        } then: { [unowned self] failure in
            withExtendedLifetime(attempt) {}
            transfer.activity = .none
            guard let failure else { return finish(transfer) }
            transfer.record.stage = .waiting
            // Parts of two entities under one tag, or of a file that was damaged: once more, from the beginning.
            if failure.word == .hash, transfer.isContinued { return discard(transfer, failure.sentence) }
            fail(transfer, failure.word, failure.sentence)
            schedule()
        }
    }

    private func finish(_ transfer: Transfer) {
        transfer.record.stage = .finished
        if transfer.record.total == 0 { transfer.record.total = transfer.record.received }
        end(transfer)
    }

    private func fail(_ transfer: Transfer, _ word: TransferError, _ sentence: String) {
        transfer.record.stage = .failed
        transfer.record.error = "\(word.rawValue): \(sentence)"
        // With these, what was received is of no use, or in the way.
        if [.noSpace, .hash, .size].contains(word) { transfer.record.tag = "" }
        end(transfer)
    }

    private func end(_ transfer: Transfer) {
        transfer.record.ended = Clock.realMicroseconds
        transfer.activity = .recording
        // Bytes of no use take no room.
        let record = transfer.record
        if record.stage == .failed, record.tag.isEmpty {
            store.run {
                TargetFile.removeTemporary(record)
            } then: {
            }
        }
        store.save(record) { [unowned self] _ in
            transfer.activity = .none
            changed(transfer, [.state, .waitsFor, .received, .total, .status, .error])
            ended(transfer)
            schedule()
        }
    }

    /// The program is about to end in an orderly way: what was received is put on the disk.
    func close() {
        for transfer in transfers.values {
            guard let attempt = transfer.attempt else { continue }
            engine.stop(attempt)
            keep(attempt, of: transfer)
            sync(transfer, attempt)
        }
        while store.pending > 0, store.worker.wait(until: EventLoop.clock + 5_000_000) {
            store.worker.complete()
        }
    }
}

extension Transfer {
    var isRecording: Bool {
        if case .recording = activity { true } else { false }
    }
}
