import AppStateBus
import AppStateContract
import Systemd

/// A part of the agent that sends calls to the daemon.
protocol DaemonSpeaker: AnyObject {
    /// Sends the calls that are due now, if any.
    func speak() throws
    /// Forgets what the daemon knows about us, and what we know about it. Both are uncertain from now on,
    /// because it is another daemon, or has not answered.
    func forget()
}

/// The connection to the owner of the daemon's name.
///
/// Nothing is sent while an answer is awaited, and everything that happens meanwhile becomes one change. This
/// way neither the bus nor a slow daemon is flooded, and the last state always arrives.
final class DaemonLine {
    /// Set once, by the speaker that owns the line.
    weak var speaker: (any DaemonSpeaker)?
    /// The daemon's connection, once it is known.
    private(set) var daemon: String?
    /// The name has no owner, or the daemon has refused us: nothing is sent until the name gets an owner. At the
    /// beginning there has been no answer yet, and the first call may start the daemon.
    private(set) var isAbsent = false
    /// A call was refused, and will be tried again in a moment.
    private var isResting = false
    private let bus: Bus
    private let journal: Journal
    private var awaited = 0
    private var calls: [Slot] = []
    private var ownerChange: Slot?
    private var retry: Retry?

    /// The number of attempts since a call was last accepted that may be refused because of a limit.
    private var attempts = 0

    private static let mostAttempts = 3

    /// - Parameter deaf: called if the bus refuses a match rule for the daemon.
    init(
        bus: Bus, loop: EventLoop, deaf: @escaping (MethodError) -> Void, journal: Journal
    ) throws(BusFailure) {
        self.bus = bus
        self.journal = journal
        retry = try Retry(loop, after: 2_000_000) { [unowned self] in
            isResting = false
            proceed()
        }
        ownerChange = try bus.watchOwner(of: BusNames.service, failed: deaf) { [unowned self] _, owner in
            daemon = owner
            begin(isAbsent: owner == nil)
            proceed()
        }
    }

    /// Makes the speaker send its calls, as soon as no answer is awaited and the daemon can be called.
    func proceed() {
        guard awaited == 0, !isAbsent, !isResting else { return }
        calls = []
        do {
            try speaker?.speak()
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    /// Calls a method of one of the daemon's objects. Several calls may be sent at once.
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
        // Only the first call starts the daemon. If the daemon we know has just gone, its stop is not undone.
        if daemon != nil { try message.forbidStart() }
        try write(message)
        let slot = try bus.callAsync(message) { [unowned self] reply in
            awaited -= 1
            if let error = reply.error {
                refused(error)
            } else {
                daemon = reply.sender
                retry?.reset()
                answered(reply)
            }
            proceed()
        }
        calls.append(slot)
        awaited += 1
    }

    /// Handles a refusal that is final: nothing more is sent until the name gets another owner.
    func refused(_ error: MethodError, _ sentence: String, _ level: Journal.Priority = .info) {
        // The daemon is slow or was replaced, so everything is sent again.
        if error.isNoReply {
            speaker?.forget()
            return
        }
        journal.log(level, "\(BusNames.service) \(sentence): \(error)")
        begin(isAbsent: true)
    }

    /// Handles a refusal because of a limit: too many calls of this user may be waiting at present. Only data
    /// that is refused again and again is too much. Calls that were sent together are one attempt.
    ///
    /// - Returns: as `tryAgain`; false after three attempts in a row, until `haveRoom` is called.
    func tryAgainForRoom(_ sentence: String, _ error: MethodError) -> Bool {
        guard ErrorName(rawValue: error.name) == .limitsExceeded else { return false }
        // Another of these calls was refused.
        if isResting { return true }
        guard attempts < Self.mostAttempts else { return false }
        return tryAgain(sentence, error)
    }

    /// A call that may be refused because of a limit was accepted.
    func haveRoom() { attempts = 0 }

    /// Handles a refusal.
    ///
    /// - Returns: whether the refusal may be temporary, for example because too many calls are in progress. If so, the
    ///   speaker sends its calls again after a pause.
    func tryAgain(_ sentence: String, _ error: MethodError) -> Bool {
        journal.log(.info, "\(BusNames.service) \(sentence): \(error)")
        guard error.isNoReply || ErrorName(rawValue: error.name) == .limitsExceeded else { return false }
        // Another of the calls that were sent together was refused.
        if isResting { return true }
        isResting = true
        attempts += 1
        retry?.schedule()
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
    /// A call to the daemon, to be filled and sent.
    func newCall<Name: MethodName>(
        _ method: Name, at path: String = BusNames.root
    ) throws(BusFailure) -> Message {
        try newCall(
            destination: BusNames.service, path: path, interface: Name.interface, member: method.rawValue)
    }
}
