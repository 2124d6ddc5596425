import AppStateBus
import Systemd

extension BusPeer {
    /// A peer that writes to the journal when the bus does not report on it.
    convenience init(_ name: String, bus: Bus, journal: Journal) {
        self.init(name, bus: bus) { journal.log(.error, "the bus does not tell of \(name): \($0)") }
    }
}
