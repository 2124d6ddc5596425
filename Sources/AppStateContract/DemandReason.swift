/// Why the session agent says that somebody needs an application. Other reporters may have reasons of their own.
public enum DemandReason: String, Sendable, CaseIterable {
    /// Somebody calls it on the session bus.
    case call
    /// Its program was started once more.
    case start
    /// Somebody connects to a local socket on which it listens.
    case connection
    /// Somebody asks the window manager to close a window of it.
    case close
    /// Somebody asks the window manager to bring a window of it to the front.
    case activate
    /// The session manager asks whether the session may end.
    case sessionEnd = "session-end"
    /// The X server answers nobody: this one may have it to itself.
    case grab
}
