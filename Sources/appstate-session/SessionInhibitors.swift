import AppStateBus
import Desktop
import Systemd

/// Finds the processes that keep the session from going idle or the machine from sleeping, through services of the
/// session bus.
///
/// An inhibitor of the session's end alone does not count: editors take it for unsaved changes, which are no work.
///
/// These services identify applications only by text, if at all. Therefore a monitor watches the calls to
/// them, with rules that let nothing else through (D-Bus specification, "BecomeMonitor"), and the bus is
/// queried for the caller's process. Calls from the time before the monitor are not known.
final class SessionInhibitors: Watcher, SessionListener {
    private let loop: EventLoop
    private let journal: Journal
    private let monitor: SessionMonitor
    private let tell: (Set<Int32>) -> Void
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
        /// The serial of the call that requested it.
        let call: UInt64
        /// When that was, in microseconds.
        let time: UInt64
        /// Names the portal's object through which it ends. Nil: it is not one of the portal's.
        let token: String?
        /// It is not one of the session's end alone.
        let counts: Bool
    }

    /// The methods that begin and end the inhibitors of an interface.
    private struct Methods {
        let begin: String
        let end: String
    }

    private static let interfaces: [String: Methods] = [
        "org.freedesktop.ScreenSaver": Methods(begin: "Inhibit", end: "UnInhibit"),
        "org.freedesktop.PowerManagement.Inhibit": Methods(begin: "Inhibit", end: "UnInhibit"),
        "org.gnome.SessionManager": Methods(begin: "Inhibit", end: "Uninhibit"),
        "org.kde.Solid.PowerManagement.PolicyAgent": Methods(
            begin: "AddInhibition", end: "ReleaseInhibition"),
    ]
    private static let portal = "org.freedesktop.portal.Inhibit"
    private static let portalName = "org.freedesktop.portal.Desktop"
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
        "org.kde.Solid.PowerManagement.PolicyAgent", portalName,
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
        self.loop = loop
        self.journal = journal
        self.monitor = monitor
        self.tell = tell
        monitor.add(self)
        try session.follow { [weak self] in self?.use($0) }
    }

    // MARK: The bus

    private func use(_ bus: Bus?) {
        (self.bus, services) = (bus, [])
        forget()
        guard let bus else { return }
        do throws(BusFailure) {
            services = Self.names.map { BusPeer($0, bus: bus, failed: { [unowned self] in deaf($0) }) }
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

    private func deaf(_ error: MethodError) {
        journal.log(
            .info, "inhibitors on the session bus are not watched: the bus does not report changes: \(error)")
        (self.bus, services) = (nil, [])
        forget()
    }

    func rules() -> [String] {
        Self.interfaces.sorted { $0.key < $1.key }.flatMap { interface, methods in
            [methods.begin, methods.end].map { Self.rule(interface, $0) }
        } + [Self.rule(Self.portal, "Inhibit"), Self.rule(Self.request, "Close"), "type='error'"]
    }

    private static func rule(_ interface: String, _ member: String) -> String {
        "type='method_call',interface='\(interface)',member='\(member)'"
    }

    /// Whether a message matches one of these rules.
    private static func concerns(_ message: borrowing Message) -> Bool {
        guard message.isMethodCall, let interface = message.interface, let member = message.member else {
            return false
        }
        if let methods = interfaces[interface] { return member == methods.begin || member == methods.end }
        return (interface, member) == (portal, "Inhibit") || (interface, member) == (request, "Close")
    }

    func monitored(_ failure: MethodError?) {
        guard let failure, !monitor.isThere else { return }
        journal.log(.info, "inhibitors on the session bus are not watched: \(failure)")
        forget()
    }

    // MARK: Inhibitors

    func heard(_ message: borrowing Message) {
        // A call that fails inhibits nothing.
        if message.isError, let caller = message.destination, let call = message.replySerial {
            return change(caller) { $0.removeAll { $0.call == call } }
        }
        guard Self.concerns(message), let sender = message.sender, let interface = message.interface,
            let member = message.member,
            let destination = message.destination
        else { return }
        if interface == Self.request {
            guard let token = message.path.flatMap(Self.token) else { return }
            return end(sender) { $0.token == token }
        }
        let service = services.first { $0.owner == destination }?.name ?? destination
        if interface == Self.portal {
            guard let (token, flags) = try? Self.portalInhibitor(message) else { return }
            begin(message, sender, service, token: token ?? Self.defaultToken, flags)
        } else if member == Self.interfaces[interface]?.begin {
            begin(message, sender, service, token: nil, Self.flags(message))
        } else {
            // It may have begun under another name of the same connection.
            let owner = services.first { $0.name == service }?.owner
            let names = services.filter { $0.name == service || owner != nil && $0.owner == owner }.map(
                \.name)
            end(sender) { $0.token == nil && names.contains($0.service) }
        }
    }

    /// Reads a call of the portal's Inhibit.
    private static func portalInhibitor(
        _ message: borrowing Message
    ) throws -> (token: String?, flags: UInt32) {
        try message.skip("s")
        let flags = try message.readUInt32()
        let options = try message.readDictionary()
        if case .string(let token)? = options.first(where: { $0.key == "handle_token" })?.value {
            return (token, flags)
        }
        return (nil, flags)
    }

    /// The flags of a call of another interface. Only GNOME's has them.
    private static func flags(_ message: borrowing Message) -> UInt32 {
        guard message.signature == "susu", (try? message.skip("sus")) != nil,
            let flags = try? message.readUInt32()
        else { return Self.flags }
        return flags
    }

    /// The token in the path of such an object, `/org/freedesktop/portal/desktop/request/SENDER/TOKEN` (XDG Desktop
    /// Portal, "Request"). The portal appends a number if the object exists already.
    private static func token(_ path: String) -> String? {
        let parts = path.split(separator: "/")
        return parts.count >= 7 ? String(parts[6]) : nil
    }

    private func begin(
        _ call: borrowing Message, _ sender: String, _ service: String, token: String?, _ flags: UInt32
    ) {
        guard Self.names.contains(service), let serial = call.serial else { return }
        if callers[sender] == nil { follow(sender) }
        change(sender) {
            $0.append(
                Inhibitor(
                    service: service, call: serial, time: loop.now, token: token,
                    counts: flags & Self.flags != 0))
        }
    }

    private func end(_ sender: String, _ isIt: (Inhibitor) -> Bool) {
        change(sender) { inhibitors in
            // Cookies are not known. In doubt the application runs.
            let index =
                inhibitors.firstIndex { isIt($0) && !$0.counts } ?? inhibitors.firstIndex(where: isIt)
            if let index { inhibitors.remove(at: index) }
        }
    }

    /// Asks for the process of a connection, and watches for the connection's end.
    private func follow(_ sender: String) {
        guard let bus else { return }
        callers[sender] = Caller()
        do throws(BusFailure) {
            let end = try bus.watchOwner(
                of: sender, onlyLost: true,
                failed: { [unowned self] in deaf($0) },
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

    private func change(_ sender: String, _ edit: (inout [Inhibitor]) -> Void) {
        guard callers[sender] != nil else { return }
        edit(&callers[sender, default: Caller()].inhibitors)
        if callers[sender]?.inhibitors.isEmpty == true { callers[sender] = nil }
        publish()
    }

    /// Handles a change of the owner of a service's name. A new owner knows of no inhibitor, unless a call has started
    /// it.
    private func owned(_ service: String, isOwned: Bool) {
        for sender in callers.keys {
            change(sender) {
                $0.removeAll { $0.service == service && (!isOwned || loop.now - $0.time > Self.startTime) }
            }
        }
    }

    private func publish() {
        let present = Set(services.filter { $0.owner != nil }.map(\.name))
        let inhibiting = callers.values.filter {
            $0.inhibitors.contains { $0.counts && present.contains($0.service) }
        }
        tell(Set(inhibiting.compactMap(\.process)))
    }
}
