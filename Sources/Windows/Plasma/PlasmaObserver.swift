import CWayland

/// Watches the windows of KWin on Wayland, including Xwayland's, and on which desktops they are, by
/// org_kde_plasma_window_management.
///
/// KWin offers this protocol only to programs whose desktop entry asks for it: `X-KDE-Wayland-Interfaces=` beside
/// `Exec=` with the program's path.
public final class PlasmaObserver: WindowObserver {
    public let system = WindowSystem.plasma
    public private(set) var windows: [ObservedWindow] = []
    private let connection: WaylandConnection
    private let manager: OpaquePointer
    private var desk = PlasmaDesk()
    private var desktops: [String: OpaquePointer] = [:]
    private var lastNumber = WaylandConnection.firstNumber

    /// The most windows that are watched; those beyond are never reported.
    private static let mostWindows = 4 * ObservedWindow.mostWindows
    /// KWin has 20 at most.
    private static let mostDesktops = 1_024
    /// The first version of the protocol in which windows are announced by their UUID only.
    private static let withUUID: UInt32 = 13
    /// To a client of version 11 to 16, KWin lists all windows in one message whenever their stacking order changes. From
    /// version 12 on, no more than 104 fit. With more, KWin sends the client nothing any more, and disconnects it
    /// only when it sends a request.
    private static let listed: ClosedRange<UInt32> = 11...16

