import AppStateBus
import Systemd

/// Reports that Xfce's session manager is about to ask its clients to save their state or to exit. It does so
/// by XSMP, which no other process can observe.
final class SessionEndWatch: Watcher {
    private let manager: BusPeer

    private static let name = "org.xfce.SessionManager"
    private static let interface = "org.xfce.Session.Manager"
    /// Values of `XfsmManagerState` in xfce4-session 4.18: the session starts, and idle.
    private static let quietStates: ClosedRange<UInt32> = 0...1

    /// - Parameters:
    ///   - address: of the session bus.
    ///   - begins: called each time.
    init(
        address: String, loop: EventLoop, journal: Journal, begins: @escaping () -> Void
    ) throws(BusFailure) {
        let bus = try Bus.open(address: address)
        manager = BusPeer(Self.name, bus: bus) { error in
            journal.log(.notice, "the session bus does not report on Xfce's session manager: \(error)")
        }
        try manager.onSignal("interface='\(Self.interface)',member='StateChanged'") { message in
            guard (try? message.readUInt32()) != nil, let state = try? message.readUInt32(),
                !Self.quietStates.contains(state)
            else { return }
            begins()
        }
        try manager.start()
        try bus.attach(to: loop)
    }
}
