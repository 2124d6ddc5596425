import Glibc
import Linux

/// Watches the windows of niri over its IPC socket (niri-ipc, "Event stream"): niri first sends everything, then each
/// change.
///
/// A window counts as visible on a workspace that an output shows, also where its columns are scrolled out of the screen.
/// niri does not minimize windows.
public final class NiriObserver: WindowObserver {
    public let system = WindowSystem.niri
    public private(set) var windows: [ObservedWindow] = []
    private let path: String
    private let proc = Proc()
    private let events: LineSocket
    private var desk = NiriDesk()
    /// The connection of the last request, which niri answers.
    private var request: Descriptor?
    /// Processes that show the windows of an X server as their own.
    private var satellites: Set<Int32> = []

    /// - Parameter path: as in NIRI_SOCKET.
    public init(path: String) throws(ObserverFailure) {
        self.path = path
        events = try LineSocket(path: path)
        guard LocalSocket.send(Array("\"EventStream\"\n".utf8), over: events.descriptor) else {
            throw .unreachable("\(path) takes no request")
        }
        try waitForWindows()
    }

    public var subject: String { "niri at \(path)" }
    public var descriptor: Int32 { events.descriptor }
    public var isBlind: Bool { !desk.isKnown }
    public var desktopProcesses: Set<Int32> { satellites.union([events.process].compactMap(\.self)) }

    public func dispatch() throws(ObserverFailure) {
        for line in try events.lines() {
            do throws(JSONReader.Failure) {
                try desk.take(line)
            } catch {
                throw .ended("\(subject): \(error)")
            }
        }
        windows = Array(desk.picture.prefix(ObservedWindow.mostWindows))
        satellites = Set(
            Set(windows.compactMap(\.process)).filter { (try? proc.program(of: $0)) == "xwayland-satellite" })
    }

    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        for (id, _) in desk.windows
        where windows.contains(UInt64(bitPattern: id) & WindowSystem.windowNumbers) {
            let connection = try LocalSocket.connect(to: path)
            let action = #"{"Action":{"FocusWindow":{"id":\#(id)}}}"# + "\n"
            _ = LocalSocket.send(Array(action.utf8), over: connection.rawValue)
            request = consume connection
        }
    }
}

/// The windows of niri, and what its events change.
struct NiriDesk {
    struct Window {
        var id: Int64 = 0
        var observed = ObservedWindow(number: 0, process: nil)
        var workspace: Int64?
    }

    struct Workspace {
        var id: Int64 = 0
        var output = ""
        /// Its output shows it.
        var isActive = false
    }

    private(set) var windows: [Int64: Window] = [:]
    private var workspaces: [Int64: Workspace] = [:]
    private var kinds: Set<String> = []

    /// Both lists have arrived.
    var isKnown: Bool { kinds.count == 2 }

    /// A window may be reported before its workspace.
    var picture: [ObservedWindow] {
        windows.sorted { $0.key < $1.key }.map { _, window in
            let isShown = window.workspace.map { workspaces[$0]?.isActive ?? true } ?? true
            let observed = window.observed
            return ObservedWindow(
                number: observed.number, process: observed.process, appID: observed.appID,
                title: observed.title,
                focused: observed.focused, visible: isShown)
        }
    }

    /// Takes one line: an event, or the answer to the request.
    mutating func take(_ line: [UInt8]) throws(JSONReader.Failure) {
        var (json, desk) = (JSONReader(line), self)
        try json.object { event, json throws(JSONReader.Failure) in
            guard Self.events.contains(event) else { return try json.skip() }
            var (id, isGiven): (Int64?, Bool) = (nil, false)
            try json.object { key, json throws(JSONReader.Failure) in
                switch key {
                case "windows":
                    desk.windows = [:]
                    try json.array { json throws(JSONReader.Failure) in desk.put(try Window(&json)) }
                case "workspaces":
                    desk.workspaces = [:]
                    try json.array { json throws(JSONReader.Failure) in
                        let workspace = try Workspace(&json)
                        desk.workspaces[workspace.id] = workspace
                    }
                case "window": desk.put(try Window(&json))
                case "id": (id, isGiven) = (try json.null() ? nil : try json.integer(), true)
                default: try json.skip()
                }
            }
            switch event {
            case "WindowsChanged", "WorkspacesChanged": desk.kinds.insert(event)
            case "WindowClosed": if let id { desk.windows[id] = nil }
            case "WindowFocusChanged": if isGiven { desk.focus(id) }
            case "WorkspaceActivated": if let id { desk.show(id) }
            default: break
            }
        }
        self = desk
    }

    private static let events: Set<String> = [
        "WindowsChanged", "WindowOpenedOrChanged", "WindowClosed", "WindowFocusChanged", "WorkspacesChanged",
        "WorkspaceActivated",
    ]

    private mutating func put(_ window: Window) {
        if window.observed.focused { focus(nil) }
        windows[window.id] = window
    }

    private mutating func focus(_ id: Int64?) {
        for key in windows.keys { windows[key]?.observed.focused = key == id }
    }

    private mutating func show(_ id: Int64) {
        for (key, other) in workspaces where other.output == workspaces[id]?.output {
            workspaces[key]?.isActive = key == id
        }
    }
}

extension NiriDesk.Window {
    fileprivate init(_ json: inout JSONReader) throws(JSONReader.Failure) {
        var window = NiriDesk.Window()
        try json.object { key, json throws(JSONReader.Failure) in
            switch key {
            case "id":
                window.id = try json.integer()
                window.observed.number = UInt64(bitPattern: window.id) & WindowSystem.windowNumbers
            case "title": window.observed.title = try json.text()
            case "app_id": window.observed.appID = try json.text()
            case "pid": window.observed.process = try json.null() ? nil : Int32(exactly: try json.integer())
            case "workspace_id": window.workspace = try json.null() ? nil : try json.integer()
            case "is_focused": window.observed.focused = try json.bool()
            default: try json.skip()
            }
        }
        self = window
    }
}

extension NiriDesk.Workspace {
    fileprivate init(_ json: inout JSONReader) throws(JSONReader.Failure) {
        var workspace = NiriDesk.Workspace()
        try json.object { key, json throws(JSONReader.Failure) in
            switch key {
            case "id": workspace.id = try json.integer()
            case "output": workspace.output = try json.text()
            case "is_active": workspace.isActive = try json.bool()
            default: try json.skip()
            }
        }
        self = workspace
    }
}
