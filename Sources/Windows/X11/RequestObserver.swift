import CXCB

/// Detects requests of X clients to the window manager to close a window or bring it to the front, and new managers of
/// a selection, such as trays for icons (ICCCM 2.8, `MANAGER`). Taskbars
/// and wmctrl(1) send such a request as a message to the root window, and the server sends it to every client
/// that has selected such messages (Extended Window Manager Hints 1.5, "Other Root Window Messages").
public final class RequestObserver {
    /// The request.
    public enum Request: Hashable, Sendable {
        /// `_NET_CLOSE_WINDOW`
        case close
        /// `_NET_ACTIVE_WINDOW`
        case activate
        /// It is for all clients, and so there is no process of a window.
        case manager
    }

    /// The most events of one dispatch, because a client may send any number of messages.
    private static let mostEvents = 1_000

    private let connection: XConnection
    private let requests: [xcb_atom_t: Request]

    /// Connects. No requests are detected before `listen(true)`.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    /// - Throws: `unreachable` if no server answers.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        let atoms = connection.atoms(["_NET_CLOSE_WINDOW", AtomName.activeWindow.rawValue, "MANAGER"])
        requests = Dictionary(zip(atoms, [.close, .activate, .manager])) { first, _ in first }
    }

    /// What is watched, for the user.
    public var subject: String { "requests on X11 display \(connection.display)" }
    /// Readable when there is something to dispatch. Open while the observer lives.
    public var descriptor: Int32 { connection.descriptor }

    /// Calls `handler` every 100 ms while the X server does not answer, with the number of calls so far for this
    /// answer.
    public func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    /// Sends a request to the X server, and waits for its answer. Events that arrived before it do not make
    /// the socket readable again.
    public func ping() {
        _ = connection.focus()
        connection.wake()
    }

    /// Begins or ends listening. While it listens, every window that is mapped, moved or resized wakes us, too: the
    /// server has one switch for all of this.
    public func listen(_ isListening: Bool) {
        let all: EventMask = [.substructureNotify, .structureNotify]
        connection.select(isListening ? all : [], of: connection.root)
        connection.flush()
    }

    /// Handles everything that has arrived. It may wait for an answer of the X server.
    ///
    /// - Returns: the processes whose windows a client has asked to close or to activate since the last call.
    /// - Throws: `ended` when the server is gone.
    public func dispatch() throws(ObserverFailure) -> [Request: Set<Int32>] {
        var asked: [Request: Set<xcb_window_t>] = [:]
        var left = Self.mostEvents
        while left > 0, let event = connection.nextEvent() {
            left -= 1
            guard case .message(let window, let type) = event, let request = requests[type] else { continue }
            asked[request, default: []].insert(window)
        }
        var found: [Request: Set<Int32>] = [:]
        if !asked.isEmpty {
            let windows = Array(asked.values.joined())
            let processes = connection.answer(to: connection.askProcesses(of: windows))
            found = asked.mapValues { Set($0.compactMap { processes[connection.client(of: $0)] }) }
        }
        // Events that were taken from the socket do not make it readable again.
        if left == 0 || !asked.isEmpty { connection.wake() }
        guard connection.isAlive else {
            throw .ended("the X server at display \(connection.display) has ended")
        }
        return found
    }
}
