internal import AppStateBus
internal import AppStateContract
internal import Glibc

/// The only connection to the bus, and the daemon at its other end.
///
/// Nothing here waits for an answer, so the application continues if the daemon hangs or is gone.
@MainActor
final class Line {
    /// Changes of the daemon, the bus, and what we hear of them.
    enum News {
        /// A process owns the daemon's name now.
        case daemonIsThere
        /// No process owns it.
        case daemonIsGone
        /// The bus itself is gone.
        case busIsGone
        /// The daemon has withheld signals from us, because we did not read them.
        case signalsAreLost
    }

    private let loop: EventLoop
    /// How long to wait for an answer, in microseconds.
    private let timeout: UInt64
    private var bus: Bus?
    private var slots: [Slot] = []
    private var calls: [UInt64: (slot: Slot, failed: (ApplicationError) -> Void)] = [:]
    private var lastCall: UInt64 = 0
    /// The connection that last answered as the daemon. Only its signals count, because any process may send us one.
    private var daemon: String?
    /// Receives these changes.
    var told: (News) -> Void = { _ in }
    /// Receives each signal of the daemon about an application.
    var heard: (borrowing Message) -> Void = { _ in }

    init(loop: EventLoop, timeout: UInt64) {
        self.loop = loop
        self.timeout = timeout
    }

    /// Connects to the bus. Drops the connection that existed before.
    func open() throws(BusFailure) {
        close()
        let bus = try Bus.system()
        try bus.attach(to: loop)
        try bus.onDisconnect { [weak self] in self?.told(.busIsGone) }
        slots = [try filter(bus), try watch(bus)]
        self.bus = bus
    }

    private func filter(_ bus: Bus) throws(BusFailure) -> Slot {
        try bus.addFilter { [weak self] message in
            guard let self, message.isSignal, let daemon, message.sender == daemon else { return false }
            if message.interface == BusNames.application {
                heard(message)
                return true
            }
            guard message.interface == BusNames.manager, message.member == ManagerSignal.resync.rawValue
            else { return false }
            told(.signalsAreLost)
            return true
        }
    }

    private func watch(_ bus: Bus) throws(BusFailure) -> Slot {
        let failed: (MethodError) -> Void = { Log.say("the bus does not report on appstated: \($0)") }
        return try bus.watchOwner(of: BusNames.service, failed: failed) { [weak self] _, owner in
            // The bus itself reports this. Signals that the daemon sends before we know our object again
            // count, too.
            self?.daemon = owner
            self?.told(owner == nil ? .daemonIsGone : .daemonIsThere)
        }
    }

    private func close() {
        slots = []
        daemon = nil
        let abandoned = calls.values.map(\.failed)
        calls = [:]
        bus = nil
        for failed in abandoned { failed(.alone) }
    }

    /// Calls a method of the daemon. Either `answered` or `failed` is called, once and not from within this call.
    ///
    /// - Parameters:
    ///   - timeout: microseconds; nil: as for any call.
    ///   - body: appends the arguments.
    ///   - answered: receives the answer.
    ///   - failed: receives the daemon's error, or why there is no answer.
    /// - Throws: why the call could not be made; neither closure is called then.
    func call(
        _ path: String, _ interface: String, _ member: String, timeout: UInt64? = nil,
        _ body: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (ApplicationError) -> Void
    ) throws(BusFailure) {
        guard let bus else {
            throw BusFailure(operation: "call", subject: member, errno: ENOTCONN, message: "there is no bus")
        }
        let message = try bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        lastCall += 1
        let number = lastCall
        let slot = try bus.callAsync(message, timeout: timeout ?? self.timeout) { [weak self] reply in
            self?.forget(number)
            if let error = reply.error { failed(ApplicationError(error)) } else { answered(reply) }
        }
        calls[number] = (slot, failed)
    }

    /// A method of its own: Swift 6.0.3 crashes if a dictionary of `self` is changed while a message is borrowed.
    private func forget(_ number: UInt64) { calls[number] = nil }

    /// This answer came from the daemon: its sender's signals count from now on.
    func trust(_ answer: borrowing Message) { daemon = answer.sender }

    /// Waits until everything that was sent is written, but not beyond the deadline. Used just before the process ends:
    /// nothing is heard any longer.
    func flush(until deadline: UInt64) {
        told = { _ in }
        heard = { _ in }
        calls = [:]
        slots = []
        try? bus?.flush(until: deadline)
    }
}
