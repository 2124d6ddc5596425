import AppStateBus
import AppStateContract
import Systemd

/// Whoever tells the daemon something, or asks it.
protocol DaemonSpeaker: AnyObject {
    /// Sends the calls that are due now, if any.
    func speak() throws
    /// What the daemon knows of us, and we of it, is uncertain from now on: it is another, or has not answered.
    func forget()
}

/// The line to whoever owns the daemon's name.
///
/// Nothing is sent while an answer is awaited; what happens meanwhile is one change. So neither the bus nor a daemon
/// that is slow is flooded, and the last state always comes through.
final class DaemonLine {
    /// Set once, by the speaker that keeps the line.
    weak var speaker: (any DaemonSpeaker)?
    /// The daemon's connection, once it is known.
    private(set) var daemon: String?
    /// Nobody owns the name, or nobody lets us speak: nothing is sent until it gets an owner. At the beginning nobody has
    /// answered yet, and the first call may start the daemon.
    private(set) var isAbsent = false
    /// A call was refused that is tried again in a moment.
    private var isResting = false
    private let bus: Bus
    private let journal: Journal
    private var awaited = 0
    private var calls: [Slot] = []
    private var ownerChange: Slot?
    private let loop: EventLoop
    private var retry: Timer?

    /// Until a call is tried again that was refused for a reason that may pass, in microseconds.
    private static let retryDelay: UInt64 = 2_000_000

    /// - Parameter deaf: called when the bus does not tell of the daemon.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, journal: Journal
    ) throws(BusFailure) {
        self.bus = bus
        self.loop = loop
        self.journal = journal
        retry = try loop.timer { [unowned self] in
            isResting = false
            proceed()
        }
        ownerChange = try bus.watchOwner(of: BusNames.service, failed: deaf) { [unowned self] _, owner in
            daemon = owner
            begin(isAbsent: owner == nil)
            proceed()
        }
    }

    /// Has the speaker speak, as soon as nothing is awaited and somebody listens.
    func proceed() {
        guard awaited == 0, !isAbsent, !isResting else { return }
        calls = []
        do {
            try speaker?.speak()
        } catch {
            // The connection is gone, which somebody else is told of.
            journal.log(.debug, "\(error)")
        }
    }

    /// Calls a method of one of the daemon's objects. Several may be called in one go.
    ///
    /// - Parameters:
    ///   - write: appends the arguments.
    ///   - refused: gets the error.
    ///   - answered: gets the reply.
    func call<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root,
        _ write: (borrowing Message) throws -> Void = { _ in },
        refused: @escaping (MethodError) -> Void,
        answered: @escaping (borrowing Message) -> Void = { _ in }
    ) throws {
        let message = try bus.newCall(method, at: path)
        try write(message)
        let slot = try bus.callAsync(message) { [unowned self] reply in
            awaited -= 1
            if let error = reply.error {
                refused(error)
            } else {
                daemon = reply.sender
                answered(reply)
            }
            proceed()
        }
        calls.append(slot)
        awaited += 1
    }

    /// Takes a refusal that is the daemon's last word: nothing more until the name gets another owner.
    func refused(_ error: MethodError, _ sentence: String, _ level: Journal.Priority = .info) {
        // It is slow, or was replaced: it is told anew.
        if error.isNoReply {
            speaker?.forget()
            return
        }
        journal.log(level, "\(BusNames.service) \(sentence): \(error)")
        begin(isAbsent: true)
    }

    /// Takes a refusal.
    ///
    /// - Returns: whether it may pass, because too much is under way, say: after a moment the speaker speaks again.
    func tryAgain(_ sentence: String, _ error: MethodError) -> Bool {
        journal.log(.info, "\(BusNames.service) \(sentence): \(error)")
        guard error.isNoReply || ErrorName(rawValue: error.name) == .limitsExceeded else { return false }
        isResting = true
        retry?.arm(at: loop.now + Self.retryDelay)
        return true
    }

    private func begin(isAbsent: Bool) {
        self.isAbsent = isAbsent
        isResting = false
        (awaited, calls) = (0, [])
        speaker?.forget()
    }
}

extension Bus {
    /// A call of the daemon, to fill and send.
    func newCall<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root
    ) throws(BusFailure) -> Message {
        try newCall(
            destination: BusNames.service, path: path, interface: Name.interface, member: method.rawValue)
    }
}
