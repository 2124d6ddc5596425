import CXCB

/// Watches which processes own the clipboard and the primary selection of an X server: a program that pastes asks the
/// owner, and waits for it. XFixes reports each change, and owners that are gone.
public final class SelectionObserver {
    /// A selection (Inter-Client Communication Conventions Manual, "Selection Atoms").
    public enum Selection: String, CaseIterable, Sendable {
        /// What was copied.
        case clipboard = "CLIPBOARD"
        /// What is selected.
        case primary = "PRIMARY"
    }

    /// The processes that own the selections, as of the last dispatch.
    public private(set) var owners: [Selection: Int32] = [:]
    /// How often a selection has been taken, also by its present owner.
    public private(set) var changes: [Selection: UInt64] = [:]
    private let connection: XConnection
    private let selections: [xcb_atom_t: Selection]
    private var windows: [xcb_atom_t: xcb_window_t] = [:]

    /// Connects, and reads the present owners.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    /// - Throws: `unreachable` if no server answers, or if it lacks XFixes.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        let all = Selection.allCases
        let atoms = connection.atoms(all.map(\.rawValue))
        selections = Dictionary(zip(atoms, all)) { first, _ in first }
        // First the events, then the owners: a change in between is seen twice rather than never.
        try connection.watch(selections: atoms)
        windows = connection.owners(of: atoms)
        try dispatch(afresh: true)
    }

    /// What is watched, for the user.
    public var subject: String { "selections of X11 display \(connection.display)" }
    /// Readable when there is something to dispatch. Open while the observer lives.
    public var descriptor: Int32 { connection.descriptor }

    /// Calls `handler` every 100 ms while the X server does not answer, with the number of calls so far for this
    /// answer.
    public func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    /// Takes in all that has come. It may wait for answers of the X server.
    ///
    /// - Throws: `ended` when the server is gone.
    public func dispatch() throws(ObserverFailure) { try dispatch(afresh: false) }

    private func dispatch(afresh: Bool) throws(ObserverFailure) {
        var isChanged = takeEvents() || afresh
        // While the server is asked which process a window belongs to, more events may come; a client that takes a
        // selection again and again must not keep us here.
        for _ in 0..<Self.mostRounds where isChanged {
            readOwners()
            isChanged = takeEvents()
        }
        guard connection.isAlive else {
            throw .ended("the X server at display \(connection.display) has ended")
        }
        // Events that were taken from the socket do not make it readable again.
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
            if let name = selections[selection] { changes[name, default: 0] += 1 }
            isChanged = true
        }
        return isChanged
    }

    private func readOwners() {
        guard !windows.isEmpty else {
            owners = [:]
            return
        }
        let processes = connection.answer(to: connection.askProcesses(of: Array(windows.values)))
        owners = [:]
        for (atom, window) in windows {
            if let selection = selections[atom] {
                owners[selection] = processes[connection.client(of: window)]
            }
        }
    }
}
