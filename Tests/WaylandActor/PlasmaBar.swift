import CWayland

/// All windows and virtual desktops of KWin, and the requests that manipulate them.
final class PlasmaBar {
    private struct Window {
        var title = ""
        var desktops: Set<String> = []
    }

    private let connection: Connection
    private let manager: OpaquePointer
    private let desktopManager: OpaquePointer
    private var windows: [OpaquePointer: Window] = [:]
    /// In their order.
    private var desktops: [(name: String, object: OpaquePointer)] = []

    init?(_ connection: Connection) {
        guard let manager = connection.bind(cwayland_plasma_management_interface(), version: 16),
            let desktopManager = connection.bind(cwayland_plasma_desktops_interface(), version: 2)
        else { return nil }
        self.connection = connection
        self.manager = manager
        self.desktopManager = desktopManager
        connection.listen(to: manager) { [unowned self] event, arguments in
            guard event == CWAYLAND_PLASMA_WINDOW_WITH_UUID.rawValue,
                let window = connection.ask(
                    manager, CWAYLAND_PLASMA_GET_WINDOW_BY_UUID.rawValue,
                    [wl_argument(o: nil), arguments[1]], makes: cwayland_plasma_window_interface())
            else { return }
            watch(window)
        }
        connection.listen(to: desktopManager) { [unowned self] event, arguments in
            guard event == CWAYLAND_PLASMA_DESKTOPS_CREATED.rawValue, let name = arguments[0].s,
                let desktop = connection.ask(
                    desktopManager, CWAYLAND_PLASMA_DESKTOPS_GET.rawValue,
                    [wl_argument(o: nil), arguments[0]],
                    makes: cwayland_plasma_desktop_interface())
            else { return }
            let place = min(Int(arguments[1].u), desktops.count)
            desktops.insert((String(cString: name), desktop), at: place)
        }
        guard connection.synchronize(), connection.synchronize() else { return nil }
    }

    private func watch(_ window: OpaquePointer) {
        windows[window] = Window()
        connection.listen(to: window) { [unowned self] event, arguments in
            func text() -> String { arguments[0].s.map { String(cString: $0) } ?? "" }
            switch event {
            case CWAYLAND_PLASMA_WINDOW_TITLE.rawValue: windows[window]?.title = text()
            case CWAYLAND_PLASMA_WINDOW_DESKTOP_ENTERED.rawValue: windows[window]?.desktops.insert(text())
            case CWAYLAND_PLASMA_WINDOW_DESKTOP_LEFT.rawValue: windows[window]?.desktops.remove(text())
            case CWAYLAND_PLASMA_WINDOW_UNMAPPED.rawValue:
                windows[window] = nil
                connection.ask(window, CWAYLAND_PLASMA_WINDOW_DESTROY.rawValue, ends: true)
            default: break
            }
        }
    }

    /// Requests it; returns for how many windows.
    func perform(_ deed: Deed, where matches: (String) -> Bool) -> Int {
        let found = windows.filter { matches($0.value.title) }.sorted { $0.value.title < $1.value.title }
        for (window, _) in found {
            switch deed {
            case .minimize: set(window, CWAYLAND_PLASMA_WINDOW_MINIMIZED, true)
            case .restore: set(window, CWAYLAND_PLASMA_WINDOW_MINIMIZED, false)
            case .activate: set(window, CWAYLAND_PLASMA_WINDOW_ACTIVE, true)
            case .close: connection.ask(window, CWAYLAND_PLASMA_WINDOW_CLOSE.rawValue)
            }
        }
        return found.count
    }

    private func set(_ window: OpaquePointer, _ state: cwayland_plasma_window_state, _ isOn: Bool) {
        connection.ask(
            window, CWAYLAND_PLASMA_WINDOW_SET_STATE.rawValue,
            [wl_argument(u: state.rawValue), wl_argument(u: isOn ? state.rawValue : 0)])
    }

    /// What only KWin can do; false for invalid commands.
    func perform(_ words: [String]) -> Bool {
        guard words.count >= 2, let number = Int(words[1]) else { return false }
        switch words[0] {
        case "show-desktop":
            connection.ask(manager, CWAYLAND_PLASMA_SHOW_DESKTOP.rawValue, [wl_argument(u: UInt32(number))])
            return true
        case "desktop":
            guard let desktop = desktop(number) else { return false }
            connection.ask(desktop.object, CWAYLAND_PLASMA_DESKTOP_ACTIVATE.rawValue)
            return true
        case "move":
            let title = words.dropFirst(2).joined(separator: " ")
            guard let desktop = desktop(number),
                let (window, known) = windows.first(where: { $1.title == title })
            else { return false }
            connection.ask(window, CWAYLAND_PLASMA_WINDOW_ENTER_DESKTOP.rawValue, text: desktop.name)
            for other in known.desktops where other != desktop.name {
                connection.ask(window, CWAYLAND_PLASMA_WINDOW_LEAVE_DESKTOP.rawValue, text: other)
            }
            return true
        default: return false
        }
    }

    private func desktop(_ number: Int) -> (name: String, object: OpaquePointer)? {
        guard (1...20).contains(number) else { return nil }
        while desktops.count < number {
            let before = desktops.count
            "Desktop".withCString {
                _ = connection.ask(
                    desktopManager, CWAYLAND_PLASMA_DESKTOPS_CREATE.rawValue,
                    [wl_argument(s: $0), wl_argument(u: UInt32(before))])
            }
            guard connection.synchronize(), connection.synchronize(), desktops.count > before else {
                return nil
            }
        }
        return desktops[number - 1]
    }
}
