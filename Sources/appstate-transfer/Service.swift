import AppStateBus
import AppStateContract
import Glibc
import Linux
import Systemd

/// The program on the buses: its objects on the session bus, and the daemon on the system bus.
final class Service {
    private let loop: EventLoop
    private let journal: Journal
    private let bus: Bus
    private let system: Bus?
    private let queue: Queue
    private let teller: Teller?
    private let idle: UInt64
    private var interface: Interface?
    private var slots: [Slot] = []
    private var timer: Timer?
    private var sources: [Source] = []

    /// - Parameter idle: microseconds without anything to do after which the program ends.
    init(
        loop: EventLoop, session: Bus, system: Bus?, directory: String, settings: Queue.Settings,
        idle: UInt64,
        journal: Journal
    ) throws {
        self.loop = loop
        self.journal = journal
        self.idle = idle
        (bus, self.system) = (session, system)
        queue = try Queue(directory: directory, loop: loop, settings: settings, journal: journal)
        if let system {
            teller = try Teller(bus: system, loop: loop, store: queue.store, journal: journal)
        } else {
            teller = nil
        }
    }

    func start() throws {
        for bus in [bus, system].compactMap(\.self) { try bus.attach(to: loop) }
        // On another bus, another program of the same user may begin.
        try bus.onDisconnect { [unowned self] in end(status: 0) }
        try system?.onDisconnect { [unowned self] in end(status: 1) }
        for signal in [SIGTERM, SIGINT] {
            sources.append(try loop.onSignal(signal) { [unowned self] in end(status: 0) })
        }
        timer = try loop.timer { [unowned self] in endIfIdle() }
        if let system {
            queue.conditions = try Conditions(bus: system, journal: journal) { [unowned self] in
                queue.schedule()
            }
        }
        queue.changed = { [unowned self] in announce($0, $1) }
        queue.added = { [unowned self] in announceAdded($0) }
        queue.removed = { [unowned self] in
            teller?.forget($0)
            announceRemoved($0)
        }
        queue.ended = { [unowned self] in teller?.tell($0) }
        let interface = transferInterface()
        self.interface = interface
        // A node has either objects or fallbacks of its own: sd_bus_add_object_vtable(3).
        slots.append(
            try bus.addFallback(managerInterface(), under: TransferNames.root) { $0 == TransferNames.root })
        slots.append(
            try bus.addFallback(interface, under: TransferNames.root) {
                [unowned self] path throws(MethodError) in
                transfer(at: path) != nil
            })
        slots.append(
            try bus.addNodes(under: TransferNames.root) { [unowned self] _ in queue.inOrder.map(\.path) })
        slots.append(try bus.addObjectManager(at: TransferNames.root))
        // Another program of this user holds the queue's files for as long as it has the name.
        try bus.requestName(TransferNames.service)
        queue.restore()
        rest()
    }

    // MARK: The end

    private func rest() { timer?.arm(at: EventLoop.clock + idle) }

    private func endIfIdle() {
        guard queue.isIdle, teller?.isBusy != true else { return rest() }
        // A call from now on starts the next program; what has come already is still answered.
        try? bus.releaseName(TransferNames.service)
        while (try? bus.process()) == true {}
        guard queue.isIdle else {
            if (try? bus.requestName(TransferNames.service)) == nil { end(status: 0) }
            return rest()
        }
        end(status: 0)
    }

    private func end(status: Int32) {
        queue.close()
        loop.exit(code: status)
    }

    // MARK: Callers

    /// Refuses everybody but the user and root, and programs in a sandbox.
    ///
    /// - Returns: the process that calls.
    private func caller(_ call: borrowing Call) throws(MethodError) -> Int32 {
        let pid: Int32
        let user: UInt32
        do throws(BusFailure) {
            let credentials = try bus.credentials(of: call.sender)
            (pid, user) = (credentials.pid, credentials.uid)
        } catch {
            throw MethodError(error)
        }
        guard user == geteuid() || user == 0 else {
            throw MethodError(ErrorName.accessDenied.rawValue, "User \(user) may not use these transfers")
        }
        let proc = Proc()
        guard let own = try? proc.sandbox(of: getpid()), let other = try? proc.sandbox(of: pid),
            other.snap == nil, other.flatpak == nil, other.namespace == own.namespace
        else {
            throw MethodError(
                ErrorName.accessDenied.rawValue, "Process \(pid) is in a sandbox, or cannot be examined")
        }
        rest()
        return pid
    }

    /// The umask of a process: its new files get these permissions at most.
    private static func umask(of pid: Int32) -> UInt32 {
        let status = (try? WholeFile.read("/proc/\(pid)/status")) ?? []
        for line in status.split(separator: UInt8(ascii: "\n")) where line.starts(with: "Umask:\t".utf8) {
            return UInt32(String(decoding: line.dropFirst(7), as: UTF8.self), radix: 8) ?? 0o077
        }
        return 0o077
    }

