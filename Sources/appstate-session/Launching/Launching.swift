import AppStateBus
import Desktop
import Linux
import Systemd

/// The parts that start applications, show them, and give them scopes.
final class Launching {
    let launcher: Launcher
    let presenting: Presenting
    private let scopes: ScopeMaker
    private let user: SessionBus

    /// - Parameters:
    ///   - session: the session bus.
    ///   - raise: brings a window to the front.
    ///   - leave: makes an application leave the front.
    init(
        loop: EventLoop, journal: Journal, session: SessionBus, raise: @escaping Presenting.Raise,
        leave: @escaping Presenting.Leave
    ) throws(BusFailure) {
        // If each login has a bus of its own, the service manager is still on the user's bus.
        let user =
            DisplayServer.userBus == DisplayServer.sessionBus
            ? session : SessionBus(address: DisplayServer.userBus, loop: loop, journal: journal)
        self.user = user
        scopes = ScopeMaker(loop: loop)
        launcher = try Launcher(loop: loop, journal: journal, session: session, user: user)
        presenting = Presenting(
            session: session, launcher: launcher, journal: journal, raise: raise, leave: leave)
    }

    /// Takes the current windows.
    func look(at windows: [ReportedWindow]) { presenting.look(at: windows) }

    /// Moves processes into a scope of their own.
    ///
    /// - Parameter answered: called once, with the name of the scope, or the reason of the failure.
    func makeScope(
        _ id: String, main: consuming PidFD, others: [Int32],
        _ answered: @escaping (Result<String, MethodError>) -> Void
    ) {
        scopes.make(id, main: main, others: others, bus: try? user.connection(), answered)
    }
}
