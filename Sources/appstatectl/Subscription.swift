import AppStateBus
import AppStateContract

/// A connection that is subscribed to the daemon, and again to each daemon that comes after it, for example after an
/// upgrade.
final class Subscription {
    private let client: Client
    let loop: EventLoop
    /// The daemon to which the connection is subscribed.
    private var daemon: String?
    private var slots: [Slot] = []
    private var subscribed: (_ again: Bool) throws -> Void = { _ in }

    init(_ client: Client) throws {
        self.client = client
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
        try client.bus.attach(to: loop)
        let code = try loop.run()
        slots = []
        self.subscribed = { _ in }
        return code
    }

    /// Ends `run` with this exit status.
    func end(_ code: Int32) { loop.exit(code: code) }

    /// Ends `run` with the status for a failure, and says why.
    func leave(_ sentence: String, _ verdict: Verdict = .refused) {
        Terminal.warn("appstatectl: \(sentence)")
        end(verdict.rawValue)
    }

    private func subscribe() throws {
        daemon = try client.call(ManagerMethod.subscribe).sender
    }

    private func ownerChanged(to owner: String?) {
        // Our own call may have started this daemon.
        if owner == daemon { return }
        guard owner != nil else {
            return Terminal.warn("appstatectl: appstated has left the bus; waiting for it to return")
        }
        do {
            try subscribe()
            try subscribed(true)
        } catch let failure as Failure where failure.verdict == .notRunning {
            // It has already left again. The next owner is announced, too.
            return
        } catch {
            leave("\((error as? Failure)?.sentence ?? "\(error)")")
        }
    }
}
