import AppStateBus
import AppStateContract
import Glibc

/// A connection that is subscribed to the daemon, and again to each daemon that comes after it, for example after an
/// upgrade.
final class Subscription {
    private let client: Client
    let loop: EventLoop
    /// The daemon to which the connection is subscribed.
    private var daemon: String?
    private var slots: [Slot] = []
    private var subscribed: (_ again: Bool) throws -> Void = { _ in }
    private let interrupts: [Int32]
    /// Gets sentences for the user.
    var warn: (String) -> Void = Terminal.warn
    private var watched: [Source] = []

    /// - Parameter interrupts: the signals that end `run` with 0. While a call waits for its answer, which may take
    ///   minutes, the loop does not run: then they end the program, as they do by default.
    init(_ client: Client, interrupts: [Int32] = []) throws {
        self.client = client
        self.interrupts = interrupts
        loop = try EventLoop()
    }

    /// Runs until `end(_:)`, or until the bus goes away (4).
    ///
    /// - Parameters:
    ///   - subscribed: called after each subscription. Again: signals may have been missed.
    ///   - heard: gets each signal of the daemon. The bus lets any user send signals to this connection.
    /// - Returns: the exit status.
    func run(
        subscribed: @escaping (_ again: Bool) throws -> Void, heard: @escaping (borrowing Message) -> Void
    ) throws -> Int32 {
        self.subscribed = subscribed
        slots.append(
            try client.bus.addFilter { [unowned self] message in
                if message.isSignal, message.sender == daemon { heard(message) }
                return false
            })
        slots.append(
            try client.bus.watchOwner(
                of: BusNames.service,
                failed: { [unowned self] in leave("the bus does not report on \(BusNames.service): \($0)") },
                handler: { [unowned self] _, owner in ownerChanged(to: owner) }))
        try client.bus.onDisconnect { [unowned self] in leave("the bus has gone away", .notRunning) }
        try subscribe()
        try subscribed(false)
        try watchInterrupts()
        try client.bus.attach(to: loop)
        let code = try loop.run()
        slots = []
        self.subscribed = { _ in }
        return code
    }

    /// From now on the signals end `run`, until it subscribes again. `subscribed` may do this earlier than `run`, after
    /// its last call.
    func watchInterrupts() throws {
        guard watched.isEmpty else { return }
        watched = try interrupts.map { signal in
            try loop.onSignal(signal) { [unowned self] in end(0) }
        }
    }

    private func leaveInterruptsAlone() {
        watched = []
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in interrupts { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    }

    /// Ends `run` with this exit status.
    func end(_ code: Int32) { loop.exit(code: code) }

    /// Ends `run` with the status for a failure, and says why.
    func leave(_ sentence: String, _ verdict: Verdict = .refused) {
        warn("appstatectl: \(sentence)")
        end(verdict.rawValue)
    }

    func leave(_ error: any Error) { leave((error as? Failure)?.sentence ?? "\(error)") }

    private func subscribe() throws {
        daemon = try client.call(ManagerMethod.subscribe).sender
    }

    private func ownerChanged(to owner: String?) {
        // Our own call may have started this daemon.
        if owner == daemon { return }
        guard owner != nil else {
            return warn("appstatectl: appstated has left the bus; waiting for it to return")
        }
        do {
            leaveInterruptsAlone()
            do {
                try subscribe()
                try subscribed(true)
            } catch let failure as Failure where failure.verdict == .notRunning {
                // It has already left again. The next owner is announced, too.
            }
            try watchInterrupts()
        } catch {
            leave(error)
        }
    }
}
