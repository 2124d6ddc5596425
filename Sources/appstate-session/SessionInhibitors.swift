import AppStateBus
import Desktop
import Systemd

/// Finds the processes that keep the session from going idle or the machine from sleeping, through services of the
/// session bus.
///
/// An inhibitor of the session's end alone does not count: editors take it for unsaved changes, which are no work.
///
/// These services identify applications only by text, if at all. Therefore a monitor watches the calls to
/// them, and the bus is queried for the caller's process. Calls from the time before the monitor are not known.
final class SessionInhibitors: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private let monitor: SessionMonitor
    private var listener: SessionMonitor.Listener?
    /// For questions. Nil: there is no session bus.
    private var bus: Bus?
    private var services: [BusPeer] = []
    private var callers: [String: Caller] = [:]

    private struct Caller {
        var inhibitors: [Inhibitor] = []
        /// The serial of its last call: a call that arrives twice counts once.
        var last: UInt64 = 0
        /// Nil: the bus has not answered yet.
        var process: Int32?
        var slots: [Slot] = []
    }

    private struct Inhibitor {
        let service: String
        let interface: String
        /// Names the object through which an inhibitor of the portal ends.
        let token: String?
        /// The serial of the call that requested it.
        let call: UInt64
        /// When that was, in microseconds.
        let time: UInt64
        /// It is not one of the session's end alone.
        let counts: Bool
    }

    /// The methods that begin and end the inhibitors of an interface. Those of the portal end through objects of their
    /// own.
    private static let interfaces: [String: (begin: String, end: String?)] = [
        "org.freedesktop.ScreenSaver": ("Inhibit", "UnInhibit"),
        "org.freedesktop.PowerManagement.Inhibit": ("Inhibit", "UnInhibit"),
        "org.gnome.SessionManager": ("Inhibit", "Uninhibit"),
        "org.kde.Solid.PowerManagement.PolicyAgent": ("AddInhibition", "ReleaseInhibition"),
        portal: ("Inhibit", nil),
    ]
    private static let portal = "org.freedesktop.portal.Inhibit"
    private static let request = "org.freedesktop.portal.Request"
    /// The flags that count: of sleep, and of idleness. They are the same in GNOME's interface and the portal's.
    private static let flags: UInt32 = 4 | 8
    /// What the portal uses where a caller gives no token, as GTK 3 does (xdg-desktop-portal, xdp-request.c).
    private static let defaultToken = "t"
    /// The names whose owners have such interfaces. If a name has no owner, a call fails, and inhibits nothing.
    private static let names = [
        "org.freedesktop.ScreenSaver", "org.freedesktop.PowerManagement",
        "org.freedesktop.PowerManagement.Inhibit",
        "org.gnome.SessionManager", "org.kde.Solid.PowerManagement",
        "org.kde.Solid.PowerManagement.PolicyAgent", "org.freedesktop.portal.Desktop",
    ]
    /// How long a bus waits for a service that a call makes it start, in microseconds: dbus-daemon(1),
    /// "service_start_timeout".
    private static let startTime: UInt64 = 120_000_000

    /// - Parameters:
    ///   - session: the session bus.
    ///   - tell: gets the processes that inhibit something, whenever they may have changed.
    init(
        session: SessionBus, monitor: SessionMonitor, loop: EventLoop, journal: Journal,
        tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.monitor = monitor
        self.loop = loop
        self.journal = journal
        self.tell = tell
        let rules = Self.interfaces.flatMap { interface, methods in
            [methods.begin, methods.end].compactMap { $0.map { Self.rule(interface, $0) } }
        }
        let known = [Self.rule(Self.request, "Close"), "type='error'"]
        listener = monitor.listen(rules: rules + known) { [unowned self] in
            heard($0)
        } changed: { [unowned self] failure in
            guard let failure, !monitor.isThere else { return }
            journal.log(.info, "inhibitors on the session bus are not watched: \(failure)")
            forget()
        }
        try session.follow { [weak self] in self?.use($0) }
    }

    private static func rule(_ interface: String, _ member: String) -> String {
        "type='method_call',interface='\(interface)',member='\(member)'"
    }

    private func use(_ bus: Bus?) {
        (self.bus, services) = (bus, [])
        forget()
        guard let bus else { return }
        do throws(BusFailure) {
            services = Self.names.map { BusPeer($0, bus: bus, failed: { [unowned self] in complain($0) }) }
            for service in services {
                service.onOwnerChange { [unowned self, unowned service] in
                    owned(service.name, isOwned: service.owner != nil)
                }
                try service.start()
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func forget() {
        callers = [:]
        tell([])
    }

    private func complain(_ error: MethodError) {
        journal.log(.info, "the session bus does not report changes of inhibitors: \(error)")
    }

    // MARK: Inhibitors

    private func heard(_ message: borrowing Message) {
        // A call that fails inhibits nothing.
        if message.isError, let caller = message.destination, let call = message.replySerial {
            return end(of: caller) { $0.call == call }
        }
        guard message.isMethodCall, let sender = message.sender, let serial = message.serial,
            let interface = message.interface, serial > callers[sender]?.last ?? 0
        else { return }
        callers[sender]?.last = serial
        if interface == Self.request {
            let token = message.path.flatMap(Self.token)
            return end(of: sender) { token != nil && $0.token == token }
        }
        guard let methods = Self.interfaces[interface], let destination = message.destination else { return }
        if message.member == methods.end { return end(of: sender) { $0.interface == interface } }
        // Many libraries call the connection behind a name.
        let name = services.first { [$0.name, $0.owner].contains(destination) }?.name
        guard message.member == methods.begin, let service = name,
            let (flags, token) = try? Self.request(message, interface)
        else { return }
        if callers[sender] == nil { follow(sender) }
        callers[sender]?.last = serial
        callers[sender]?.inhibitors.append(
            Inhibitor(
                service: service, interface: interface, token: token, call: serial, time: loop.now,
                counts: flags & Self.flags != 0))
        publish()
    }

    /// Reads the flags of a request, and the token that names the portal's object through which the inhibitor ends.
    private static func request(
        _ message: borrowing Message, _ interface: String
    ) throws -> (flags: UInt32, token: String?) {
        if interface == "org.gnome.SessionManager" {
            try message.skip("sus")
            return (try message.readUInt32(), nil)
        }
        guard interface == portal else { return (Self.flags, nil) }
        try message.skip("s")
        let flags = try message.readUInt32()
        let options = try message.readDictionary()
        if case .string(let token)? = options.first(where: { $0.key == "handle_token" })?.value {
            return (flags, token)
        }
        return (flags, defaultToken)
    }

    /// The token in the path of such an object, `/org/freedesktop/portal/desktop/request/SENDER/TOKEN` (XDG Desktop
    /// Portal, "Request"). The portal appends a number if the object exists already.
    private static func token(_ path: String) -> String? {
        let parts = path.split(separator: "/")
        return parts.count >= 7 ? String(parts[6]) : nil
    }

    /// Asks for the process of a connection, and watches for the connection's end.
    private func follow(_ sender: String) {
        guard let bus else { return }
        callers[sender] = Caller()
        do throws(BusFailure) {
            let end = try bus.watchOwner(
                of: sender, onlyLost: true,
                failed: { [unowned self] in complain($0) },
                handler: { [unowned self] _, _ in
                    callers[sender] = nil
                    publish()
                })
            // The process is asked for after the end is watched.
            let question = try bus.askProcess(of: sender) { [unowned self] pid in
                if let pid { callers[sender]?.process = pid } else { callers[sender] = nil }
                publish()
            }
            callers[sender]?.slots = [end, question]
        } catch {
            callers[sender] = nil
            journal.log(.debug, "\(error)")
        }
    }

    private func end(of sender: String, _ isIt: (Inhibitor) -> Bool) {
        guard let inhibitors = callers[sender]?.inhibitors else { return }
        // Cookies are not known. In doubt the application runs.
        let index = inhibitors.firstIndex { isIt($0) && !$0.counts } ?? inhibitors.firstIndex(where: isIt)
        guard let index else { return }
        callers[sender]?.inhibitors.remove(at: index)
        publish()
    }

    /// Handles a change of the owner of a service's name. A new owner knows of no inhibitor, unless a call has started
    /// it.
    private func owned(_ service: String, isOwned: Bool) {
        for sender in callers.keys {
            callers[sender]?.inhibitors.removeAll {
                $0.service == service && (!isOwned || loop.now - $0.time > Self.startTime)
            }
        }
        publish()
    }

    private func publish() {
        callers = callers.filter { !$0.value.inhibitors.isEmpty }
        let present = Set(services.filter { $0.owner != nil }.map(\.name))
        let inhibiting = callers.values.filter {
            $0.inhibitors.contains { $0.counts && present.contains($0.service) }
        }
        tell(Set(inhibiting.compactMap(\.process)))
    }
}
