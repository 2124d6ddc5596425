import CXCB
import Glibc

/// One client of the X server and the commands that it executes.
final class Application {
    private struct Mistake: Error {
        let text: String
    }

    private let connection: OpaquePointer
    private let screen: xcb_screen_t
    private var unread: [UInt8] = []
    private var registration: Registration?

    init?() {
        guard let connection = xcb_connect(nil, nil), xcb_connection_has_error(connection) == 0,
            let setup = xcb_get_setup(connection)
        else { return nil }
        self.connection = connection
        screen = xcb_setup_roots_iterator(setup).data.pointee
    }

    func run() {
        say("ready")
        while true {
            var ready = [STDIN_FILENO, xcb_get_file_descriptor(connection)].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&ready, nfds_t(ready.count), -1)
            if ready[0].revents != 0 { read() }
            takeEvents()
            guard xcb_connection_has_error(connection) == 0 else { return }
        }
    }

    private func read() {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
        guard count > 0 else { exit(0) }
        unread += buffer.prefix(count)
        while let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
            obey(String(decoding: unread[..<end], as: UTF8.self))
            unread.removeFirst(end + 1)
        }
    }

    private func obey(_ line: String) {
        var words = line.split(separator: " ").map(String.init)[...]
        guard let number = words.popFirst(), let command = words.popFirst() else { return }
        do {
            let answer = try perform(command, Array(words))
            synchronize()
            say((["#\(number)", "ok"] + answer).joined(separator: " "))
        } catch {
            say("#\(number) error \(error)")
        }
    }

    private func perform(_ command: String, _ words: [String]) throws -> [String] {
        switch command {
        case "manager": return [String(waitForManager(otherThan: words.first.flatMap { UInt32($0) } ?? 0))]
        case "open":
            return [String(open(words.first ?? "", words.dropFirst().joined(separator: " ")))]
        case "open-many":
            guard words.count == 2, let count = Int(words[0]) else { throw Mistake(text: "open-many") }
            return (0..<count).map { String(open(words[1], "window \($0)")) }
        case "override":
            guard words.count == 2, let width = UInt16(words[0]), let height = UInt16(words[1]) else {
                throw Mistake(text: "override")
            }
            return [String(open("Override", "", override: (width, height)))]
        case "focus":
            xcb_set_input_focus(
                connection, UInt8(XCB_INPUT_FOCUS_PARENT.rawValue), try window(words),
                xcb_timestamp_t(XCB_CURRENT_TIME))
        case "fixture":
            guard words.count == 2 else { throw Mistake(text: "fixture") }
            return [String(open(words[1], words[1], type: words[0]))]
        case "title":
            set(
                try window(words), "_NET_WM_NAME", "UTF8_STRING",
                Array(words.dropFirst().joined(separator: " ").utf8))
        case "lie":
            guard words.count == 2, let pid = UInt32(words[1]) else { throw Mistake(text: "lie") }
            set(try window(words), "_NET_WM_PID", "CARDINAL", [pid])
        case "property":
            guard words.count > 2, let window = UInt32(words[0]) else { throw Mistake(text: "property") }
            let values = words.dropFirst(3).map { word -> UInt32 in UInt32(word) ?? atom(word) }
            set(window == 0 ? screen.root : window, words[1], words[2], values)
        case "close": xcb_destroy_window(connection, try window(words))
        case "map": xcb_map_window(connection, try window(words))
        case "withdraw": try withdraw(window(words))
        case "own":
            guard words.count == 2 else { throw Mistake(text: "own") }
            xcb_set_selection_owner(
                connection, try window(words), atom(words[1]), xcb_timestamp_t(XCB_CURRENT_TIME))
        case "disown":
            xcb_set_selection_owner(
                connection, xcb_window_t(XCB_NONE), atom(words.first ?? ""),
                xcb_timestamp_t(XCB_CURRENT_TIME))
        case "desktop":
            guard words.count == 2, let desktop = UInt32(words[1]) else { throw Mistake(text: "desktop") }
            request("_NET_WM_DESKTOP", try window(words), desktop, 2)
        case "activate":
            let windows = words.dropFirst().compactMap { UInt32($0) }
            guard let times = words.first.flatMap({ Int($0) }), !windows.isEmpty else {
                throw Mistake(text: "activate")
            }
            for time in 0..<times { request("_NET_ACTIVE_WINDOW", windows[time % windows.count], 2) }
        case "protocol":
            guard words.count == 2 else { throw Mistake(text: "protocol") }
            let window = try window(words)
            send(message("WM_PROTOCOLS", window, atom(words[1])), to: window, 0)
        case "grab": xcb_grab_server(connection)
        case "register":
            let registration = try Registration(id: words.first ?? "")
            self.registration = registration
            return [registration.path]
        case "launched": try registration?.call("FinishLaunching")
        case "unregister": try registration?.call("Unregister")
        default: throw Mistake(text: "there is no command \(command)")
        }
        return []
    }

    private func window(_ words: [String]) throws -> xcb_window_t {
        guard let window = words.first.flatMap({ UInt32($0) }) else { throw Mistake(text: "which window?") }
        return window
    }

    // MARK: Windows

    /// - Parameter override: the size of a window that no window manager manages.
    private func open(
        _ name: String, _ title: String, type: String? = nil, override: (width: UInt16, height: UInt16)? = nil
    ) -> xcb_window_t {
        let window = xcb_generate_id(connection)
        // Xwayland shows a window only once something is drawn; here the server draws it, in one colour.
        var values = [screen.white_pixel, override == nil ? 0 : 1]
        xcb_create_window(
            connection, UInt8(XCB_COPY_FROM_PARENT), window, screen.root, 0, 0, override?.width ?? 200,
            override?.height ?? 100, 0, UInt16(XCB_WINDOW_CLASS_INPUT_OUTPUT.rawValue), screen.root_visual,
            XCB_CW_BACK_PIXEL.rawValue | XCB_CW_OVERRIDE_REDIRECT.rawValue, &values)
        set(window, "WM_CLASS", "STRING", Array("\(name.lowercased())\0\(name)\0".utf8))
        set(window, "_NET_WM_NAME", "UTF8_STRING", Array(title.utf8))
        // As toolkits do. From within a PID namespace the value is useless to other processes.
        set(window, "_NET_WM_PID", "CARDINAL", [UInt32(getpid())])
        set(window, "WM_PROTOCOLS", "ATOM", [atom("WM_DELETE_WINDOW")])
        if let type { set(window, "_NET_WM_WINDOW_TYPE", "ATOM", [atom("_NET_WM_WINDOW_TYPE_\(type)")]) }
        xcb_map_window(connection, window)
        return window
    }

    private func set(_ window: xcb_window_t, _ property: String, _ type: String, _ value: [UInt32]) {
        xcb_change_property(
            connection, UInt8(XCB_PROP_MODE_REPLACE.rawValue), window, atom(property), atom(type), 32,
            UInt32(value.count), value)
    }

    private func set(_ window: xcb_window_t, _ property: String, _ type: String, _ value: [UInt8]) {
        xcb_change_property(
            connection, UInt8(XCB_PROP_MODE_REPLACE.rawValue), window, atom(property), atom(type), 8,
            UInt32(value.count), value)
    }

    /// ICCCM, "Changing Window State": the window manager must also be notified in case the window is unmapped already.
    private func withdraw(_ window: xcb_window_t) {
        xcb_unmap_window(connection, window)
        var event = xcb_unmap_notify_event_t()
        event.response_type = UInt8(XCB_UNMAP_NOTIFY)
        event.event = screen.root
        event.window = window
        send(event, to: screen.root, Self.toManager)
    }

    /// Asks the window manager like a pager that acts for the user: source 2 (Extended Window Manager Hints).
    private func request(_ name: String, _ window: xcb_window_t, _ first: UInt32, _ second: UInt32 = 0) {
        send(message(name, window, first, second), to: screen.root, Self.toManager)
    }

    private static let toManager =
        XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY.rawValue | XCB_EVENT_MASK_SUBSTRUCTURE_REDIRECT.rawValue

    private func message(
        _ name: String, _ window: xcb_window_t, _ first: UInt32, _ second: UInt32 = 0
    ) -> xcb_client_message_event_t {
        var event = xcb_client_message_event_t()
        event.response_type = UInt8(XCB_CLIENT_MESSAGE)
        event.format = 32
        event.window = window
        event.type = atom(name)
        event.data.data32 = (first, second, 0, 0, 0)
        return event
    }

    /// Events have 32 bytes on the wire. With an empty mask, an event goes to the client that has made the window.
    private func send<Event>(_ event: Event, to window: xcb_window_t, _ mask: UInt32) {
        var bytes = [UInt8](repeating: 0, count: 32)
        withUnsafeBytes(of: event) { bytes.replaceSubrange(0..<$0.count, with: $0) }
        bytes.withUnsafeBytes {
            _ = xcb_send_event(connection, 0, window, mask, $0.bindMemory(to: CChar.self).baseAddress)
        }
    }

    // MARK: The window manager

    /// The window that proves that a window manager runs: it names itself (Extended Window Manager Hints,
    /// "_NET_SUPPORTING_WM_CHECK").
    private func waitForManager(otherThan former: xcb_window_t) -> xcb_window_t {
        var mask = XCB_EVENT_MASK_PROPERTY_CHANGE.rawValue
        xcb_change_window_attributes(connection, screen.root, XCB_CW_EVENT_MASK.rawValue, &mask)
        while xcb_connection_has_error(connection) == 0 {
            if let window = check(on: screen.root), window != former, check(on: window) == window {
                return window
            }
            xcb_flush(connection)
            free(xcb_wait_for_event(connection))
        }
        return 0
    }

    private func check(on window: xcb_window_t) -> xcb_window_t? {
        let cookie = xcb_get_property(
            connection, 0, window, atom("_NET_SUPPORTING_WM_CHECK"), XCB_GET_PROPERTY_TYPE_ANY.rawValue, 0, 1)
        var error: UnsafeMutablePointer<xcb_generic_error_t>?
        guard let reply = xcb_get_property_reply(connection, cookie, &error) else {
            free(error)
            return nil
        }
        defer { free(reply) }
        guard xcb_get_property_value_length(reply) == 4, let value = xcb_get_property_value(reply) else {
            return nil
        }
        return value.loadUnaligned(as: UInt32.self)
    }

    // MARK: The server

    private var atoms: [String: xcb_atom_t] = [:]

    private func atom(_ name: String) -> xcb_atom_t {
        if let known = atoms[name] { return known }
        guard
            let reply = xcb_intern_atom_reply(
                connection, xcb_intern_atom(connection, 0, UInt16(name.utf8.count), name), nil)
        else { return 0 }
        defer { free(reply) }
        atoms[name] = reply.pointee.atom
        return reply.pointee.atom
    }

    /// A round trip: all requests have been processed.
    private func synchronize() {
        free(xcb_get_input_focus_reply(connection, xcb_get_input_focus(connection), nil))
    }

    private func takeEvents() {
        while let event = xcb_poll_for_event(connection) {
            defer { free(event) }
            guard Int32(cxcb_event_type(event)) == XCB_CLIENT_MESSAGE else { continue }
            let message = UnsafeRawPointer(event).loadUnaligned(as: xcb_client_message_event_t.self)
            guard message.type == atom("WM_PROTOCOLS"), message.data.data32.0 == atom("WM_DELETE_WINDOW")
            else {
                continue
            }
            xcb_destroy_window(connection, message.window)
            xcb_flush(connection)
        }
    }
}
