/// Why the session agent reports that an application is needed. Other reporters may have reasons of their own.
public enum DemandReason: String, Sendable, CaseIterable {
    /// Another process calls it on the session bus, the system bus or the bus of accessibility.
    case call
    /// Its program was started again.
    case start
    /// Another process connects to a local socket on which it listens.
    case connection
    /// It, or the window manager, was asked to close one of its windows.
    case close
    /// Its display server has sent it something that may be a request to close one of its windows. Whether it is cannot
    /// be told.
    case message
    /// The window manager was asked to bring one of its windows to the front.
    case activate
    /// The user has pressed a key or a button for it although none of its windows is visible: in a menu, or
    /// on an icon. Or so many input events over its windows are pending that the display server may soon
    /// disconnect it.
    case input
    /// Another client pastes text that was selected in it.
    case paste
    /// The user has clicked one of its notifications or replied to it, pressed one of its global shortcuts or a media
    /// key, or answered a dialog that the desktop has shown for it.
    case action
    /// The session manager asks whether the session may end.
    case sessionEnd = "session-end"
    /// The X server answers no client, and this application may have grabbed it.
    case grab
    /// A service for which it may be waiting has appeared, such as a tray for icons.
    case announcement

    /// Whether the application is asked to exit, or to close a window. Then it runs even if a user has suspended it.
    public var asksToEnd: Bool { self == .close || self == .sessionEnd }

    /// Whether the application is to do nothing but give an answer to a program.
    public var asksForAnswer: Bool { [.call, .connection, .announcement].contains(self) }
}
