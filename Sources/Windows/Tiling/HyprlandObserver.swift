import Linux

/// Watches the windows of Hyprland over its two sockets (Hyprland wiki, "IPC"): one announces changes, the other answers
/// one request on each connection. After a change, everything is asked for again. Only a new title is taken from the event
/// itself.
///
/// Windows on a special workspace that is not shown count as minimized, as those in sway's scratchpad.
public final class HyprlandObserver: WindowObserver {
    public let system = WindowSystem.hyprland
    public private(set) var windows: [ObservedWindow] = []
    private let directory: String
    private let polled: PollSet
    private let events: LineSocket
    /// The connection on which the answer arrives; nil: none is expected.
    private var question: Descriptor?
    private var answer: [UInt8] = []
    /// The connection of the last command, whose answer does not matter.
    private var command: Descriptor?
    private var isStale = true
    public private(set) var isBlind = true

    /// - Parameter directory: of its sockets: HYPRLAND_INSTANCE_SIGNATURE in `hypr` in XDG_RUNTIME_DIR.
    public init(directory: String) throws(ObserverFailure) {
        self.directory = directory
        events = try LineSocket(path: directory + "/.socket2.sock")
        do throws(KernelFailure) {
            polled = try PollSet()
            try polled.add(events.descriptor)
        } catch {
            throw .unreachable("\(error)")
        }
        try ask()
        try waitForWindows()
    }

    public var subject: String { "Hyprland at \(directory)" }
    public var descriptor: Int32 { polled.descriptor }
    public var desktopProcesses: Set<Int32> { Set([events.process].compactMap(\.self)) }

    public func dispatch() throws(ObserverFailure) {
        for line in try events.lines() { take(String(decoding: line, as: UTF8.self)) }
        if let connection = question?.rawValue, LocalSocket.receive(&answer, from: connection) != nil {
            // It closes the connection after the answer.
            question = nil
            do throws(JSONReader.Failure) {
                windows = try Self.windows(answer)
                isBlind = false
            } catch {
                throw .ended("\(subject): \(error)")
            }
        }
        if isStale, question == nil { try ask() }
    }

    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        try dispatch(windows) { window in
            [
                "movetoworkspacesilent special:minimized,\(window)",
                #"hl.dsp.window.move({ workspace = "special:minimized", follow = false, window = "\#(window)" })"#,
            ]
        }
    }

    /// This also shows a window that is on a special workspace.
    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        try dispatch(windows) { ["focuswindow \($0)", #"hl.dsp.focus({ window = "\#($0)" })"#] }
    }

    /// Hyprland takes commands in its own language, or since 0.56 in Lua: the other one is an error without an effect.
    private func dispatch(_ windows: [UInt64], _ commands: (_ window: String) -> [String])
        throws(ObserverFailure)
    {
        for window in windows {
            let all = commands("address:0x" + String(window, radix: 16)).map { "dispatch \($0)" }
            command = try send("[[BATCH]]" + all.joined(separator: ";"))
        }
    }

    private func ask() throws(ObserverFailure) {
        (isStale, answer) = (false, [])
        let connection = try send("[[BATCH]]j/clients;j/monitors;j/activewindow")
        do throws(KernelFailure) {
            try polled.add(connection.rawValue)
        } catch {
            throw .ended("\(error)")
        }
        question = consume connection
    }

    /// Hyprland waits for the request of each connection, so it is sent at once.
    private func send(_ request: String) throws(ObserverFailure) -> Descriptor {
        let connection = try LocalSocket.connect(to: directory + "/.socket.sock")
        guard LocalSocket.send(Array(request.utf8), over: connection.rawValue) else {
            throw .ended("\(subject) takes no request")
        }
        return connection
    }

    /// Events that say nothing about windows; `windowtitle` precedes `windowtitlev2`.
    private static let others: Set<Substring> = [
        "windowtitle", "activelayout", "submap", "screencast", "bell", "urgent", "configreloaded",
    ]

    private func take(_ line: String) {
        let name = line.prefix { $0 != ">" }
        guard name == "windowtitlev2" else {
            if !Self.others.contains(name) { isStale = true }
            return
        }
        let parts = line.dropFirst(name.count + 2).split(
            separator: ",", maxSplits: 1, omittingEmptySubsequences: false)
        let number = parts.first.flatMap { UInt64($0, radix: 16) }
        guard parts.count == 2, let index = windows.firstIndex(where: { $0.number == number }) else { return }
        windows[index].title = ObservedWindow.text(parts[1].utf8)
    }

    // MARK: The answer

    /// The three answers follow each other.
    private static func windows(_ text: [UInt8]) throws(JSONReader.Failure) -> [ObservedWindow] {
        var json = JSONReader(text)
        var clients: [Client] = []
        try json.array { json throws(JSONReader.Failure) in clients.append(try Client(&json)) }
        var shown: Set<String> = []
        try json.array { json throws(JSONReader.Failure) in
            try json.object { key, json throws(JSONReader.Failure) in
                guard ["activeWorkspace", "specialWorkspace"].contains(key) else { return try json.skip() }
                shown.insert(try name(&json))
            }
        }
        // That of no special workspace.
        shown.remove("")
        var active: UInt64?
        try json.object { key, json throws(JSONReader.Failure) in
            if key == "address" { active = Client.number(try json.string()) } else { try json.skip() }
        }
        return clients.prefix(ObservedWindow.mostWindows).map { client in
            let isShown = client.isPinned || shown.contains(client.workspace)
            return ObservedWindow(
                number: client.number, process: client.process, appID: client.appID, title: client.title,
                focused: client.number == active, visible: isShown && !client.isHidden,
                minimized: client.workspace.hasPrefix("special") && !isShown)
        }
    }

    /// The name of a workspace: since 0.56 not every one has an id.
    private static func name(_ json: inout JSONReader) throws(JSONReader.Failure) -> String {
        var name = ""
        try json.object { key, json throws(JSONReader.Failure) in
            if key == "name" { name = try json.text() } else { try json.skip() }
        }
        return name
    }

    private struct Client {
        var number: UInt64 = 0
        var process: Int32?
        var appID = ""
        var title = ""
        var workspace = ""
        /// It is in a group, and not on top.
        var isHidden = false
        /// It is on all workspaces of its monitor.
        var isPinned = false

        /// Its address.
        static func number(_ text: String) -> UInt64? {
            UInt64(text.dropFirst(2), radix: 16).map { $0 & WindowSystem.windowNumbers }
        }

        init(_ json: inout JSONReader) throws(JSONReader.Failure) {
            var client = Client()
            try json.object { key, json throws(JSONReader.Failure) in
                switch key {
                case "address": client.number = Self.number(try json.string()) ?? 0
                case "hidden": client.isHidden = try json.bool()
                case "workspace": client.workspace = try HyprlandObserver.name(&json)
                case "class": client.appID = try json.text()
                case "title": client.title = try json.text()
                case "pid": client.process = Int32(exactly: try json.integer()).flatMap { $0 > 0 ? $0 : nil }
                case "pinned": client.isPinned = try json.bool()
                default: try json.skip()
                }
            }
            self = client
        }

        private init() {}
    }
}
