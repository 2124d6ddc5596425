import CXCB

/// The processes of X11 windows, for an observer that gets the windows from another source.
final class X11Processes {
    private let connection: XConnection
    /// The property of the root window in which i3 announces its socket.
    private let socketPath: xcb_atom_t
    let borrowed: BorrowedFocus

    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    init(display: String?) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        borrowed = BorrowedFocus(connection)
        socketPath = connection.atoms(["I3_SOCKET_PATH"]).first ?? xcb_atom_t(XCB_NONE)
    }

    /// As `XConnection.onStall`.
    func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    /// The process of the X server, if it is on this machine.
    var server: Int32? { connection.server }
    /// Readable when events have arrived.
    var descriptor: Int32 { connection.descriptor }
    /// Whether the X server still answers.
    var isAlive: Bool { connection.isAlive }

    /// The processes of these windows, in one round trip, without windows that the server does not know.
    func of(_ windows: [UInt32]) -> [UInt32: Int32] {
        guard !windows.isEmpty else { return [:] }
        let processes = connection.answer(to: connection.askProcesses(of: windows))
        return Dictionary(
            windows.compactMap { window in processes[connection.client(of: window)].map { (window, $0) } }
        ) { first, _ in first }
    }

    /// The path of the socket that i3 has announced; nil if i3 has never managed the display.
    func i3Socket() -> String? {
        guard
            case .bytes(let path)? = connection.answer(
                to: connection.ask(connection.root, socketPath, words: 64))
        else { return nil }
        return String(decoding: path, as: UTF8.self)
    }

    /// Makes the server report changes of the root window's properties.
    func watchI3() {
        connection.select(.propertyChange, of: connection.root)
        connection.flush()
    }

    /// Whether i3 has announced its socket since the last call. Reads the events that have arrived; if there are very
    /// many, the descriptor is readable once more for the rest.
    func hasI3Announced() -> Bool {
        var isAnnounced = false
        var left = Self.mostEvents
        while left > 0, let event = connection.nextEvent() {
            left -= 1
            if case .property(window: connection.root, atom: socketPath) = event { isAnnounced = true }
        }
        if left == 0 { connection.wake() }
        return isAnnounced
    }

    private static let mostEvents = 10_000
}
