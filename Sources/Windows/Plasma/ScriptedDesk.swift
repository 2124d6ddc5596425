import Linux

/// The reports of our script in KWin about windows (dbus/org.appstate1.Windows.xml), and their meaning, which
/// is the same as with KWin's protocol.
public struct ScriptedDesk {
    /// The data about one window.
    private struct Client {
        let window: ObservedWindow
        let isOnAllDesktops: Bool
        /// A panel or the like, which stays when the desktop is shown. Some applications' windows count, too.
        let skipsTaskbar: Bool
    }

    /// The reported text is not a list of windows.
    public struct Unreadable: Error, Equatable, Sendable, CustomStringConvertible {
        /// One sentence.
        public let description: String
    }

    private var clients: [Client] = []
    /// “Show desktop” is on, of which the script is not notified.
    public var isShown = false

    /// No windows.
    public init() {}

    /// At most `ObservedWindow.mostWindows`.
    public var windows: [ObservedWindow] {
        clients.map { client in
            var window = client.window
            if isShown, !client.skipsTaskbar { (window.visible, window.focused) = (false, false) }
            return window
        }
    }

    /// The processes of panels and of the desktop itself, whose windows are on all desktops, and not in the task bar.
    public var fixtures: Set<Int32> {
        Set(clients.filter { $0.skipsTaskbar && $0.isOnAllDesktops }.compactMap(\.window.process))
    }

    /// Reads the whole present set.
    ///
    /// - Parameter json: as the script sends it.
    /// - Throws: if the text is not such a list; then the set does not change.
    public mutating func take(_ json: some Sequence<UInt8>) throws(Unreadable) {
        do throws(JSONReader.Failure) {
            clients = try Self.clients(JSONReader(Array(json)))
        } catch {
            throw Unreadable(description: "\(error)")
        }
    }

    private static func clients(_ text: JSONReader) throws(JSONReader.Failure) -> [Client] {
        var json = text
        var clients: [Client] = []
        try json.beginArray()
        while try json.nextElement() {
            let client = try Self.client(&json)
            if let client, clients.count < ObservedWindow.mostWindows { clients.append(client) }
        }
        try json.end()
        return clients
    }

    /// Nil for a number that does not fit 48 bits: `WindowSystem.number(of:)`.
    private static func client(_ json: inout JSONReader) throws(JSONReader.Failure) -> Client? {
        try json.beginArray()
        try Self.expectElement(&json)
        let number = try json.integer()
        try Self.expectElement(&json)
        let process = try json.integer()
        try Self.expectElement(&json)
        let appID = try json.stringBytes()
        try Self.expectElement(&json)
        let title = try json.stringBytes()
        var flags: [Bool] = []
        while try json.nextElement() { flags.append(try json.bool()) }
        guard flags.count == 5 else { throw json.failure("five booleans") }
        guard let number = UInt64(exactly: number), number >> 48 == 0 else { return nil }
        return Client(
            window: ObservedWindow(
                number: number, process: Int32(exactly: process).flatMap { $0 > 0 ? $0 : nil },
                appID: ObservedWindow.text(appID), title: ObservedWindow.text(title), focused: flags[0],
                visible: flags[2] || flags[3], minimized: flags[1]), isOnAllDesktops: flags[2],
            skipsTaskbar: flags[4])
    }

    private static func expectElement(_ json: inout JSONReader) throws(JSONReader.Failure) {
        guard try json.nextElement() else { throw json.failure("one more element") }
    }
}
