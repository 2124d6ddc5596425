import Glibc
import Windows

/// Finds out what there is to watch.
enum Desktop {
    /// The observers that answer; several where one does not see all windows.
    ///
    /// - Throws: where none answers, with all that was tried.
    static func observers() throws(ObserverFailure) -> [any WindowObserver] {
        var tried: [String] = []
        // sway and i3 tell of all windows, Xwayland's included, and know workspaces on several monitors.
        for candidate in [sway, i3, x11] {
            do {
                if let observer = try candidate() { return [observer] }
            } catch {
                if tried.last != "\(error)" { tried.append("\(error)") }
            }
        }
        throw .unreachable(
            tried.isEmpty ? "neither SWAYSOCK nor DISPLAY is set" : tried.joined(separator: "; "))
    }

    private static func sway() throws -> (any WindowObserver)? {
        try variable("SWAYSOCK").map { try SwayObserver(sway: $0) }
    }

    private static func i3() throws -> (any WindowObserver)? {
        guard variable("WAYLAND_DISPLAY") == nil, variable("DISPLAY") != nil else { return nil }
        return try SwayObserver.i3Socket().map { try SwayObserver(i3: $0) }
    }

    private static func x11() throws -> (any WindowObserver)? {
        // Alone it would take every Wayland application for one without a window.
        if let name = variable("WAYLAND_DISPLAY") {
            throw ObserverFailure.unreachable(
                "the compositor at WAYLAND_DISPLAY=\(name) is of no kind that can be watched")
        }
        return try variable("DISPLAY").map { try X11Observer(display: $0) }
    }

    private static func variable(_ name: String) -> String? {
        guard let value = getenv(name).map({ String(cString: $0) }), !value.isEmpty else { return nil }
        return value
    }
}
