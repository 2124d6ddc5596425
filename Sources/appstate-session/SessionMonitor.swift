import AppStateBus
import Systemd

/// Somebody who needs messages on the session bus that are sent to others.
protocol SessionListener: AnyObject {
    /// The match rules for these messages. Called when a monitor with these rules is made.
    func rules() -> [String]
    /// Takes a message that matches the rules of any listener.
    func heard(_ message: borrowing Message)
    /// A monitor with the last rules is there.
    ///
    /// - Parameter failure: why it is not, or is no longer; nil: it is. Nothing is heard without a monitor.
    func monitored(_ failure: MethodError?)
}

/// The agent's one monitor of the session bus (D-Bus specification, "BecomeMonitor"), with the rules of all listeners,
/// which let nothing else through.
///
/// A monitor can do nothing else, and cannot change its rules: another one takes its place. For a moment there are both,
/// so that no message is lost.
final class SessionMonitor {
    private let session: SessionBus
    private let loop: EventLoop
    private let journal: Journal
    private var listeners: [Listener] = []
    private var current: Monitor?
    private var next: Monitor?
    /// The rules have changed while a monitor was being made.
    private var isStale = false
    /// The bus shows messages to no client.
    private var isRefused = false
    private var retry: Retry?
    /// The messages that the current monitor has received since the next one is being made.
    private var heard: Set<MessageID> = []

    private final class Monitor {
        let bus: Bus
        var slots: [Slot] = []

        init(_ bus: Bus) { self.bus = bus }
    }

    private struct Listener {
        weak var listener: (any SessionListener)?
    }

    private struct MessageID: Hashable {
        let sender: String
        let serial: UInt64
    }

    /// The most messages of a former monitor that are handled when another one replaces it.
    private static let mostLeft = 256
    /// Those that only the former monitor has received are forgotten at this number.
    private static let mostHeard = 1_024

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

    /// Whether the bus shows what the listeners need.
    var isThere: Bool { current != nil }

    func add(_ listener: any SessionListener) {
        listeners.append(Listener(listener: listener))
        renew()
    }

    /// Makes a monitor with the present rules.
    func renew() {
        guard next == nil else {
            isStale = true
            return
        }
        isStale = false
        guard !isRefused, !listeners.isEmpty, let address = session.address else { return }
        do throws(BusFailure) {
            let bus = try Bus.open(address: address, isMonitor: true)
            let monitor = Monitor(bus)
            try bus.attach(to: loop)
            // By the bus, for example because the monitor reads too slowly.
            try bus.onDisconnect { [unowned self, unowned monitor] in lose(monitor) }
            monitor.slots.append(
                try bus.addFilter { [unowned self, unowned monitor] message in
                    if message.isMethodCall || message.isSignal || message.isError { take(message, from: monitor) }
                    return false
                })
            let rules = listeners.flatMap { $0.listener?.rules() ?? [] }
            if heard.count > Self.mostHeard { heard = [] }
            monitor.slots.append(
                // Without a rule it would receive all messages.
                try bus.callAsync(bus.newMonitorCall(rules.isEmpty ? ["destination=':0.0'"] : rules)) {
                    [unowned self, unowned monitor] reply in
                    settle(monitor, reply.error)
                })
            next = monitor
        } catch {
            journal.log(.debug, "\(error)")
            retry?.schedule()
        }
    }

    private func settle(_ made: Monitor, _ error: MethodError?) {
        guard next === made else { return }
        defer { if isStale { renew() } }
        if let error {
            next = nil
            isRefused = !error.isNoReply
            if !isRefused { retry?.schedule() }
        } else {
            // The former monitor has received what came before this answer, and perhaps what follows it.
            var left = Self.mostLeft
            while left > 0, (try? current?.bus.process()) == true { left -= 1 }
            (current, next) = (made, nil)
            retry?.hasSucceeded()
        }
        for listener in listeners { listener.listener?.monitored(error) }
    }

    private func lose(_ lost: Monitor) {
        let error = MethodError("org.freedesktop.DBus.Error.NoReply", "the connection is lost")
        if lost === next { return settle(lost, error) }
        guard lost === current else { return }
        current = nil
        if next == nil { retry?.schedule() }
        for listener in listeners { listener.listener?.monitored(error) }
    }

    private func take(_ message: borrowing Message, from monitor: Monitor) {
        if let sender = message.sender, let serial = message.serial {
            let id = MessageID(sender: sender, serial: serial)
            if monitor === current, heard.remove(id) != nil { return }
            if next != nil { heard.insert(id) }
        }
        for listener in listeners { listener.listener?.heard(message) }
    }
}
