import AppStateBus
import AppStateContract
import TestSupport

/// A subscriber that keeps a ledger.
final class Witness {
    let bus: Bus
    private(set) var ledger = Ledger()
    private var filter: Slot?
    private var question: Slot?

    init(_ privateBus: PrivateBus, on loop: EventLoop) throws {
        bus = try Bus.open(address: privateBus.address)
        try bus.attach(to: loop)
        filter = try bus.addFilter { [weak self] message in
            if message.isSignal { self?.take(message) }
            return false
        }
        _ = try bus.call(
            bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.manager,
                member: "Subscribe"))
    }

    /// Calls back when everything has arrived that the daemon sent before this call.
    func whenCaughtUp(_ done: @escaping () -> Void) throws {
        question = try bus.callAsync(
            bus.newCall(
                destination: BusNames.service, path: "/", interface: "org.freedesktop.DBus.Peer",
                member: "Ping"), timeout: 300_000_000
        ) { [weak self] reply in
            if let error = reply.error { self?.ledger.complain("Ping: \(error)") }
            done()
        }
    }

    private func take(_ message: borrowing Message) {
        guard let interface = message.interface, let member = message.member, let path = message.path,
            interface != "org.freedesktop.DBus"
        else { return }
        do {
            var arguments: [String] = []
            var told: String?
            reading: while let next = try message.peek() {
                switch next.type {
                case "s": arguments.append(try message.readString())
                case "o": arguments.append(try message.readObjectPath())
                case "u": arguments.append(String(try message.readUInt32()))
                case "a" where interface == BusNames.properties:
                    if case .string(let state)? = try message.readDictionary().last(where: {
                        $0.key == "State"
                    }
                    )?.value {
                        told = state
                    }
                    break reading
                default: break reading
                }
            }
            try message.rewind()
            ledger.take(interface, member, path, arguments, told: told)
        } catch {
            ledger.complain("\(member) of \(path) cannot be read: \(error)")
        }
    }
}
