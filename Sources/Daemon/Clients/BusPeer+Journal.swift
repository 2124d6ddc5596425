import AppStateBus
import Systemd

extension BusPeer {
    /// One of which the journal says when the bus does not tell of it.
    convenience init(_ name: String, bus: Bus, journal: Journal) {
        self.init(name, bus: bus) { journal.log(.error, "the bus does not tell of \(name): \($0)") }
    }
}
