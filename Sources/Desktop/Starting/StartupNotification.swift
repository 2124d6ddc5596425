/// The messages of a startup sequence on X11, and what the program is told of it: the Startup Notification protocol 0.1.
///
/// A sequence begins with `new`, and ends with `remove`, which the program sends itself where it knows of such things.
public struct StartupNotification: Equatable, Sendable {
    /// What the sequence and its windows are known by.
    public let id: String

    /// A sequence that another has begun, or a token of a Wayland compositor.
    public init(id: String) { self.id = id }

    /// A new one.
    ///
    /// - Parameters:
    ///   - host: the name of this machine.
    ///   - pid: our process.
    ///   - number: tells it from our others.
    ///   - time: the time on the X server at which the person asked for it; 0: nobody knows.
    public init(host: String, pid: Int32, number: UInt64, time: UInt32) {
        // What follows `_TIME` is the time, and a blank or a slash would have others take it apart.
        let host = String(
            decoding: host.utf8.map { Self.isPlain($0) ? $0 : UInt8(ascii: "-") }, as: UTF8.self)
        id = "appstate-session-\(host)-\(pid)-\(number)_TIME\(time)"
    }

    /// The time on the X server that the id tells; nil: it tells none.
    public var time: UInt32? {
        let mark = Array("_TIME".utf8)
        let bytes = Array(id.utf8)
        guard bytes.count > mark.count,
            let place = (0...(bytes.count - mark.count)).last(where: { bytes[$0...].starts(with: mark) })
        else { return nil }
        return UInt32(String(decoding: bytes[(place + mark.count)...], as: UTF8.self))
    }

    /// What is told as it begins.
    ///
    /// - Parameters:
    ///   - entry: what is started.
    ///   - program: the file of its program.
    ///   - screen: the number of the screen.
    ///   - host: the name of this machine.
    public func beginning(of entry: DesktopEntry, program: String, screen: Int, host: String) -> String {
        var values = [
            ("ID", id), ("NAME", entry.name), ("SCREEN", "\(screen)"), ("HOSTNAME", host),
            ("BIN", program.split(separator: "/").last.map(String.init) ?? program),
            ("DESCRIPTION", "Starting \(entry.name)"), ("APPLICATION_ID", entry.path),
        ]
        if let icon = entry.icon { values.append(("ICON", icon)) }
        if let name = entry.startupWMClass { values.append(("WMCLASS", name)) }
        if let time { values.append(("TIMESTAMP", "\(time)")) }
        return Self.message("new", values)
    }

    /// What is told of its process, once that is known.
    public func change(pid: Int32) -> String { Self.message("change", [("ID", id), ("PID", "\(pid)")]) }

    /// What is told as it ends.
    public var end: String { Self.message("remove", [("ID", id)]) }

    /// What the program finds in its environment.
    public var environment: [(name: String, value: String)] {
        [("DESKTOP_STARTUP_ID", id), ("XDG_ACTIVATION_TOKEN", id)]
    }

    private static func message(_ kind: String, _ values: [(String, String)]) -> String {
        "\(kind):" + values.map { " \($0)=\(quoted($1))" }.joined()
    }

    /// In double quotes, with a backslash before each of these and before itself. A NUL would end the message.
    private static func quoted(_ value: String) -> String {
        var bytes = [UInt8(ascii: "\"")]
        for byte in value.utf8 where byte != 0 {
            if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { bytes.append(UInt8(ascii: "\\")) }
            bytes.append(byte)
        }
        return String(decoding: bytes + [UInt8(ascii: "\"")], as: UTF8.self)
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || byte == UInt8(ascii: ".")
    }
}