    /// Connects, and reads the present set.
    ///
    /// - Parameter display: as in WAYLAND_DISPLAY; nil for WAYLAND_DISPLAY itself.
    /// - Throws: `unreachable` if no compositor answers, `unsupported` if it lacks the protocol, offers it only to
    ///   others, or closes the connection.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try WaylandConnection(display: display)
        let bound = connection.bind(cwayland_plasma_management_interface()) {
            Self.listed.contains($0) ? Self.listed.lowerBound - 1 : $0
        }
        guard let manager = bound else {
            throw .unsupported(
                "the compositor at WAYLAND_DISPLAY=\(connection.name) lacks org_kde_plasma_window_management")
        }
        self.manager = manager
        connection.listen(to: manager) { [unowned self] event, arguments in take(event, arguments) }
        if let desktops = connection.bind(cwayland_plasma_desktops_interface()) {
            connection.listen(to: desktops) { [unowned self] event, arguments in
                takeDesktop(event, arguments, desktops)
            }
        }
        do throws(ObserverFailure) {
            // First the existing objects, then the answers to the requests about them.
            try connection.synchronize()
            try connection.synchronize()
            try dispatch()
        } catch .ended(let why) {
            // If KWin has ended, nothing answers the next attempt.
            throw .unsupported("\(subject) does not list its windows: \(why)")
        }
    }

    /// The process that listens at a Wayland display: the compositor, or the process that has started it and handed it
    /// the socket; nil if that is not known.
    ///
    /// - Parameter display: as in WAYLAND_DISPLAY.
    /// - Throws: `unreachable` if no compositor answers.
    public static func server(of display: String) throws(ObserverFailure) -> Int32? {
        try WaylandConnection(display: display).process
    }

    public var subject: String { "KWin at \(connection.name)" }
    public var descriptor: Int32 { connection.descriptor }
    public var desktopProcesses: Set<Int32> {
        desk.fixtures.union([connection.process].compactMap(\.self))
    }

    public func dispatch() throws(ObserverFailure) {
        do throws(ObserverFailure) {
            try connection.receive()
        } catch {
            throw .ended("\(subject) has ended: \(error)")
        }
        windows = Array(desk.picture.prefix(ObservedWindow.mostWindows))
    }

    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        let flag = wl_argument(u: CWAYLAND_PLASMA_WINDOW_MINIMIZED.rawValue)
        for (window, client) in desk.clients where windows.contains(client.number) {
            connection.ask(CWAYLAND_PLASMA_WINDOW_SET_STATE.rawValue, of: window, [flag, flag])
        }
    }

    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        let minimized = CWAYLAND_PLASMA_WINDOW_MINIMIZED.rawValue
        let active = CWAYLAND_PLASMA_WINDOW_ACTIVE.rawValue
        for number in windows {
            for (window, client) in desk.clients where client.number == number {
                connection.ask(
                    CWAYLAND_PLASMA_WINDOW_SET_STATE.rawValue, of: window,
                    [wl_argument(u: minimized | active), wl_argument(u: active)])
            }
        }
    }

    // MARK: Windows

    private func take(_ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>) {
        switch event {
        case CWAYLAND_PLASMA_SHOW_DESKTOP_CHANGED.rawValue: desk.isShown = arguments[0].u == 1
        case CWAYLAND_PLASMA_WINDOW.rawValue where wl_proxy_get_version(manager) < Self.withUUID:
            welcome(CWAYLAND_PLASMA_GET_WINDOW.rawValue, wl_argument(u: arguments[0].u))
        case CWAYLAND_PLASMA_WINDOW_WITH_UUID.rawValue:
            welcome(CWAYLAND_PLASMA_GET_WINDOW_BY_UUID.rawValue, wl_argument(s: arguments[1].s))
        default: break
        }
    }

    private func welcome(_ request: UInt32, _ name: wl_argument) {
        guard desk.clients.count < Self.mostWindows,
            let window = connection.make(
                cwayland_plasma_window_interface(), by: request, of: manager, [wl_argument(o: nil), name])
        else { return }
        lastNumber += 1
        desk.clients[window] = PlasmaDesk.Client(number: lastNumber)
        connection.listen(to: window) { [unowned self] event, arguments in take(event, arguments, window) }
    }

    private func take(
        _ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>, _ window: OpaquePointer
    ) {
        switch event {
        case CWAYLAND_PLASMA_WINDOW_TITLE.rawValue: desk.clients[window]?.title = arguments[0].text
        case CWAYLAND_PLASMA_WINDOW_APP_ID.rawValue: desk.clients[window]?.appID = arguments[0].text
        case CWAYLAND_PLASMA_WINDOW_PID.rawValue:
            desk.clients[window]?.process = Int32(exactly: arguments[0].u).flatMap { $0 > 0 ? $0 : nil }
        case CWAYLAND_PLASMA_WINDOW_STATE.rawValue:
            let flags = arguments[0].u
            func has(_ flag: cwayland_plasma_window_state) -> Bool { flags & flag.rawValue != 0 }
            desk.clients[window]?.isActive = has(CWAYLAND_PLASMA_WINDOW_ACTIVE)
            desk.clients[window]?.isMinimized = has(CWAYLAND_PLASMA_WINDOW_MINIMIZED)
            desk.clients[window]?.isOnAllDesktops = has(CWAYLAND_PLASMA_WINDOW_ON_ALL_DESKTOPS)
            desk.clients[window]?.skipsTaskbar = has(CWAYLAND_PLASMA_WINDOW_SKIP_TASKBAR)
        case CWAYLAND_PLASMA_WINDOW_DESKTOP_ENTERED.rawValue:
            guard let count = desk.clients[window]?.desktops.count, count < Self.mostDesktops else { return }
            desk.clients[window]?.desktops.insert(arguments[0].text)
        case CWAYLAND_PLASMA_WINDOW_DESKTOP_LEFT.rawValue:
            desk.clients[window]?.desktops.remove(arguments[0].text)
        case CWAYLAND_PLASMA_WINDOW_INITIAL_STATE.rawValue: desk.clients[window]?.isComplete = true
        case CWAYLAND_PLASMA_WINDOW_UNMAPPED.rawValue:
            desk.clients[window] = nil
            connection.release(window, by: CWAYLAND_PLASMA_WINDOW_DESTROY.rawValue)
        default: break
        }
    }

    // MARK: Desktops

    private func takeDesktop(
        _ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>, _ manager: OpaquePointer
    ) {
        let id = arguments[0]
        switch event {
        case CWAYLAND_PLASMA_DESKTOPS_CREATED.rawValue:
            guard desktops.count < Self.mostDesktops, desktops[id.text] == nil,
                let desktop = connection.make(
                    cwayland_plasma_desktop_interface(), by: CWAYLAND_PLASMA_DESKTOPS_GET.rawValue,
                    of: manager,
                    [wl_argument(o: nil), id])
            else { return }
            let name = id.text
            desktops[name] = desktop
            connection.listen(to: desktop) { [unowned self] event, _ in
                // A deactivated desktop stays the current one until another is activated.
                if event == CWAYLAND_PLASMA_DESKTOP_ACTIVATED.rawValue { desk.current = name }
            }
        case CWAYLAND_PLASMA_DESKTOPS_REMOVED.rawValue:
            guard let desktop = desktops.removeValue(forKey: id.text) else { return }
            if desk.current == id.text { desk.current = nil }
            connection.drop(desktop)
        default: break
        }
    }
}
