/// The processes of X11 windows, for an observer that gets the windows from another source.
final class X11Processes {
    private let connection: XConnection

    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    init(display: String?) throws(ObserverFailure) {
        connection = try XConnection(display: display)
    }

    /// As `XConnection.onStall`.
    func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    /// The process of the X server, if it is on this machine.
    var server: Int32? { connection.server }

    /// The processes of these windows, in one round trip, without windows that the server does not know.
    func of(_ windows: [UInt32]) -> [UInt32: Int32] {
        guard !windows.isEmpty else { return [:] }
        let processes = connection.answer(to: connection.askProcesses(of: windows))
        return Dictionary(
            windows.compactMap { window in processes[connection.client(of: window)].map { (window, $0) } }
        ) { first, _ in first }
    }
}
