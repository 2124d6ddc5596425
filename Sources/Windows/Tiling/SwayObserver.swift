import Linux

/// Watches the windows of sway or i3 over their IPC socket. After an event it reads the whole tree again, once for all
/// events that came in the meantime: a switch of the workspace, for example, is not announced window by window. Only a
/// new title is taken from the event itself.
///
/// Only windows in the scratchpad count as minimized. sway reports its Xwayland windows too. i3 does not know
/// which processes windows belong to, so the X server is queried. While i3 restarts in place, the last windows remain
/// valid.
public final class SwayObserver: WindowObserver {
    public let system: WindowSystem
    public private(set) var windows: [ObservedWindow] = []
    private let path: String
    /// Nil: i3 is restarting.
    private var connection: IPCConnection?
    private let restart: I3Restart?
    private let ownDescriptor: Int32
    /// The process that listens.
    private let manager: Int32?
    private let processes: X11Processes?
    /// The processes of panels for which i3 has a place.
    private var fixtures: Set<Int32> = []
    private var isReading = false
    /// When the tree was last asked for, microseconds.
    private var readAt: UInt64 = 0
    private var isStale = true
    private var isKnown = false
    /// Why the last connection has ended.
    private var notice: String?

    /// Watches sway.
    ///
    /// - Parameter path: as in SWAYSOCK.
    public convenience init(sway path: String) throws(ObserverFailure) {
        try self.init(.sway, path, nil)
    }

    /// Watches i3, with the X server that it manages.
    ///
    /// - Parameters:
    ///   - path: as in I3SOCK.
    ///   - display: as in DISPLAY; nil for DISPLAY itself.
    public convenience init(i3 path: String, display: String? = nil) throws(ObserverFailure) {
        try self.init(.i3, path, try X11Processes(display: display))
    }

    /// The socket of i3, according to the X server that it manages: only i3's own children have I3SOCK.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    /// - Returns: nil if i3 does not manage the display.
    public static func i3Socket(display: String? = nil) throws(ObserverFailure) -> String? {
        try X11Processes(display: display).i3Socket()
    }

    private init(_ system: WindowSystem, _ path: String, _ processes: X11Processes?) throws(ObserverFailure) {
        self.system = system
        self.path = path
        self.processes = processes
        let connection = try IPCConnection(path: path)
        self.connection = connection
        manager = connection.process
        // A process that cannot be held counts as ended when its connection ends.
        restart = processes.flatMap { processes in
            connection.process.flatMap { try? I3Restart(of: $0, processes) }
        }
        ownDescriptor = restart?.descriptor ?? connection.descriptor
        try restart?.follow(connection)
        try begin(connection)
        try waitForWindows()
    }

    public func takeNotices() -> [String] {
        defer { notice = nil }
        return notice.map { [$0] } ?? []
    }

    public func onStall(_ handler: @escaping (_ times: Int) -> Void) { processes?.onStall(handler) }

    public var subject: String { "\(system) at \(path)" }
    public var descriptor: Int32 { ownDescriptor }
    public var isBlind: Bool { !isKnown }

    public var desktopProcesses: Set<Int32> {
        fixtures.union([manager, processes?.server].compactMap(\.self))
    }

    public func dispatch() throws(ObserverFailure) {
        do throws(ObserverFailure) {
            try read()
        } catch {
            // A connection that ends may be a restart. It may also be about to end, which is seen then.
            guard restart != nil, connection?.isBroken == true else {
                throw .ended("\(subject) has ended: \(error)")
            }
            notice = "\(subject): \(error)"
            if isKnown { restart?.expect() }
            (connection, isKnown) = (nil, false)
        }
        guard let restart else { return }
        restart.dispatch()
        if restart.hasEnded { throw .ended("\(subject) has ended") }
        guard connection == nil, let again = restart.connect() else { return }
        do throws(ObserverFailure) {
            try restart.follow(again)
            try begin(again)
            connection = again
        } catch {
            // It has closed this connection, too, and announces its socket once more.
        }
    }

