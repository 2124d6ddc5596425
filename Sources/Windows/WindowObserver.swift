/// Watches the windows of one display server, and wakes nobody while nothing happens to them.
///
/// Whoever owns it polls `descriptor` and calls `dispatch()` when it can be read; `windows` is the whole present set
/// from then on. Whatever happened before a dispatch is one change: of a thousand focus changes the last counts.
public protocol WindowObserver: AnyObject {
    /// Which numbers its windows have.
    var system: WindowSystem { get }
    /// What is watched, for a person: `X11 display :0`.
    var subject: String { get }
    /// Can be read when there is something to dispatch. The observer's own, open while it lives.
    var descriptor: Int32 { get }
    /// The windows that there are, as of the last dispatch; at most `ObservedWindow.mostWindows`.
    var windows: [ObservedWindow] { get }
    /// The desktop's own processes, as far as they are known: the display server, the window manager, and who shows a
    /// panel or the desktop itself. None of them is an application.
    var desktopProcesses: Set<Int32> { get }
    /// Takes in all that has come. It may wait for answers of the display server.
    ///
    /// - Throws: `ended` when the server is gone. The observer is of no use then; `windows` is what was last known.
    func dispatch() throws(ObserverFailure)
    /// Has windows put away, as a taskbar would. Those that are gone are passed over.
    ///
    /// - Parameter windows: their numbers.
    /// - Throws: `unsupported` where this display server lets nobody do that.
    func minimize(_ windows: [UInt64]) throws(ObserverFailure)
    /// Has windows brought to the front, as a taskbar would: on the desktop where they are, minimized or not. The last one
    /// gets the focus. Those that are gone are passed over.
    ///
    /// - Parameters:
    ///   - windows: their numbers.
    ///   - token: the startup id or activation token of what the user did; nil: there is none. Where windows are X11's, the
    ///     time of it counts.
    /// - Throws: `unsupported` where this display server lets nobody do that.
    func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure)
    /// Has `handler` called while an X server does not answer what it was asked, with how often it was for this answer:
    /// every 100 ms. An application that was stopped while it had the server to itself keeps everybody waiting.
    func onStall(_ handler: @escaping (_ times: Int) -> Void)
    /// What a person should know of how the windows were understood, each sentence once.
    func takeNotices() -> [String]
    /// Nothing is known of the windows for now: `windows` is what was last known, and no reason to take one for hidden.
    var isBlind: Bool { get }
    /// Takes the names under which processes are registered with the daemon, all of them, by pid; `windows` may be others
    /// from then on.
    func learn(names: [Int32: String])
}

extension WindowObserver {
    public func takeNotices() -> [String] { [] }
    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        throw .unsupported("\(subject) lets nobody else minimize windows")
    }
    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        throw .unsupported("\(subject) lets nobody else activate windows")
    }
    public var isBlind: Bool { false }
    public func onStall(_ handler: @escaping (_ times: Int) -> Void) {}
    public var desktopProcesses: Set<Int32> { [] }
    public func learn(names: [Int32: String]) {}
}

/// The kinds of observers. The value goes into the numbers that reporters give to windows, so that those of two
/// observers are never the same, and are the same again when the agent is started anew.
public enum WindowSystem: UInt16, Sendable, CaseIterable {
    case x11 = 1
    case sway = 2
    case i3 = 3
    case foreignToplevel = 4
    case plasma = 5
    case gnome = 6
    case kwinScript = 7

    /// A number that is unique in the session, for a window's own.
    public func number(of window: ObservedWindow) -> UInt64 {
        UInt64(rawValue) << 48 | window.number
    }

    /// A window's own number; nil: it is another system's window.
    public func window(numbered number: UInt64) -> UInt64? {
        number >> 48 == UInt64(rawValue) ? number & (1 << 48 - 1) : nil
    }
}

/// Why windows cannot be watched, or can be no more.
public enum ObserverFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// There is no such server, or it does not let us in, or lacks what is needed: perhaps not for long.
    case unreachable(String)
    /// There is a server, and it will never tell of windows in a way that is understood.
    case unsupported(String)
    /// The server has ended, or has cut us off.
    case ended(String)

    /// One sentence.
    public var description: String {
        switch self {
        case .unreachable(let sentence), .unsupported(let sentence), .ended(let sentence): sentence
        }
    }
}
