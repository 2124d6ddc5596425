import Glibc
import Linux
import Windows

/// Finds out what there is to watch.
enum DisplayServer {
    /// The observer that answers.
    ///
    /// - Throws: where none answers, with all that was tried; `unsupported` where that will be so the next time too.
    static func observer() throws(ObserverFailure) -> any WindowObserver {
        var tried: [String] = []
        var isUnsupported = false
        for candidate in Candidate.allCases {
            do throws(ObserverFailure) {
                if let observer = try observer(candidate) { return observer }
            } catch {
                if case .unsupported = error { isUnsupported = true }
                if tried.last != "\(error)" { tried.append("\(error)") }
            }
        }
        guard !tried.isEmpty else {
            throw .unreachable("none of SWAYSOCK, WAYLAND_DISPLAY and DISPLAY is set")
        }
        let all = tried.joined(separator: "; ")
        throw isUnsupported ? .unsupported(all) : .unreachable(all)
    }

    /// What may answer, in the order in which it is tried. sway and i3 tell of all windows, Xwayland's included, and know
    /// workspaces on several monitors; Wayland compositors tell of all windows too, KWin of desktops.
    private enum Candidate: CaseIterable {
        case sway
        case wayland
        case i3
        case x11
    }

    private static func observer(_ candidate: Candidate) throws(ObserverFailure) -> (any WindowObserver)? {
        switch candidate {
        case .sway: try sway()
        case .wayland: try wayland()
        case .i3: try i3()
        case .x11: try x11()
        }
    }

    private static func sway() throws(ObserverFailure) -> (any WindowObserver)? {
        guard let path = Environment["SWAYSOCK"] else { return nil }
        return try SwayObserver(sway: path)
    }

    private static func wayland() throws(ObserverFailure) -> (any WindowObserver)? {
        guard let name = Environment["WAYLAND_DISPLAY"] else { return nil }
        // The next is tried only with one that answers: waiting for it twice would lead to nothing.
        var lacks: [String] = []
        do throws(ObserverFailure) {
            return try PlasmaObserver(display: name)
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        do throws(ObserverFailure) {
            return try ForeignToplevelObserver(display: name, x11Display: Environment["DISPLAY"])
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        // It has neither, and no other protocol that tells of windows; KWin has one for others only.
        guard let address = sessionBus else {
            lacks.append("there is no session bus to ask KWin or GNOME Shell on")
            throw .unsupported(lacks.joined(separator: "; "))
        }
        do throws(ObserverFailure) {
            return try KWinScriptObserver(address: address, display: name)
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        do throws(ObserverFailure) {
            return try GnomeObserver(address: address)
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        throw .unsupported(lacks.joined(separator: "; "))
    }

    private static func i3() throws(ObserverFailure) -> (any WindowObserver)? {
        guard Environment["WAYLAND_DISPLAY"] == nil, Environment["DISPLAY"] != nil,
            let path = try SwayObserver.i3Socket()
        else { return nil }
        return try SwayObserver(i3: path)
    }

    private static func x11() throws(ObserverFailure) -> (any WindowObserver)? {
        // Beside a compositor it would take every Wayland application for one without a window.
        guard Environment["WAYLAND_DISPLAY"] == nil, let name = Environment["DISPLAY"] else { return nil }
        return try X11Observer(display: name)
    }

    /// The address of the session bus; nil where there is none.
    static var sessionBus: String? {
        Environment["DBUS_SESSION_BUS_ADDRESS"] ?? userBus
    }

    /// The address of the user's bus, which all of their sessions share; where there is none, that of the session bus.
    static var userBus: String? {
        guard let path = Environment["XDG_RUNTIME_DIR"].map({ $0 + "/bus" }), access(path, W_OK) == 0 else {
            return Environment["DBUS_SESSION_BUS_ADDRESS"]
        }
        return "unix:path=\(path)"
    }
}
