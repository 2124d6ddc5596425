import CXCB
import Glibc

/// Announces starts to an X11 desktop, so that it can show them and knows when the user requested them:
/// messages to the root window (Startup Notification Protocol 0.2).
public final class StartupNotifier {
    private let connection: XConnection
    private let window: xcb_window_t
    private let begin: xcb_atom_t
    private let more: xcb_atom_t
    private var lastNumber: UInt64 = 0

    /// The announced data about one start.
    public struct Start: Equatable, Sendable {
        /// Its name for the user.
        public var name: String
        /// The file name of its program; nil: not known.
        public var program: String?
        /// The icon's name; nil: none.
        public var icon: String?
        /// Name or class of the window that it will have; nil: not known.
        public var windowClass: String?
        /// The desktop entry's id.
        public var applicationID: String

        /// The data about a start.
        public init(
            name: String, program: String? = nil, icon: String? = nil, windowClass: String? = nil,
            applicationID: String
        ) {
            self.name = name
            self.program = program
            self.icon = icon
            self.windowClass = windowClass
            self.applicationID = applicationID
        }
    }

    /// Connects, and creates the window that its messages name.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    /// - Throws: `unreachable` if no server answers.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        let atoms = connection.atoms(["_NET_STARTUP_INFO_BEGIN", "_NET_STARTUP_INFO"])
        (begin, more) = (atoms[0], atoms[1])
        window = connection.makeHiddenWindow()
    }

    deinit {
        // If we exit with unread data, the server does not read the rest of our earlier messages.
        _ = connection.focus()
    }

    /// Whether the server is still there.
    public var isAlive: Bool { connection.isAlive }

    /// Announces a start.
    ///
    /// - Returns: its id, for DESKTOP_STARTUP_ID; it ends with the server's time now.
    public func begin(_ start: Start) -> String {
        lastNumber += 1
        let time = connection.time(by: window)
        let id = "appstate-session-\(getpid())-\(Self.host)-\(lastNumber)_TIME\(time)"
        var message = "new: ID=\(Self.quoted(id)) NAME=\(Self.quoted(start.name)) SCREEN=\(connection.screen)"
        message += " APPLICATION_ID=\(Self.quoted(start.applicationID))"
        if let program = start.program { message += " BIN=\(Self.quoted(program))" }
        if let icon = start.icon { message += " ICON=\(Self.quoted(icon))" }
        if let windowClass = start.windowClass { message += " WMCLASS=\(Self.quoted(windowClass))" }
        send(message)
        return id
    }

    /// Announces that it has a window, or will have none.
    ///
    /// - Parameter id: as `begin` returned it.
    public func end(_ id: String) { send("remove: ID=\(Self.quoted(id))") }

    private func send(_ text: String) {
        connection.broadcast(Array(text.utf8) + [0], from: window, begin: begin, more: more)
    }

    /// Adds quotation marks, and a backslash before characters that have a meaning within them.
    static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in ObservedWindow.text(text.utf8).unicodeScalars {
            if scalar == "\"" || scalar == "\\" { quoted += "\\" }
            quoted.unicodeScalars.append(scalar)
        }
        return quoted + "\""
    }

    private static var host: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "localhost" }
        return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
