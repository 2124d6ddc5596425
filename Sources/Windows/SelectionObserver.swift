/// The data that users copy from one application to another: a program that pastes requests it from the
/// owning process, and waits.
public enum Selection: Sendable, CaseIterable {
    /// Copied data: X11's `CLIPBOARD`.
    case clipboard
    /// Selected data: X11's `PRIMARY`.
    case primary
    /// The duty to keep copied data when its owner ends: X11's `CLIPBOARD_MANAGER`. An application that exits hands its
    /// data over to that selection's owner, and waits for it (freedesktop.org, "Clipboard Manager").
    case clipboardManager
}

/// Watches which processes own the selections of a display server, without polling.
public protocol SelectionObserver: AnyObject {
    /// What is watched, for the user: `selections of X11 display :0`.
    var subject: String { get }
    /// Readable when there is something to dispatch. Owned by the observer, open while it lives.
    var descriptor: Int32 { get }
    /// The processes that own a selection, as of the last dispatch. If there are several, one of them is the
    /// owner.
    var owners: [Selection: Set<Int32>] { get }
    /// How often a selection has been set, including by its present owner.
    var changes: [Selection: UInt64] { get }
    /// Handles everything that has arrived. It may wait for answers of the display server.
    ///
    /// - Throws: `ended` when the server is gone.
    func dispatch() throws(ObserverFailure)
    /// As of `WindowObserver`.
    func onStall(_ handler: @escaping (_ times: Int) -> Void)
}

extension SelectionObserver {
    public func onStall(_ handler: @escaping (_ times: Int) -> Void) {}
}
