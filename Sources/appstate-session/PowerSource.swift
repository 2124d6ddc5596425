import AppStateBus
import Systemd

/// Whether the machine runs on battery: UPower's `OnBattery`. Where there is no UPower it does not.
///
/// UPower is not started for it.
final class PowerSource {
    private(set) var isBattery = false
    private let bus: Bus
    private let journal: Journal
    private let changed: () -> Void
    private var slots: [Slot] = []
    private var question: Slot?
    private var owner: String?

    private static let name = "org.freedesktop.UPower"
    private static let path = "/org/freedesktop/UPower"
    private static let properties = "org.freedesktop.DBus.Properties"
    private static let key = "OnBattery"

    /// - Parameter changed: called when it is another than before.
    init(bus: Bus, journal: Journal, changed: @escaping () -> Void) throws(BusFailure) {
        self.bus = bus
        self.journal = journal
        self.changed = changed
        slots.append(
            try bus.watchOwner(of: Self.name, failed: complain) { [unowned self] _, owner in
                self.owner = owner
                if owner == nil { take(false) } else { ask() }
            })
        slots.append(
            try bus.match(
                "type='signal',sender='\(Self.name)',path='\(Self.path)',interface='\(Self.properties)',"
                    + "member='PropertiesChanged',arg0='\(Self.name)'", failed: complain
            ) { [unowned self] message in
                // Anybody may address a signal to us directly.
                if message.sender == owner { ask() }
            })
        ask()
    }

    private func ask() {
        do throws(BusFailure) {
            let call = try bus.newCall(
                destination: Self.name, path: Self.path, interface: Self.properties, member: "Get")
            try call.forbidStart()
            try call.append(Self.name)
            try call.append(Self.key)
            question = try bus.callAsync(call) { [unowned self] reply in
                question = nil
                guard !reply.isError, case .bool(let isBattery)? = try? reply.readVariant() else { return }
                owner = reply.sender
                take(isBattery)
            }
        } catch {
            // The connection is gone, which somebody else is told of.
            journal.log(.debug, "\(error)")
        }
    }

    private func take(_ isBattery: Bool) {
        guard isBattery != self.isBattery else { return }
        self.isBattery = isBattery
        journal.log(.info, isBattery ? "the machine runs on battery" : "the machine runs on mains")
        changed()
    }

    private func complain(_ error: MethodError) {
        journal.log(.notice, "the bus does not tell of \(Self.name): \(error)")
    }
}
