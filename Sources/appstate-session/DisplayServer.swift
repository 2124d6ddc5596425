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
                if tried.last != "\(error)" { tried.append("\(error)") }
                if case .unsupported = error {
                    isUnsupported = true
                } else if candidate.isWayland {
                    // Waiting again for a compositor that does not answer would be useless.
                    isUnsupported = false
                    break
                }
            }
        }
        guard !tried.isEmpty else {
            throw .unreachable("none of SWAYSOCK, WAYLAND_DISPLAY and DISPLAY is set")
        }
        let all = tried.joined(separator: "; ")
        throw isUnsupported ? .unsupported(all) : .unreachable(all)
    }

    /// Whether there may still be windows, for the next agent: a display server answers, or its socket is open, because it is
    /// starting again and is not on the session bus yet.
    static func mayReturn(after error: any Error) -> Bool {
        if case ObserverFailure.unsupported = error { return true }
        return KWinScriptObserver.isKDE
            && Environment["WAYLAND_DISPLAY"].map(DisplaySocket.isListening(forDisplay:)) == true
    }

    /// The candidates, in the order in which they are tried. sway, niri, Hyprland and i3 report all windows, including
    /// Xwayland's, and know workspaces on several monitors. Wayland compositors report all windows, too, and KWin also
    /// reports desktops. KWin and GNOME Shell, which may offer no protocol for that to us, do so on the session bus.
    private enum Candidate: CaseIterable {
        case sway
        case niri
        case hyprland
        case plasma
        case foreignToplevel
        case kwinScript
        case gnome
        case i3
        case x11

        var isWayland: Bool { [.plasma, .foreignToplevel, .kwinScript, .gnome].contains(self) }
    }

    /// - Returns: nil: there is nothing to try.
    private static func observer(
        _ candidate: Candidate, _ session: SessionBus, _ entries: DesktopEntries
    ) throws(ObserverFailure) -> (any WindowObserver)? {
        let wayland = Environment["WAYLAND_DISPLAY"]
        switch candidate {
        case .sway:
            guard let path = Environment["SWAYSOCK"] else { return nil }
            return try SwayObserver(sway: path)
        case .niri:
            guard let path = Environment["NIRI_SOCKET"] else { return nil }
            return try NiriObserver(path: path)
        case .hyprland:
            guard let signature = Environment["HYPRLAND_INSTANCE_SIGNATURE"],
                let runtime = Environment["XDG_RUNTIME_DIR"]
            else { return nil }
            return try HyprlandObserver(directory: "\(runtime)/hypr/\(signature)")
        case .plasma:
            guard let wayland else { return nil }
            return try PlasmaObserver(display: wayland)
        case .foreignToplevel:
            guard let wayland else { return nil }
            return try ForeignToplevelObserver(display: wayland, x11Display: Environment["DISPLAY"]) {
                entries.command(of: $0)
            }
        case .kwinScript:
            guard let wayland else { return nil }
            guard session.address != nil else {
                throw .unsupported("there is no session bus to ask KWin or GNOME Shell on")
            }
            return try KWinScriptObserver(session: session, display: wayland)
        case .gnome:
            guard wayland != nil, session.address != nil else { return nil }
            return try GnomeObserver(session: session)
        case .i3:
            guard wayland == nil, Environment["DISPLAY"] != nil, let path = try SwayObserver.i3Socket()
            else { return nil }
            return try SwayObserver(i3: path)
        case .x11:
            // Beside a compositor, this observer would take every Wayland application for one without a window.
            guard wayland == nil, let name = Environment["DISPLAY"] else { return nil }
            return try X11Observer(display: name)
        }
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
