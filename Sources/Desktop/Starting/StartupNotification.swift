/// The messages of a startup sequence on X11, and the variables that the program gets: the Startup Notification
/// protocol 0.1.
///
/// A sequence begins with `new` and ends with `remove`. A program that supports startup notification sends `remove`
/// itself.
public struct StartupNotification: Equatable, Sendable {
    /// The identifier of the sequence and of its windows.
    public let id: String

    /// A sequence that another process has begun, or a token of a Wayland compositor.
    public init(id: String) { self.id = id }

    /// A new sequence.
    ///
    /// - Parameters:
    ///   - host: the name of this machine.
    ///   - pid: the PID of our process.
    ///   - number: distinguishes the sequence from our other sequences.
    ///   - time: the X server time at which the user asked for the start; 0: unknown.
    public init(host: String, pid: Int32, number: UInt64, time: UInt32) {
        // The text after `_TIME` is the time, and other programs would split the id at a blank or a slash.
        let host = String(
            decoding: host.utf8.map { Self.isPlain($0) ? $0 : UInt8(ascii: "-") }, as: UTF8.self)
        id = "appstate-session-\(host)-\(pid)-\(number)_TIME\(time)"
    }

    /// The X server time in the id. Nil: the id has no time.
    public var time: UInt32? {
        let mark = Array("_TIME".utf8)
        let bytes = Array(id.utf8)
        guard bytes.count > mark.count,
            let place = (0...(bytes.count - mark.count)).last(where: { bytes[$0...].starts(with: mark) })
        else { return nil }
        return UInt32(String(decoding: bytes[(place + mark.count)...], as: UTF8.self))
    }

    /// The message that begins the sequence.
    ///
    /// - Parameters:
    ///   - entry: the entry that is started.
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

    /// The message that announces the PID, once it is known.
    public func change(pid: Int32) -> String { Self.message("change", [("ID", id), ("PID", "\(pid)")]) }

    /// The message that ends the sequence.
    public var end: String { Self.message("remove", [("ID", id)]) }

    /// The environment variables for the program.
    public var environment: [(name: String, value: String)] {
        [("DESKTOP_STARTUP_ID", id), ("XDG_ACTIVATION_TOKEN", id)]
    }

    private static func message(_ kind: String, _ values: [(String, String)]) -> String {
        "\(kind):" + values.map { " \($0)=\(quoted($1))" }.joined()
    }

    /// The value in double quotes, with a backslash before each double quote and each backslash. NULs are removed,
    /// because a NUL would end the message.
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
