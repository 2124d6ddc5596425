internal import AppStateBus
internal import AppStateContract
internal import Glibc

/// The one connection to the bus, and the daemon at its other end.
///
/// Nothing here waits for an answer: an application whose daemon hangs or is gone goes on.
@MainActor
final class Line {
    /// What becomes of the daemon and the bus.
    enum News {
        /// Somebody has the daemon's name now.
        case daemonIsThere
        /// Nobody has it.
        case daemonIsGone
        /// The bus itself is gone.
        case busIsGone
    }

    /// So long is an answer waited for, in microseconds: a save to a slow disk takes its time, too.
    static let patience: UInt64 = 10_000_000

    private let loop: EventLoop
    private var bus: Bus?
    private var slots: [Slot] = []
    private var calls: [UInt64: (slot: Slot, failed: (ApplicationError) -> Void)] = [:]
    private var lastCall: UInt64 = 0
    /// Who answered as the daemon last: only its signals count. Anybody may send us one.
    private var daemon: String?
    /// Gets what becomes of the daemon and the bus.
    var told: (News) -> Void = { _ in }
    /// Gets each signal of the daemon's about an application.
    var heard: (borrowing Message) -> Void = { _ in }

    init(loop: EventLoop) {
        self.loop = loop
    }

    /// Connects to the bus. What was there before is let go.
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
            guard let self, message.isSignal, message.interface == BusNames.application, let daemon,
                message.sender == daemon
            else { return false }
            heard(message)
            return true
        }
    }

    private func watch(_ bus: Bus) throws(BusFailure) -> Slot {
        let failed: (MethodError) -> Void = { Log.say("the bus does not tell of appstated: \($0)") }
        return try bus.watchOwner(of: BusNames.service, failed: failed) { [weak self] _, owner in
            // The bus says so. What it says before we know our object again counts, too.
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

    /// Calls a method of the daemon's. Either `answered` or `failed` is called, once and not from within.
    ///
    /// - Parameters:
    ///   - timeout: microseconds.
    ///   - body: appends the arguments.
    ///   - answered: gets the answer.
    ///   - failed: gets the daemon's error, or why there is no answer.
    /// - Throws: why the call could not be made; neither is called then.
    func call(
        _ path: String, _ interface: String, _ member: String, timeout: UInt64 = patience,
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
        let slot = try bus.callAsync(message, timeout: timeout) { [weak self] reply in
            self?.forget(number)
            if let error = reply.error { failed(ApplicationError(error)) } else { answered(reply) }
        }
        calls[number] = (slot, failed)
    }

    /// Apart from the answer: Swift 6.0.3 crashes where a dictionary of `self` is changed while a message is borrowed.
    private func forget(_ number: UInt64) { calls[number] = nil }

    /// This answer is the daemon's: its sender's signals count from now on.
    func trust(_ answer: borrowing Message) { daemon = answer.sender }

    /// Waits until all that was sent is written. For the moment before the process ends.
    func flush() { try? bus?.flush() }
}
