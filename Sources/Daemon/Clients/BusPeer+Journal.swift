import AppStateBus
import Systemd

extension BusPeer {
    /// A peer that writes to the journal when the bus does not report on it.
    convenience init(_ name: String, bus: Bus, journal: Journal) {
        self.init(name, bus: bus) { journal.log(.error, "cannot watch \(name) on the bus: \($0)") }
    }
}
