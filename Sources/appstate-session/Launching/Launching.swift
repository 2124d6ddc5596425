import AppStateBus
import Linux
import Systemd

/// All that starts applications and shows them.
final class Launching {
    let launcher: Launcher
    let presenting: Presenting

    /// - Parameter raise: brings a window to the front.
    init(loop: EventLoop, journal: Journal, raise: @escaping Presenting.Raise) throws(BusFailure) {
        let session = SessionBus(address: DisplayServer.sessionBus, loop: loop, journal: journal)
        // Where each login has a bus of its own, the service manager is still on the user's.
        let user =
            DisplayServer.userBus == DisplayServer.sessionBus
            ? session : SessionBus(address: DisplayServer.userBus, loop: loop, journal: journal)
        launcher = try Launcher(loop: loop, journal: journal, session: session, user: user)
        presenting = Presenting(session: session, launcher: launcher, journal: journal, raise: raise)
    }

    /// Takes the windows that there are.
    func look(at windows: [Report.Window]) { presenting.look(at: windows) }
}
