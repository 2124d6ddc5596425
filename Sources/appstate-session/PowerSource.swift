import AppStateBus
import AppStateContract
import Systemd

/// Whether the machine runs on battery, according to UPower's `OnBattery`. Without UPower the answer is no.
///
/// UPower is not started for this.
final class PowerSource {
    /// Nil: UPower has not answered yet.
    private(set) var isBattery: Bool?
    private let peer: BusPeer
    private let journal: Journal
    private let changed: () -> Void
    private var question: Slot?

    private static let name = "org.freedesktop.UPower"
    private static let path = "/org/freedesktop/UPower"

    /// - Parameter changed: called when the answer is known, and when it changes.
    init(bus: Bus, journal: Journal, changed: @escaping () -> Void) throws(BusFailure) {
        self.journal = journal
        self.changed = changed
        peer = BusPeer(Self.name, bus: bus) {
            journal.log(.notice, "the bus does not report on \(Self.name): \($0)")
        }
        peer.onOwnerChange { [unowned self] in if peer.owner == nil { take(false) } else { ask() } }
        try peer.onSignal(
            "path='\(Self.path)',interface='\(BusNames.properties)',member='PropertiesChanged',arg0='\(Self.name)'"
        ) { [unowned self] _ in ask() }
        try peer.start()
    }

    private func ask() {
        do throws(BusFailure) {
            question = try peer.call(Self.path, BusNames.properties, "GetAll", Self.name) {
                [unowned self] reply in
                question = nil
                let properties = try? reply.readDictionary()
                switch properties?.first(where: { $0.key == "OnBattery" })?.value {
                case .bool(let isBattery)?: take(isBattery)
                default: if isBattery == nil { take(false) }
                }
            }
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }

    private func take(_ isBattery: Bool) {
        guard isBattery != self.isBattery else { return }
        if isBattery || self.isBattery != nil {
            journal.log(.info, isBattery ? "the machine runs on battery" : "the machine runs on mains")
        }
        self.isBattery = isBattery
        changed()
    }
}
