import AppStateBus
import Systemd

/// Reports that Xfce's session manager is about to ask its clients to save their state or to exit. It does so
/// by XSMP, which no other process can observe.
final class SessionEndWatch: Watcher {
    private let journal: Journal
    private let begins: () -> Void
    private var manager: BusPeer?

    private static let name = "org.xfce.SessionManager"
    private static let interface = "org.xfce.Session.Manager"
    /// Values of `XfsmManagerState` in xfce4-session 4.18: the session starts, and idle.
    private static let quietStates: ClosedRange<UInt32> = 0...1

    /// - Parameters:
    ///   - session: the session bus.
    ///   - begins: called each time.
    init(session: SessionBus, journal: Journal, begins: @escaping () -> Void) throws(BusFailure) {
        self.journal = journal
        self.begins = begins
        try session.follow { [weak self] in self?.use($0) }
    }

    private func use(_ bus: Bus?) {
        manager = bus.map { bus in
            BusPeer(Self.name, bus: bus) { [journal] error in
                journal.log(
                    .notice, "the session bus does not report on Xfce's session manager: \(error)")
            }
        }
        do throws(BusFailure) {
            try manager?.onSignal("interface='\(Self.interface)',member='StateChanged'") {
                [unowned self] message in
                guard (try? message.readUInt32()) != nil, let state = try? message.readUInt32(),
                    !Self.quietStates.contains(state)
                else { return }
                begins()
            }
            try manager?.start()
        } catch {
            // The connection is lost, which is handled elsewhere.
            journal.log(.debug, "\(error)")
        }
    }
}
