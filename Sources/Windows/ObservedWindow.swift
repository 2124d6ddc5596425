/// What is known of one window of the session.
public struct ObservedWindow: Equatable, Sendable {
    /// Names the window for as long as it exists; less than 2^48, unique within its window system.
    public var number: UInt64
    /// The process that made it, in the PID namespace of its display server; nil where the server does not know.
    public var process: Int32?
    /// The application as the window system names it: the class of WM_CLASS on X11, `app_id` on Wayland. At most
    /// `longestText` bytes; empty where there is none.
    public var appID: String
    /// At most `longestText` bytes, without NUL.
    public var title: String
    /// It has the keyboard focus. At most one window of a window system has; one that is not visible never.
    public var focused: Bool
    /// It is on a workspace that is shown. One that is only covered by others is visible.
    public var visible: Bool
    /// The user has put it away; it is neither visible nor focused then.
    public var minimized: Bool

    /// It stands for windows of which nobody knows whether they are this process's or another's.
    public var isShared: Bool

    /// The longest app id and title, in bytes. The daemon takes 1,024 (dbus-api, "Limits"); a whole set of
    /// `mostWindows` must stay below a message of 1 MiB.
    public static let longestText = 255

    /// The most windows that an observer tells of, in the order of its window system: what the daemon remembers of
    /// windows whose processes are not registered.
    public static let mostWindows = 1_024

    /// A window; `minimized` wins over `visible`, and that over `focused`. Texts are cut.
    public init(
        number: UInt64, process: Int32?, appID: String = "", title: String = "", focused: Bool = false,
        visible: Bool = true, minimized: Bool = false, isShared: Bool = false
    ) {
        self.number = number
        self.process = process
        self.appID = appID
        self.title = title
        self.visible = visible && !minimized
        self.focused = focused && self.visible
        self.minimized = minimized
        self.isShared = isShared
    }

    /// The title carries the mark that toolkits give a document with unsaved changes: `*`, `•` or `●` before all else, as with
    /// GTK; `*` before the application's name or at the end, where Qt has it (QWidget's `windowModified`).
    public var hasUnsavedMark: Bool {
        let title = Array(title.unicodeScalars)
        if let first = title.first(where: { $0 != " " }), "*•●".unicodeScalars.contains(first) { return true }
        return title.indices.contains { index in
            guard title[index] == "*" else { return false }
            let rest = title[(index + 1)...].prefix(3)
            return rest.isEmpty
                || rest.count == 3 && rest.first == " " && rest.last == " "
                    && "-–—".unicodeScalars.contains(rest[index + 2])
        }
    }

    /// Text of others as it may be passed on: up to the first NUL, at most `longestText` bytes, whole characters.
    public static func text(_ bytes: some Sequence<UInt8>) -> String {
        // A text that is not UTF-8 gets longer by what stands for its broken bytes.
        var text = String(decoding: Array(bytes.prefix { $0 != 0 }.prefix(longestText)), as: UTF8.self)
        while text.utf8.count > longestText || text.unicodeScalars.last == "\u{FFFD}" {
            text.unicodeScalars.removeLast()
        }
        return text
    }
}
