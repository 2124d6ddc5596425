import CXCB

/// Watches which processes own the clipboard and the primary selection of an X server (Inter-Client Communication
/// Conventions Manual, "Selection Atoms"), and which one manages the clipboard. XFixes reports each change, and owners
/// that are gone.
public final class X11SelectionObserver: SelectionObserver {
    public private(set) var owners: [Selection: Set<Int32>] = [:]
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
        let atoms = connection.atoms(["CLIPBOARD", "PRIMARY", "CLIPBOARD_MANAGER"])
        selections = Dictionary(zip(atoms, [.clipboard, .primary, .clipboardManager])) { first, _ in first }
        // First the events, then the owners: a change in between is seen twice rather than never.
        try connection.watch(selections: atoms)
        windows = connection.owners(of: atoms)
        try dispatch(afresh: true)
    }

    public var subject: String { "selections of X11 display \(connection.display)" }
    public var descriptor: Int32 { connection.descriptor }

    public func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    public func dispatch() throws(ObserverFailure) { try dispatch(afresh: false) }

    private func dispatch(afresh: Bool) throws(ObserverFailure) {
        var isChanged = takeEvents() || afresh
        // While the server is queried for the process of a window, more events may arrive; a client that sets
        // a selection again and again must not block us here.
        for _ in 0..<Self.mostRounds where isChanged {
            readOwners()
            isChanged = takeEvents()
        }
        guard connection.isAlive else {
            throw .ended("the X server at display \(connection.display) has ended")
        }
        // Events that were taken from the socket do not make it readable again.
        if isChanged || isBehind {
            readOwners()
            connection.wake()
        } else {
            connection.flush()
        }
    }

    private static let mostRounds = 8

    private static let mostEvents = 10_000
    /// More events may have arrived than were taken.
    private var isBehind = false

    private func takeEvents() -> Bool {
        var isChanged = false
        var left = Self.mostEvents
        while left > 0, let event = connection.nextEvent() {
            left -= 1
            guard case .selection(let selection, let owner) = event else { continue }
            windows[selection] = owner == xcb_window_t(XCB_NONE) ? nil : owner
            if let name = selections[selection] { changes[name, default: 0] += 1 }
            isChanged = true
        }
        isBehind = left == 0
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
                owners[selection] = processes[connection.client(of: window)].map { [$0] }
            }
        }
    }
}
