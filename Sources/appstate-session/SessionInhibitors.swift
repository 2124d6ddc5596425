import AppStateBus
import Desktop
import Systemd

/// Finds the processes that keep the session from going idle, sleep or its end, through services of the session bus.
///
/// These services identify applications only by text, if at all. Therefore a monitor watches the calls to
/// them, and the bus is queried for the caller's process. Calls from the time before the monitor are not known.
final class SessionInhibitors: Watcher {
    private let loop: EventLoop
    private let journal: Journal
    private let tell: (Set<Int32>) -> Void
    private var monitor: SessionMonitor?
    /// For questions. Nil: there is no session bus.
    private var bus: Bus?
    private var services: [BusPeer] = []
    private var callers: [String: Caller] = [:]

    private struct Caller {
        var inhibitors: [Inhibitor] = []
        /// Nil: the bus has not answered yet.
        var process: Int32?
        var slots: [Slot] = []
    }

    private struct Inhibitor {
        let service: String
        let interface: String
        /// Names the object through which an inhibitor of the portal ends.
        let token: String?
        /// When it was requested, in microseconds.
        let time: UInt64
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
        session: SessionBus, loop: EventLoop, journal: Journal, tell: @escaping (Set<Int32>) -> Void
    ) throws(BusFailure) {
        self.loop = loop
        self.journal = journal
        self.tell = tell
        let rules = Self.interfaces.flatMap { interface, methods in
            [methods.begin, methods.end].compactMap { $0.map { Self.rule(interface, $0) } }
        }
        monitor = try SessionMonitor(
            session: session, loop: loop, journal: journal, rules: rules + [Self.rule(Self.request, "Close")]
        ) { [unowned self] in
            heard($0)
        } changed: { [unowned self] failure in
            guard let failure else { return }
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
        guard let sender = message.sender, let interface = message.interface, let member = message.member
        else { return }
        if interface == Self.request {
            let token = message.path.flatMap(Self.token)
            return end(of: sender) { $0.firstIndex { token != nil && $0.token == token } }
        }
        guard let methods = Self.interfaces[interface], let destination = message.destination else { return }
        if member == methods.end { return end(of: sender) { $0.firstIndex { $0.interface == interface } } }
        // Many libraries call the connection behind a name.
        let name = services.first { [$0.name, $0.owner].contains(destination) }?.name
        guard member == methods.begin, let service = name else { return }
        let token = interface == Self.portal ? (try? Self.token(of: message)) ?? Self.defaultToken : nil
        if callers[sender] == nil { meet(sender) }
        callers[sender]?.inhibitors.append(
            Inhibitor(service: service, interface: interface, token: token, time: loop.now))
        publish()
    }

    /// The token in the options of a call to the portal; nil: the caller gives none.
    private static func token(of message: borrowing Message) throws -> String? {
        try message.skip("su")
        let options = try message.readDictionary()
        guard case .string(let token)? = options.first(where: { $0.key == "handle_token" })?.value else {
            return nil
        }
        return token
    }

    /// The token in the path of such an object, `/org/freedesktop/portal/desktop/request/SENDER/TOKEN` (XDG Desktop
    /// Portal, "Request"). The portal appends a number if the object exists already.
    private static func token(_ path: String) -> String? {
        let parts = path.split(separator: "/")
        return parts.count >= 7 ? String(parts[6]) : nil
    }

    /// Asks for the process of a connection, and watches for the connection's end.
    private func meet(_ sender: String) {
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

    private func end(of sender: String, _ which: ([Inhibitor]) -> Int?) {
        guard let index = callers[sender].flatMap({ which($0.inhibitors) }) else { return }
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
        let inhibiting = callers.values.filter { $0.inhibitors.contains { present.contains($0.service) } }
        tell(Set(inhibiting.compactMap(\.process)))
    }
}
