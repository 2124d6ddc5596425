import AppStateBus
import Systemd

/// A monitor of the session bus (D-Bus specification, "BecomeMonitor"): it receives the messages that are sent to others
/// and match its rules.
///
/// A monitor can do nothing else, and cannot change its rules: another one takes its place. For a moment there are both:
/// no message is lost, and some arrive twice.
final class SessionMonitor {
    /// The match rules.
    var rules: [String] {
        didSet { if rules != oldValue { renew() } }
    }
    /// The bus shows messages to no client.
    private(set) var isRefused = false
    private let session: SessionBus
    private let loop: EventLoop
    private let journal: Journal
    private let heard: (borrowing Message) -> Void
    private let changed: (MethodError?) -> Void
    private var current: Monitor?
    private var next: Monitor?
    private var retry: Retry?

    private final class Monitor {
        let bus: Bus
        var slots: [Slot] = []

        init(_ bus: Bus) { self.bus = bus }
    }

    /// - Parameters:
    ///   - heard: takes a method call or a signal.
    ///   - changed: a monitor with the last rules is there; or gets why it is not, or is no longer.
    init(
        session: SessionBus, loop: EventLoop, journal: Journal, rules: [String],
        heard: @escaping (borrowing Message) -> Void, changed: @escaping (MethodError?) -> Void
    ) throws(BusFailure) {
        self.session = session
        self.loop = loop
        self.journal = journal
        self.rules = rules
        self.heard = heard
        self.changed = changed
        retry = try Retry(loop) { [unowned self] in renew() }
        try session.follow { [weak self] bus in
            guard let self else { return }
            (current, next, isRefused) = (nil, nil, false)
            if bus != nil { renew() }
        }
    }

    private func renew() {
        guard !isRefused, let address = session.address else { return }
        do throws(BusFailure) {
            let bus = try Bus.open(address: address, isMonitor: true)
            let monitor = Monitor(bus)
            try bus.attach(to: loop)
            // By the bus, for example because the monitor reads too slowly.
            try bus.onDisconnect { [unowned self, unowned monitor] in lose(monitor) }
            monitor.slots = [
                try bus.addFilter { [unowned self] message in
                    if message.isMethodCall || message.isSignal { heard(message) }
                    return false
                },
                try bus.callAsync(bus.newMonitorCall(rules)) { [unowned self, unowned monitor] reply in
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
        changed(error)
    }

    private func lose(_ lost: Monitor) {
        let error = MethodError("org.freedesktop.DBus.Error.NoReply", "the connection is lost")
        if lost === next { return settle(lost, error) }
        guard lost === current else { return }
        current = nil
        if next == nil { retry?.schedule() }
        changed(error)
    }
}
