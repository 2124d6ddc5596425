import AppStateBus
import Systemd

/// The monitor of the session bus (D-Bus specification, "BecomeMonitor"): it receives the messages that are sent to others
/// and match the rules of its listeners.
///
/// A monitor can do nothing else, and cannot change its rules: another one takes its place. For a moment there are both:
/// no message is lost, and some arrive twice.
final class SessionMonitor {
    /// Gets messages for as long as it exists.
    final class Listener {
        /// The match rules.
        var rules: [String] {
            didSet { if rules != oldValue { monitor?.renew() } }
        }
        fileprivate let heard: (borrowing Message) -> Void
        fileprivate let changed: (MethodError?) -> Void
        fileprivate weak var monitor: SessionMonitor?

        fileprivate init(
            _ rules: [String], _ heard: @escaping (borrowing Message) -> Void,
            _ changed: @escaping (MethodError?) -> Void, _ monitor: SessionMonitor
        ) {
            (self.rules, self.heard, self.changed, self.monitor) = (rules, heard, changed, monitor)
        }
    }

    private struct Reference {
        weak var listener: Listener?
    }

    /// The bus shows messages to no client.
    private(set) var isRefused = false
    private let session: SessionBus
    private let loop: EventLoop
    private let journal: Journal
    private var listeners: [Reference] = []
    private var current: Monitor?
    private var next: Monitor?
    private var retry: Retry?

    private final class Monitor {
        let bus: Bus
        var slots: [Slot] = []

        init(_ bus: Bus) { self.bus = bus }
    }

    init(session: SessionBus, loop: EventLoop, journal: Journal) throws(BusFailure) {
        self.session = session
        self.loop = loop
        self.journal = journal
        retry = try Retry(loop) { [unowned self] in renew() }
        try session.follow { [weak self] bus in
            guard let self else { return }
            (current, next, isRefused) = (nil, nil, false)
            if bus != nil { renew() }
        }
    }

    /// Whether the bus shows messages now.
    var isThere: Bool { current != nil }

    /// - Parameters:
    ///   - heard: takes a method call, a signal or an error, whether it matches these rules or those of another listener.
    ///   - changed: a monitor with the last rules is there; or gets why it is not, or is no longer.
    func listen(
        rules: [String], heard: @escaping (borrowing Message) -> Void,
        changed: @escaping (MethodError?) -> Void
    ) -> Listener {
        let listener = Listener(rules, heard, changed, self)
        listeners = listeners.filter { $0.listener != nil } + [Reference(listener: listener)]
        renew()
        return listener
    }

    private func tell(_ body: (Listener) -> Void) {
        for reference in listeners { reference.listener.map(body) }
    }

    private func renew() {
        guard !isRefused, let address = session.address else { return }
        do throws(BusFailure) {
            let bus = try Bus.open(address: address, isMonitor: true)
            let monitor = Monitor(bus)
            try bus.attach(to: loop)
            // By the bus, for example because the monitor reads too slowly.
            try bus.onDisconnect { [unowned self, unowned monitor] in lose(monitor) }
            let rules = listeners.flatMap { $0.listener?.rules ?? [] }
            monitor.slots = [
                try bus.addFilter { [unowned self] message in
                    guard message.isMethodCall || message.isSignal || message.isError else { return false }
                    for reference in listeners { reference.listener?.heard(message) }
                    return false
                },
                // Without a rule it would receive all messages.
                try bus.callAsync(bus.newMonitorCall(rules.isEmpty ? ["destination=':0.0'"] : rules)) {
                    [unowned self, unowned monitor] reply in
                    settle(monitor, reply.error)
                },
            ]
            next = monitor
        } catch {
            journal.log(.debug, "\(error)")
            retry?.schedule()
        }
    }

    private func settle(_ made: Monitor, _ error: MethodError?) {
        guard next === made else { return }
        if let error {
            next = nil
            isRefused = !error.isNoReply
            if !isRefused { retry?.schedule() }
        } else {
            // The former monitor has received what came before this answer.
            while (try? current?.bus.process()) == true {}
            (current, next) = (made, nil)
            retry?.hasSucceeded()
        }
        tell { $0.changed(error) }
    }

    private func lose(_ lost: Monitor) {
        let error = MethodError("org.freedesktop.DBus.Error.NoReply", "the connection is lost")
        if lost === next { return settle(lost, error) }
        guard lost === current else { return }
        current = nil
        if next == nil { retry?.schedule() }
        tell { $0.changed(error) }
    }
}
