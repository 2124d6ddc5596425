/// Why the session agent says that somebody needs an application. Other reporters may have reasons of their own.
public enum DemandReason: String, Sendable, CaseIterable {
    /// Somebody calls it on the session bus.
    case call
    /// Its program was started once more.
    case start
}
