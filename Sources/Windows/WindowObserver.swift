import Glibc
import Linux

/// Watches the windows of one display server, and causes no wakeups while nothing happens to them.
///
/// Its owner polls `descriptor` and calls `dispatch()` when it is readable; `windows` is the whole present set from
/// then on. Everything that happened before a dispatch is one change: of a thousand focus changes only the
/// last counts.
public protocol WindowObserver: AnyObject {
    /// The system that its windows' numbers belong to.
    var system: WindowSystem { get }
    /// What is watched, for the user: `X11 display :0`.
    var subject: String { get }
    /// Readable when there is something to dispatch. Owned by the observer, open while it lives.
    var descriptor: Int32 { get }
    /// The current windows, as of the last dispatch; at most `ObservedWindow.mostWindows`.
    var windows: [ObservedWindow] { get }
    /// The desktop's own processes, as far as they are known: the display server, the window manager, and the processes
    /// that show a panel or the desktop itself. None of them is an application.
    var desktopProcesses: Set<Int32> { get }
    /// Handles everything that has arrived. It may wait for answers of the display server.
    ///
    /// - Throws: `ended` when the server is gone. After that the observer is useless; `windows` keeps its
    ///   last value.
    func dispatch() throws(ObserverFailure)
    /// Minimizes windows, as a taskbar would. Windows that are gone are skipped.
    ///
    /// - Parameter windows: their numbers.
    /// - Throws: `unsupported` if this display server does not allow that.
    func minimize(_ windows: [UInt64]) throws(ObserverFailure)
    /// Brings windows to the front, as a taskbar would: on the desktop where they are, minimized or not. The last one
    /// gets the focus. Windows that are gone are skipped.
    ///
    /// - Parameters:
    ///   - windows: their numbers.
    ///   - token: the startup id or activation token of the user's action; nil: there is none. For windows of X11, its
    ///     time counts.
    /// - Throws: `unsupported` if this display server does not allow that.
    func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure)
    /// Takes the keyboard focus away from X11 windows until `giveFocusBack()`; `windows` does not show that. Compositors
    /// need no such thing: they release the pointer themselves when another window gets the focus.
    ///
    /// - Parameter windows: their numbers.
    /// - Returns: whether one of them had it.
    func takeFocus(from windows: [UInt64]) -> Bool
    /// Gives it back, unless another window has got it.
    func giveFocusBack()
    /// Whether the pointer or the keyboard of an X server is probably grabbed for one of these windows.
    func isGrabbed(for windows: [UInt64]) -> Bool
    /// Calls `handler` every 100 ms while an X server does not answer a request, with the number of calls so far for
    /// this answer. An application that was stopped while it had grabbed the server keeps every client waiting.
    func onStall(_ handler: @escaping (_ times: Int) -> Void)
    /// Messages for the user about the interpretation of the windows, each once.
    func takeNotices() -> [String]
    /// Nothing is known about the windows at present: `windows` keeps its last value, and must not be taken
    /// as a sign that a window is hidden.
    var isBlind: Bool { get }
    /// Sets the names under which all processes are registered with the daemon, by pid; this may change
    /// `windows`.
    func learn(names: [Int32: String])
}

extension WindowObserver {
    public func takeNotices() -> [String] { [] }
    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        throw .unsupported("\(subject) does not let other programs minimize windows")
    }
    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        throw .unsupported("\(subject) does not let other programs activate windows")
    }
    public func takeFocus(from windows: [UInt64]) -> Bool { false }
    public func giveFocusBack() {}
    public func isGrabbed(for windows: [UInt64]) -> Bool { false }
    /// Reads the first set of windows.
    func waitForWindows() throws(ObserverFailure) {
        let deadline = Patience.deadline
        while isBlind {
            guard Patience.wait(for: descriptor, until: deadline) else {
                throw .unreachable("\(subject) does not answer")
            }
            try dispatch()
        }
    }

    public var isBlind: Bool { false }
    public func onStall(_ handler: @escaping (_ times: Int) -> Void) {}
    public var desktopProcesses: Set<Int32> { [] }
    public func learn(names: [Int32: String]) {}
}

/// The kinds of observers. The value becomes part of the numbers that reporters give to windows, so that the numbers of
/// two observers never coincide. When an observer is started anew, the numbers are the same again, except with
/// `foreignToplevel` and `plasma`, whose windows then get numbers that none had before.
public enum WindowSystem: UInt16, Sendable, CaseIterable {
    case x11 = 1
    case sway = 2
    case i3 = 3
    case foreignToplevel = 4
    case plasma = 5
    case gnome = 6
    case kwinScript = 7
    case niri = 8
    case hyprland = 9

    /// The numbers that `ObservedWindow.number` may have.
    static let windowNumbers: UInt64 = 1 << 48 - 1

    /// A number that is unique in the session, for a window's own.
    public func number(of window: ObservedWindow) -> UInt64 {
        UInt64(rawValue) << 48 | window.number
    }

    /// A window's own number; nil: the number is of another system's window.
    public func window(numbered number: UInt64) -> UInt64? {
        number >> 48 == UInt64(rawValue) ? number & Self.windowNumbers : nil
    }
}

/// Why windows cannot be watched, or can no longer be.
public enum ObserverFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// There is no such server, it refuses the connection, or it lacks a needed feature; this may change
    /// soon.
    case unreachable(String)
    /// There is a server, but it will never report windows in a supported way.
    case unsupported(String)
    /// The server has ended, or has disconnected us.
    case ended(String)

    /// One sentence.
    public var description: String {
        switch self {
        case .unreachable(let sentence), .unsupported(let sentence), .ended(let sentence): sentence
        }
    }
}

/// How long observers wait at their start.
enum Patience {
    /// How long a server may take for its first answer, in microseconds. While a session starts, the machine
    /// is busy.
    static let span: UInt64 = 20_000_000

    /// The end of this time.
    static var deadline: UInt64 { Clock.monotonicMicroseconds + span }

    /// Waits until the descriptor is readable; false once the deadline has passed.
    static func wait(for descriptor: Int32, until deadline: UInt64) -> Bool {
        var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        let now = min(Clock.monotonicMicroseconds, deadline)
        return poll(&ready, 1, Int32(clamping: (deadline - now) / 1_000)) != 0
    }
}
