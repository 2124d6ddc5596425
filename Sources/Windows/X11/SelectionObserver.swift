import CXCB

/// Watches who owns the clipboard and the primary selection of an X server: who pastes asks that process, and waits
/// for it. XFixes tells of each change, and of an owner that is gone.
public final class SelectionObserver {
    /// The processes that own one of them, as of the last dispatch.
    public private(set) var owners: Set<Int32> = []
    private let connection: XConnection
    private var windows: [xcb_atom_t: xcb_window_t] = [:]

    /// Inter-Client Communication Conventions Manual, "Selection Atoms"; the clipboard is what was copied, the primary
    /// selection what is marked.
    private static let selections = ["CLIPBOARD", "PRIMARY"]

    /// Connects, and reads who owns them now.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    /// - Throws: `unreachable` where no server answers, or one without XFixes.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        let selections = connection.atoms(Self.selections)
        // First the events, then the owners: what changes in between is seen twice rather than never.
        try connection.watch(selections: selections)
        windows = connection.owners(of: selections)
        try dispatch(afresh: true)
    }

    /// What is watched, for a person.
    public var subject: String { "selections of X11 display \(connection.display)" }
    /// Can be read when there is something to dispatch. Open while the observer lives.
    public var descriptor: Int32 { connection.descriptor }

    /// Takes in all that has come. It may wait for answers of the X server.
    ///
    /// - Throws: `ended` when the server is gone.
    public func dispatch() throws(ObserverFailure) { try dispatch(afresh: false) }

    private func dispatch(afresh: Bool) throws(ObserverFailure) {
        var isChanged = takeEvents() || afresh
        // While it is asked whose a window is, more may come; a client that takes a selection again and again must not
        // keep us here.
        for _ in 0..<Self.mostRounds where isChanged {
            readOwners()
            isChanged = takeEvents()
        }
        guard connection.isAlive else {
            throw .ended("the X server at display \(connection.display) has ended")
        }
        // What was taken from the socket does not make it readable again.
        if isChanged {
            readOwners()
            connection.wake()
        } else {
            connection.flush()
        }
    }

    private static let mostRounds = 8

    private func takeEvents() -> Bool {
        var isChanged = false
        while let event = connection.nextEvent() {
            guard case .selection(let selection, let owner) = event else { continue }
            windows[selection] = owner == xcb_window_t(XCB_NONE) ? nil : owner
            isChanged = true
        }
        return isChanged
    }

    private func readOwners() {
        guard !windows.isEmpty else {
            owners = []
            return
        }
        let processes = connection.answer(to: connection.askProcesses(of: Array(windows.values)))
        owners = Set(windows.values.compactMap { processes[connection.client(of: $0)] })
    }
}
