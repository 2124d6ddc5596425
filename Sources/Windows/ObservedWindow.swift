/// The data about one window of the session.
public struct ObservedWindow: Equatable, Sendable {
    /// Identifies the window for as long as it exists; less than 2^48, unique within its window system.
    public var number: UInt64
    /// The process that created it, in the PID namespace of its display server; nil if the server does not
    /// know it.
    public var process: Int32?
    /// The application as the window system names it: the class of WM_CLASS on X11, `app_id` on Wayland. At most
    /// `longestText` bytes; empty if there is none.
    public var appID: String
    /// At most `longestText` bytes, without NUL.
    public var title: String
    /// It has the keyboard focus. At most one window of a window system has it, and never a window that is not visible.
    public var focused: Bool
    /// It is on a workspace that is shown. A window that is only covered by others is visible.
    public var visible: Bool
    /// The user has minimized it; then it is neither visible nor focused.
    public var minimized: Bool

    /// It makes its process visible, but says nothing else about it: it represents windows that may belong to this
    /// process or to another one, or the window manager does not manage it.
    public var isShared: Bool

    /// The longest app id and title, in bytes. The daemon takes 1,024 (dbus-api, "Limits"); a whole set of
    /// `mostWindows` must stay below a message of 1 MiB.
    public static let longestText = 255

    /// The most windows that an observer reports, in the order of its window system. This is also the
    /// daemon's limit for windows whose processes are not registered.
    public static let mostWindows = 1_024

    /// A window; `minimized` overrides `visible`, and `visible` overrides `focused`. Texts are truncated.
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

    /// The title carries the mark that toolkits give a document with unsaved changes: `*`, `•` or `●` at the beginning,
    /// as with GTK; `*` before the application's name or at the end, where Qt puts it (QWidget's `windowModified`).
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

    /// Text of other programs in a form that may be forwarded: up to the first NUL, at most `longestText`
    /// bytes, whole characters.
    public static func text(_ bytes: some Sequence<UInt8>) -> String {
        // A text that is not UTF-8 gets longer, because its broken bytes are replaced.
        var text = String(decoding: Array(bytes.prefix { $0 != 0 }.prefix(longestText)), as: UTF8.self)
        while text.utf8.count > longestText || text.unicodeScalars.last == "\u{FFFD}" {
            text.unicodeScalars.removeLast()
        }
        return text
    }
}
