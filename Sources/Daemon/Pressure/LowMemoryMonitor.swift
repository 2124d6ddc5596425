import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Systemd

/// org.freedesktop.LowMemoryMonitor, as low-memory-monitor provides it. GLib's GMemoryMonitor listens to it,
/// so applications that do not use the daemon receive its levels.
final class LowMemoryMonitor {
    private static let name = "org.freedesktop.LowMemoryMonitor"
    private static let path = "/org/freedesktop/LowMemoryMonitor"

    private let bus: Bus
    private let journal: Journal
    private var object: Slot?
    private var question: Slot?
    private var hasName = false

    init(bus: Bus, journal: Journal) {
        self.bus = bus
        self.journal = journal
    }

    /// Acquires the name if no process has it, or releases it. This does not wait for an answer, because
    /// calls that arrive meanwhile would be read and overtake those that already wait.
    func configure(_ isWanted: Bool) {
        switch (isWanted, object) {
        case (true, nil): begin()
        case (false, .some):
            forget()
            try? bus.dropName(Self.name)
        case (true, .some), (false, nil): break
        }
    }

    private func begin() {
        do {
            let interface = Interface(
                Self.name, methods: [], properties: [],
                signals: [Signal("LowMemoryWarning", [("level", "y")])])
            object = try bus.add(interface, at: Self.path)
            question = try bus.askName(Self.name) { [weak self] in self?.answered($0) }
        } catch {
            answered(error)
        }
    }

    private func answered(_ failure: BusFailure?) {
        question = nil
        hasName = failure == nil
        guard let failure else { return }
        // Another process may provide it, or the bus's policy may reserve it for another process.
        journal.log(.info, "\(Self.name) is left to another service: \(failure)")
        forget()
    }

    private func forget() {
        object = nil
        question = nil
        hasName = false
    }

    /// Broadcasts the warning. The signal reveals nothing about any user or application.
    func warn(_ level: LowMemoryWarning) {
        guard hasName else { return }
        journal.attempt(.warning, Self.name) {
            let signal = try bus.newSignal(
                path: Self.path, interface: Self.name, member: "LowMemoryWarning", to: nil)
            try signal.append(level.rawValue)
            try bus.send(signal)
        }
    }
}
