import Desktop
import Linux
import Windows

/// Finds out which display server can be watched.
enum DisplayServer {
    /// The first observer that answers.
    ///
    /// - Parameters:
    ///   - session: the session bus.
    ///   - entries: says which program an application id starts.
    /// - Throws: if none answers, with all that was tried; `unsupported` if another attempt would have the same result.
    static func observer(
        session: SessionBus, _ entries: DesktopEntries
    ) throws(ObserverFailure) -> any WindowObserver {
        var tried: [String] = []
        var isUnsupported = false
        for candidate in Candidate.allCases {
            do throws(ObserverFailure) {
                if let observer = try observer(candidate, session, entries) { return observer }
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

    /// Whether the Wayland compositor may be starting again: its socket is open, although it does not answer.
    static var mayReturn: Bool {
        KWinScriptObserver.isKDE
            && Environment["WAYLAND_DISPLAY"].map(DisplaySocket.isListening(forDisplay:)) == true
    }

    /// The candidates, in the order in which they are tried. sway, niri, Hyprland and i3 report all windows, including
    /// Xwayland's, and know workspaces on several monitors. Wayland compositors report all windows, too, and KWin also
    /// reports desktops.
    private enum Candidate: CaseIterable {
        case sway
        case niri
        case hyprland
        case wayland
        case i3
        case x11
    }

    private static func observer(
        _ candidate: Candidate, _ session: SessionBus, _ entries: DesktopEntries
    ) throws(ObserverFailure) -> (any WindowObserver)? {
        switch candidate {
        case .sway: try sway()
        case .niri:
            try Environment["NIRI_SOCKET"].map { path throws(ObserverFailure) in
                try NiriObserver(path: path)
            }
        case .hyprland: try hyprland()
        case .wayland: try wayland(session, entries)
        case .i3: try i3()
        case .x11: try x11()
        }
    }

    private static func sway() throws(ObserverFailure) -> (any WindowObserver)? {
        guard let path = Environment["SWAYSOCK"] else { return nil }
        return try SwayObserver(sway: path)
    }

    private static func hyprland() throws(ObserverFailure) -> (any WindowObserver)? {
        guard let signature = Environment["HYPRLAND_INSTANCE_SIGNATURE"],
            let runtime = Environment["XDG_RUNTIME_DIR"]
        else { return nil }
        return try HyprlandObserver(directory: "\(runtime)/hypr/\(signature)")
    }

    private static func wayland(
        _ session: SessionBus, _ entries: DesktopEntries
    ) throws(ObserverFailure) -> (any WindowObserver)? {
        guard let name = Environment["WAYLAND_DISPLAY"] else { return nil }
        // The next protocol is tried only if the compositor answers: waiting twice for a compositor that does
        // not answer would be useless.
        var lacks: [String] = []
        do throws(ObserverFailure) {
            return try PlasmaObserver(display: name)
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        do throws(ObserverFailure) {
            return try ForeignToplevelObserver(display: name, x11Display: Environment["DISPLAY"]) {
                entries.command(of: $0)
            }
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        // The compositor has neither protocol, and no other that reports windows. KWin offers one only to other
        // clients.
        guard session.address != nil else {
            lacks.append("there is no session bus to ask KWin or GNOME Shell on")
            throw .unsupported(lacks.joined(separator: "; "))
        }
        do throws(ObserverFailure) {
            return try KWinScriptObserver(session: session, display: name)
        } catch .unsupported(let why) {
            lacks.append(why)
        }
        do throws(ObserverFailure) {
            return try GnomeObserver(session: session)
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
        // Beside a compositor, this observer would take every Wayland application for one without a window.
        guard Environment["WAYLAND_DISPLAY"] == nil, let name = Environment["DISPLAY"] else { return nil }
        return try X11Observer(display: name)
    }

    /// How long a compositor may take to answer after the start of the session, in microseconds.
    private static let shortPatience: UInt64 = 100_000

    /// The observer of the selections of a window system's display server.
    ///
    /// - Parameters:
    ///   - isAgain: the previous observer was disconnected. Programs that need suspended applications wait
    ///     meanwhile.
    ///   - front: returns the processes of which one has the focus.
    static func selections(
        of system: WindowSystem, isAgain: Bool, front: @escaping () -> Set<Int32>
    ) throws(ObserverFailure) -> any SelectionObserver {
        switch system {
        // While we wait for the server, we could not wake the suspended application that has grabbed it.
        case .x11 where isAgain, .i3 where isAgain: throw .unsupported("selections are no longer watched")
        case .x11, .i3: try X11SelectionObserver()
        // With a compositor, X11 selections are not watched: the compositor itself owns the data that its
        // other clients have copied, and a query might start an Xwayland that nothing needs.
        case .sway, .niri, .hyprland, .foreignToplevel, .plasma, .kwinScript, .gnome:
            try DataControlObserver(patience: isAgain ? shortPatience : nil, front: front)
        }
    }
}