    /// A binding may change a layout, which no other event reports.
    private func begin(_ connection: IPCConnection) throws(ObserverFailure) {
        try connection.send(.subscribe, #"["window","workspace","binding","shutdown"]"#)
        try askForTree(connection)
    }

    private func askForTree(_ connection: IPCConnection) throws(ObserverFailure) {
        try connection.send(.getTree)
        (isReading, isStale) = (true, false)
        readAt = Clock.monotonicMicroseconds
    }

    private func read() throws(ObserverFailure) {
        guard let connection else { return }
        for message in try connection.receive() { try take(message) }
        if isStale, !isReading { try askForTree(connection) }
    }

    /// Moves them to the scratchpad, because sway and i3 cannot hide windows in another way.
    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        try command("move scratchpad", windows)
    }

    /// This also shows a window that is in the scratchpad.
    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        try command("focus", windows)
    }

    public func takeFocus(from windows: [UInt64]) -> Bool {
        processes?.borrowed.take(from: windows.compactMap(UInt32.init(exactly:))) ?? false
    }

    public func giveFocusBack() { processes?.borrowed.giveBack() }

    public func isGrabbed(for windows: [UInt64]) -> Bool {
        processes?.borrowed.isGrabbed(for: windows.compactMap(UInt32.init(exactly:)), on: desktopProcesses)
            ?? false
    }

    private func command(_ command: String, _ windows: [UInt64]) throws(ObserverFailure) {
        let criterion = system == .i3 ? "id" : "con_id"
        let commands = windows.map { "[\(criterion)=\($0)] \(command)" }
        if commands.isEmpty { return }
        guard let connection else { throw .unreachable("\(subject) is restarting") }
        try connection.send(.runCommand, commands.joined(separator: "; "))
    }

    private func take(_ message: IPCConnection.Message) throws(ObserverFailure) {
        switch message {
        case .event(let kind, let payload):
            // A change of the layout over IPC has no event of its own. It is noticed with the next title.
            if kind != Self.windowEvent || !retitle(payload)
                || Clock.monotonicMicroseconds >= readAt + Self.longestAge
            {
                isStale = true
            }
        case .answer(IPCConnection.Kind.getTree.rawValue, let payload):
            // It includes everything that was announced before.
            (isReading, isStale) = (false, false)
            do throws(JSONReader.Failure) {
                show(try TreeNode(payload).views)
                isKnown = true
            } catch {
                throw .ended("\(error)")
            }
        case .answer: break
        }
    }

    /// Microseconds. A new title causes the tree to be read if the last one is older than this.
    private static let longestAge: UInt64 = 5_000_000
    /// "window" (sway-ipc(7), "EVENTS").
    private static let windowEvent: UInt32 = 3

    /// Takes a new title. Some titles change many times a second, and sway composes the tree in the thread that also
    /// draws the screen.
    ///
    /// - Returns: false: the event reports another change, or that of a window that is not known.
    private func retitle(_ event: [UInt8]) -> Bool {
        guard let node = try? TreeNode.retitled(by: event) else { return false }
        // The containers of i3 that hold no window have titles, too.
        if system == .i3, node.window == nil { return false }
        let number = number(of: node)
        guard let index = windows.firstIndex(where: { $0.number == number }) else { return false }
        windows[index].title = node.name
        return true
    }

    private func number(of node: TreeNode) -> UInt64 {
        // i3's own ids are addresses.
        let number = system == .i3 ? UInt64(node.window ?? 0) : UInt64(clamping: node.id)
        return number & WindowSystem.windowNumbers
    }

    private func show(_ views: [TreeNode.View]) {
        let views = views.prefix(ObservedWindow.mostWindows)
        let owners = processes?.of(views.compactMap(\.node.window)) ?? [:]
        fixtures = []
        windows = views.map { view in
            let node = view.node
            let process = node.pid ?? node.window.flatMap { owners[$0] }
            if view.isFixture, let process { fixtures.insert(process) }
            return ObservedWindow(
                number: number(of: node), process: process,
                appID: node.appID.isEmpty ? node.windowClass : node.appID, title: node.name,
                focused: node.focused, visible: view.isShown, minimized: view.isInScratchpad)
        }
    }
}
