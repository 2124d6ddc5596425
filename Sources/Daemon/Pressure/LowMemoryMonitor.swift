import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Systemd

/// org.freedesktop.LowMemoryMonitor, as low-memory-monitor serves it: what GLib's GMemoryMonitor listens to, so
/// that applications which know nothing of us hear our levels.
final class LowMemoryMonitor {
    private static let name = "org.freedesktop.LowMemoryMonitor"
    private static let path = "/org/freedesktop/LowMemoryMonitor"

    private let bus: Bus
    private let journal: Journal
    private var slot: Slot?

    init(bus: Bus, journal: Journal) {
        self.bus = bus
        self.journal = journal
    }

    /// Takes the name where nobody has it, or gives it back.
    func configure(_ isWanted: Bool) {
        switch (isWanted, slot) {
        case (true, nil): begin()
        case (false, .some):
            slot = nil
            try? bus.releaseName(Self.name)
        case (true, .some), (false, nil): break
        }
    }

    private func begin() {
        // Another may serve it, or the bus's policy keep it for another.
        journal.attempt(.info, "\(Self.name) is left to others") {
            let interface = Interface(
                Self.name, methods: [], properties: [],
                signals: [Signal("LowMemoryWarning", [("level", "y")])])
            let slot = try bus.add(interface, at: Self.path)
            try bus.requestName(Self.name)
            self.slot = slot
        }
    }

    /// Tells everybody: the signal says nothing of anybody.
    func warn(_ level: LowMemoryWarning) {
        guard slot != nil else { return }
        journal.attempt(.warning, Self.name) {
            let signal = try bus.newSignal(
                path: Self.path, interface: Self.name, member: "LowMemoryWarning", to: nil)
            try signal.append(level.rawValue)
            try bus.send(signal)
        }
    }
}