    // MARK: Objects

    private func transfer(at path: String) -> Transfer? {
        TransferNames.number(inPath: path).flatMap { queue.transfers[$0] }
    }

    private func managerInterface() -> Interface {
        Interface(
            TransferNames.manager,
            methods: [
                Method(
                    TransfersMethod.begin.rawValue, in: [("url", "s"), ("options", "a{sv}")],
                    out: [("transfer", "o")], limit: 65_536
                ) { [unowned self] call in
                    let pid = try caller(call)
                    let url = try call.message.readString()
                    let options = try call.message.readDictionary()
                    let record = try Record(
                        number: queue.store.nextNumber, url: url, options, umask: Self.umask(of: pid))
                    begin(record, call.deferred())
                }
            ])
    }

    private func begin(_ record: Record, _ pending: PendingCall) {
        queue.begin(record) { result in
            switch result {
            case .success(let transfer):
                pending.reply { message throws(BusFailure) in try message.append(objectPath: transfer.path) }
            case .failure(let error): pending.fail(error)
            }
        }
    }

    private func transferInterface() -> Interface {
        func method(
            _ name: TransferMethod, _ act: @escaping (Transfer) throws(MethodError) -> Void
        ) -> Method {
            Method(name.rawValue, limit: 65_536) { [unowned self] call in
                _ = try caller(call)
                guard let transfer = transfer(at: call.path) else {
                    throw MethodError.failed("There is no transfer \(call.path)")
                }
                try act(transfer)
                try call.reply()
            }
        }
        return Interface(
            TransferNames.transfer,
            methods: [
                method(.cancel) { [unowned self] transfer throws(MethodError) in try queue.cancel(transfer) },
                method(.retry) { [unowned self] transfer throws(MethodError) in try queue.retry(transfer) },
            ],
            properties: TransferProperty.allCases.map { name in
                Property(name.rawValue, name.type, emits: name.isConstant ? .const : .change) {
                    [unowned self] message, path in
                    guard let transfer = transfer(at: path) else {
                        throw MethodError.failed("There is no transfer \(path)")
                    }
                    try transfer.append(name, to: message)
                }
            })
    }

    // MARK: Signals

    private func announce(_ transfer: Transfer, _ names: [TransferProperty]) {
        rest()
        signal(transfer.path, BusNames.properties, "PropertiesChanged") { [interface] message in
            try message.append(TransferNames.transfer)
            try interface?.appendProperties(to: message, path: transfer.path, only: names.map(\.rawValue))
            try message.append(strings: [])
        }
    }

    private func announceAdded(_ transfer: Transfer) {
        signal(TransferNames.root, BusNames.objectManager, "InterfacesAdded") { [interface] message in
            try message.append(objectPath: transfer.path)
            try message.open(.array, "{sa{sv}}")
            try message.open(.dictEntry, "sa{sv}")
            try message.append(TransferNames.transfer)
            try interface?.appendProperties(to: message, path: transfer.path)
            try message.close()
            try message.close()
        }
    }

    private func announceRemoved(_ transfer: Transfer) {
        signal(TransferNames.root, BusNames.objectManager, "InterfacesRemoved") { message in
            try message.append(objectPath: transfer.path)
            try message.append(strings: [TransferNames.transfer])
        }
    }

    private func signal(
        _ path: String, _ interface: String, _ member: String, _ body: (borrowing Message) throws -> Void
    ) {
        do {
            let message = try bus.newSignal(path: path, interface: interface, member: member)
            try body(message)
            try bus.send(message)
        } catch {
            journal.log(.debug, "\(error)")
        }
    }
}

extension TransferProperty {
    fileprivate var type: String {
        switch self {
        case .id, .application, .url, .target, .upload, .state, .waitsFor, .error: "s"
        case .received, .total: "t"
        case .status: "u"
        }
    }

    fileprivate var isConstant: Bool {
        switch self {
        case .application, .url, .target, .upload: true
        case .id, .state, .waitsFor, .received, .total, .status, .error: false
        }
    }
}

extension Transfer {
    fileprivate func append(_ property: TransferProperty, to message: borrowing Message) throws(BusFailure) {
        switch property {
        case .id: try message.append(record.id)
        case .application: try message.append(record.application)
        case .url: try message.append(record.shownURL)
        case .target: try message.append(record.target)
        case .upload: try message.append(record.upload)
        case .state: try message.append(state.rawValue)
        case .waitsFor: try message.append(need?.rawValue ?? "")
        case .received: try message.append(received)
        case .total: try message.append(total)
        case .status: try message.append(attempt?.status ?? record.status)
        // Until it has ended, what has interrupted it.
        case .error: try message.append(record.error.isEmpty ? interruption : record.error)
        }
    }
}
