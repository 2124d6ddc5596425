import CWayland

/// The requests of a taskbar.
enum Deed: String {
    case minimize
    case restore
    case activate
    case close
}

/// All windows of the compositor, and the requests that manipulate them.
final class Taskbar {
    private let connection: Connection
    private let seat: OpaquePointer
    private var titles: [OpaquePointer: String] = [:]

    init?(_ connection: Connection) {
        guard let manager = connection.bind(cwayland_toplevel_manager_interface()),
            let seat = connection.bind(Protocol.own(wl_seat_interface))
        else { return nil }
        self.connection = connection
        self.seat = seat
        connection.listen(to: manager) { [unowned self] event, arguments in
            if event == CWAYLAND_TOPLEVEL_MANAGER_TOPLEVEL.rawValue, let handle = arguments[0].o {
                watch(handle)
            }
        }
        guard connection.synchronize(), connection.synchronize() else { return nil }
    }

    private func watch(_ handle: OpaquePointer) {
        titles[handle] = ""
        connection.listen(to: handle) { [unowned self] event, arguments in
            switch event {
            case CWAYLAND_TOPLEVEL_TITLE.rawValue:
                titles[handle] = arguments[0].s.map { String(cString: $0) } ?? ""
            case CWAYLAND_TOPLEVEL_CLOSED.rawValue:
                titles[handle] = nil
                connection.ask(handle, CWAYLAND_TOPLEVEL_DESTROY.rawValue, ends: true)
            default: break
            }
        }
    }

    /// Requests it; returns for how many windows.
    func perform(_ deed: Deed, where matches: (String) -> Bool) -> Int {
        let handles = titles.filter { matches($0.value) }.sorted { $0.value < $1.value }.map(\.key)
        for handle in handles {
            switch deed {
            case .minimize: connection.ask(handle, CWAYLAND_TOPLEVEL_SET_MINIMIZED.rawValue)
            case .restore: connection.ask(handle, CWAYLAND_TOPLEVEL_UNSET_MINIMIZED.rawValue)
            case .activate:
                connection.ask(handle, CWAYLAND_TOPLEVEL_ACTIVATE.rawValue, [wl_argument(o: seat)])
            case .close: connection.ask(handle, CWAYLAND_TOPLEVEL_CLOSE.rawValue)
            }
        }
        return handles.count
    }
}
