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
    private var callers: [UInt64: Slot] = [:]
    private var lastCaller: UInt64 = 0
    private var suspended: Set<Int32> = []
    private var monitor: Monitor?
    private var next: Monitor?
    /// The set has changed while the monitor for an earlier one was being made.
    private var isStale = false

    /// A bus may allow a connection only so many answers at once; of a session bus it is 50,000 with dbus-daemon.
    private static let mostConnections = 4_096
    /// Callers that are asked for at once.
    private static let mostCallers = 64

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
            (processes, questions, listing, callers) = ([:], [:], nil, [:])
            (monitor, next) = (nil, nil)
        }
        self.bus = bus
        return bus
    }

    private func ask(_ bus: Bus, _ name: String) {
        do throws(BusFailure) {
            let message = try bus.newDriverCall("GetConnectionUnixProcessID")
            try message.append(name)
            questions[name] = try bus.callAsync(message) { [unowned self] reply in
                questions[name] = nil
                processes[name] = (try? reply.readUInt32()).flatMap(Int32.init(exactly:)) ?? 0
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
            // A helper's connection is its application's.
            let line = suspended.contains(pid) ? [pid] : proc.lineage(of: pid).map(\.pid)
            if let main = line.first(where: suspended.contains) { targets[name] = main }
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
        if let pid = monitor.targets[destination] { return need(pid, message.sender) }
        // A well-known name: whose it is, is asked. With one application there is nothing to ask.
        let pids = Set(monitor.targets.values)
        if pids.count == 1, let pid = pids.first { return need(pid, message.sender) }
        let sender = message.sender
        request("GetNameOwner", of: destination) { [unowned self] reply in
            guard let owner = try? reply.readString(), let pid = monitor.targets[owner] else { return }
            need(pid, sender)
        }
    }

    private func need(_ pid: Int32, _ caller: String?) {
        if let caller, let known = processes[caller] { return needed(pid, known) }
        guard let caller else { return needed(pid, 0) }
        request("GetConnectionUnixProcessID", of: caller) { [unowned self] reply in
            needed(pid, (try? reply.readUInt32()).flatMap(Int32.init(exactly:)) ?? 0)
        }
    }

    /// Asks the bus about a name.
    private func request(
        _ member: String, of name: String, _ answered: @escaping (borrowing Message) -> Void
    ) {
        guard let bus, callers.count < Self.mostCallers else { return }
        lastCaller += 1
        let number = lastCaller
        do throws(BusFailure) {
            let message = try bus.newDriverCall(member)
            try message.append(name)
            callers[number] = try bus.callAsync(message) { [unowned self] reply in
                callers[number] = nil
                answered(reply)
            }
        } catch {
            journal.log(.debug, "\(error)")
        }
    }
}
