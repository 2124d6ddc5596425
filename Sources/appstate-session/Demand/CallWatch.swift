import AppStateBus
import Glibc
import Linux
import Systemd

/// Tells that somebody calls a suspended application on the session bus.
///
/// The bus shows such calls to a connection that has become a monitor (D-Bus specification, "BecomeMonitor"), with rules
/// that let nothing else through. A monitor's rules are for good and it can ask nothing, so each set of suspended
/// applications has a monitor of its own; questions go through another connection.
final class CallWatch {
    private let address: String
    private let loop: EventLoop
    private let journal: Journal
    private let needed: (_ pid: Int32, _ caller: Int32) -> Void
    private let proc = Proc()
    private var settled: ((Bool) -> Void)?
    /// For questions; while there is something to ask.
    private var bus: Bus?
    /// The processes of connections. No name of a connection is given twice.
    private var processes: [String: Int32] = [:]
    private var questions: [String: Slot] = [:]
    private var listing: Slot?
    /// Questions whose a name in a call is, by their number.
    private var names: [UInt64: Slot] = [:]
    private var lastName: UInt64 = 0
    private var suspended: Set<Int32> = []
    private var monitor: Monitor?
    private var next: Monitor?
    /// The set has changed while the monitor for an earlier one was being made.
    private var isStale = false

    /// A bus may allow a connection only so many answers at once; of a session bus it is 50,000 with dbus-daemon.
    private static let mostConnections = 4_096
    /// Questions whose a name in a call is, at once.
    private static let mostNames = 64

    private final class Monitor {
        let bus: Bus
        /// The application's process, by its connections.
        let targets: [String: Int32]
        var slots: [Slot] = []

        init(_ bus: Bus, _ targets: [String: Int32]) {
            self.bus = bus
            self.targets = targets
        }
    }

    /// - Parameters:
    ///   - address: of the session bus.
    ///   - settled: called once: whether the bus lets us see calls.
    ///   - needed: gets the process that was called, and the caller's, 0 where that is not known.
    init(
        address: String, loop: EventLoop, journal: Journal, settled: @escaping (Bool) -> Void,
        needed: @escaping (_ pid: Int32, _ caller: Int32) -> Void
    ) {
        self.address = address
        self.loop = loop
        self.journal = journal
        self.settled = settled
        self.needed = needed
        // Of nobody: only whether we may.
        become([:])
    }

    /// The processes of the suspended applications, each the main one.
    func watch(_ suspended: Set<Int32>) {
        guard suspended != self.suspended else { return }
        self.suspended = suspended
        proceed()
    }

    // MARK: Who is connected

    private func proceed() {
        guard next == nil, listing == nil, questions.isEmpty else {
            isStale = true
            return
        }
        isStale = false
        guard !suspended.isEmpty else {
            monitor = nil
            return
        }
        do throws(BusFailure) {
            let bus = try connection()
            listing = try bus.callAsync(try bus.newDriverCall("ListNames")) { [unowned self] reply in
                listing = nil
                let names = (try? reply.readStrings()) ?? []
                let connections = names.filter { $0.hasPrefix(":") }.prefix(Self.mostConnections)
                processes = processes.filter { connections.contains($0.key) }
                for name in connections where processes[name] == nil { ask(bus, name) }
                if questions.isEmpty { haveAsked() }
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func connection() throws(BusFailure) -> Bus {
        if let bus, bus.isOpen { return bus }
        let bus = try Bus.open(address: address)
        try bus.attach(to: loop)
        // The session ends, or its bus is restarted: what was known of it is of no use.
        try bus.onDisconnect { [unowned self] in
            (processes, questions, listing, names) = ([:], [:], nil, [:])
            (monitor, next) = (nil, nil)
        }
        self.bus = bus
        return bus
    }

    private func ask(_ bus: Bus, _ name: String) {
        do throws(BusFailure) {
            questions[name] = try bus.askProcess(of: name) { [unowned self] pid in
                questions[name] = nil
                processes[name] = pid ?? 0
                if questions.isEmpty, listing == nil { haveAsked() }
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }

    private func haveAsked() {
        if isStale { return proceed() }
        var targets: [String: Int32] = [:]
        for (name, pid) in processes {
            targets[name] = application(of: pid, among: suspended)
        }
        if targets.isEmpty { monitor = nil } else { become(targets) }
    }

    // MARK: The monitor

    private func become(_ targets: [String: Int32]) {
        do throws(BusFailure) {
            let bus = try Bus.open(address: address, isMonitor: true)
            let monitor = Monitor(bus, targets)
            next = monitor
            try bus.attach(to: loop)
            monitor.slots.append(
                try bus.addFilter { [unowned self, unowned monitor] message in
                    if message.isMethodCall { heard(message, by: monitor) }
                    return false
                })
            let message = try bus.newCall(
                destination: Bus.driver, path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus.Monitoring", member: "BecomeMonitor")
            // Without a rule it would see all.
            let names = targets.isEmpty ? [":0.0"] : targets.keys.sorted()
            try message.append(strings: names.map { "type='method_call',destination='\($0)'" })
            try message.append(UInt32(0))
            monitor.slots.append(
                try bus.callAsync(message) { [unowned self] reply in
                    let error = reply.error
                    if let error { journal.log(.notice, "calls on the session bus are not seen: \(error)") }
                    haveBecome(error == nil)
                })
        } catch {
            journal.log(.notice, "calls on the session bus are not seen: \(error)")
            haveBecome(false)
        }
    }

    private func haveBecome(_ isMonitor: Bool) {
        if isMonitor, let next, !next.targets.isEmpty { monitor = next }
        next = nil
        settled?(isMonitor)
        settled = nil
        if isStale { proceed() }
    }

    private func heard(_ message: borrowing Message, by monitor: Monitor) {
        guard let destination = message.destination else { return }
        let sender = message.sender
        if let pid = monitor.targets[destination] { return need(pid, sender) }
        // A well-known name. With one application there is nothing to ask.
        let pids = Set(monitor.targets.values)
        if pids.count == 1, let pid = pids.first { return need(pid, sender) }
        identify(destination) { [unowned self] owner in
            // Where it cannot be asked whose the name is, any of them may be the one that is needed.
            guard let owner else { return pids.forEach { need($0, sender) } }
            if let pid = application(of: owner, among: pids) { need(pid, sender) }
        }
    }

    private func need(_ pid: Int32, _ caller: String?) {
        guard let caller else { return needed(pid, 0) }
        identify(caller) { [unowned self] in needed(pid, $0 ?? 0) }
    }

    /// A helper's connection is its application's.
    private func application(of pid: Int32, among mains: Set<Int32>) -> Int32? {
        mains.contains(pid) ? pid : proc.lineage(of: pid).map(\.pid).first(where: mains.contains)
    }

    /// Finds the process behind a name.
    ///
    /// - Parameter answered: gets its pid, 0: it has none; nil: too much is being asked already. A call is never lost to
    ///   that.
    private func identify(_ name: String, _ answered: @escaping (_ pid: Int32?) -> Void) {
        if let known = processes[name] { return answered(known) }
        guard let bus, names.count < Self.mostNames else { return answered(nil) }
        lastName += 1
        let number = lastName
        do throws(BusFailure) {
            names[number] = try bus.askProcess(of: name) { [unowned self] pid in
                names[number] = nil
                answered(pid ?? 0)
            }
        } catch {
            journal.log(.debug, "\(error)")
            answered(nil)
        }
    }
}
