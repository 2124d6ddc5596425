import CXCB
import Glibc
import Linux

/// A connection to an X server, and the few requests that we make. Requests are sent without waiting, so that many of
/// them cost one round trip; each answer is then fetched by its cookie.
final class XConnection {
    /// The display as it was requested.
    let display: String
    let root: xcb_window_t
    /// The number of the screen that the root window belongs to.
    let screen: Int32
    let pointer: OpaquePointer
    /// The number of XFixes' event, once it is requested.
    var selectionNotify: Int32?
    /// The part of a resource's id that the client chooses (X Window System Protocol, "Connection Setup").
    private let resourceMask: UInt32
    /// The first event that came while requests were sent.
    private var firstEvent: UnsafeMutablePointer<xcb_generic_event_t>?

    /// Connects, and checks that the server reports the processes of windows.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    init(display: String?) throws(ObserverFailure) {
        let name = display ?? getenv("DISPLAY").map { String(cString: $0) } ?? ""
        guard !name.isEmpty else { throw .unreachable("DISPLAY is not set") }
        self.display = name
        var screen: Int32 = 0
        // Never null, but perhaps in error: xcb_connect(3).
        guard let connection = xcb_connect(name, &screen) else { throw .unreachable("out of memory") }
        guard xcb_connection_has_error(connection) == 0, let setup = xcb_get_setup(connection) else {
            xcb_disconnect(connection)
            throw .unreachable("no X server answers at display \(name)")
        }
        self.screen = screen
        var screens = xcb_setup_roots_iterator(setup)
        while screen > 0, screens.rem > 1 {
            xcb_screen_next(&screens)
            screen -= 1
        }
        guard screens.rem > 0 else {
            xcb_disconnect(connection)
            throw .unreachable("the X server at display \(name) has no screen")
        }
        pointer = connection
        root = screens.data.pointee.root
        resourceMask = setup.pointee.resource_id_mask
        guard tellsProcesses else {
            throw .unreachable(
                "the X server at display \(name) lacks X-Resource 1.2: it does not report the owners of windows"
            )
        }
    }

    deinit {
        free(firstEvent)
        xcb_disconnect(pointer)
    }

    /// The socket.
    var descriptor: Int32 { xcb_get_file_descriptor(pointer) }

    /// Whether the connection to the server still exists.
    var isAlive: Bool { xcb_connection_has_error(pointer) == 0 }

    /// Sends queued requests. libxcb also reads meanwhile, and events that it has read do not make the
    /// descriptor readable again: if there are any, this function makes it readable.
    func flush() {
        xcb_flush(pointer)
        guard firstEvent == nil, let event = xcb_poll_for_queued_event(pointer) else { return }
        firstEvent = event
        wake()
    }

    // MARK: Events

    /// The events that an observer of windows selects and receives.
    enum Event {
        case property(window: xcb_window_t, atom: xcb_atom_t)
        case destroyed(xcb_window_t)
        case unmapped(xcb_window_t)
        /// - Parameter isOverride: the window manager does not manage it (X Window System Protocol, override-redirect).
        case mapped(xcb_window_t, isOverride: Bool)
        /// A selection has another owner; 0: none.
        case selection(xcb_atom_t, owner: xcb_window_t)
        /// The keyboard focus has come to a window or left it, or a window inside.
        case focusMoved
        /// A client has sent a message about a window.
        case message(window: xcb_window_t, type: xcb_atom_t)
    }

    /// The next event that has arrived; nil if there is none. Events of other kinds are skipped.
    func nextEvent() -> Event? {
        while let event = firstEvent ?? xcb_poll_for_event(pointer) {
            firstEvent = nil
            defer { free(event) }
            let raw = UnsafeRawPointer(event)
            let type = Int32(cxcb_event_type(event))
            if type == selectionNotify {
                let notice = raw.loadUnaligned(as: xcb_xfixes_selection_notify_event_t.self)
                return .selection(notice.selection, owner: notice.owner)
            }
            switch type {
            case XCB_PROPERTY_NOTIFY:
                let notice = raw.loadUnaligned(as: xcb_property_notify_event_t.self)
                return .property(window: notice.window, atom: notice.atom)
            case XCB_DESTROY_NOTIFY:
                return .destroyed(raw.loadUnaligned(as: xcb_destroy_notify_event_t.self).window)
            case XCB_UNMAP_NOTIFY:
                return .unmapped(raw.loadUnaligned(as: xcb_unmap_notify_event_t.self).window)
            case XCB_MAP_NOTIFY:
                let notice = raw.loadUnaligned(as: xcb_map_notify_event_t.self)
                return .mapped(notice.window, isOverride: notice.override_redirect != 0)
            case XCB_FOCUS_IN, XCB_FOCUS_OUT: return .focusMoved
            case XCB_CLIENT_MESSAGE:
                let notice = raw.loadUnaligned(as: xcb_client_message_event_t.self)
                return .message(window: notice.window, type: notice.type)
            default: continue
            }
        }
        return nil
    }

    /// Makes the server send these events of a window, instead of the previously selected ones. Does nothing
    /// if the window is gone.
    func select(_ events: EventMask, of window: xcb_window_t) {
        var mask = events.rawValue
        xcb_change_window_attributes(pointer, window, XCB_CW_EVENT_MASK.rawValue, &mask)
    }

    /// Asks the window manager to minimize a window: ICCCM 4.1.4, "Changing Window State".
    func iconify(_ window: xcb_window_t, by changeState: xcb_atom_t) {
        let iconicState: UInt32 = 3
        tellManager(changeState, about: window, iconicState)
    }

    /// Asks the window manager to bring a window to the front, as a pager does on the user's command: Extended Window
    /// Manager Hints 1.5, "_NET_ACTIVE_WINDOW".
    ///
    /// - Parameter time: of the user's action, by the server's clock; 0: not known.
    func activate(_ window: xcb_window_t, at time: UInt32, by activeWindow: xcb_atom_t) {
        let pager: UInt32 = 2
        tellManager(activeWindow, about: window, pager, time)
    }

    /// Asks the window manager to show a desktop: Extended Window Manager Hints 1.5, "_NET_CURRENT_DESKTOP".
    ///
    /// - Parameter time: as for `activate`.
    func show(desktop: UInt32, at time: UInt32, by currentDesktop: xcb_atom_t) {
        tellManager(currentDesktop, about: root, desktop, time)
    }

    private func tellManager(
        _ type: xcb_atom_t, about window: xcb_window_t, _ first: UInt32, _ second: UInt32 = 0
    ) {
        var message = xcb_client_message_event_t()
        message.response_type = UInt8(XCB_CLIENT_MESSAGE)
        message.format = 32
        message.window = window
        message.type = type
        message.data.data32.0 = first
        message.data.data32.1 = second
        let mask = XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY.rawValue | XCB_EVENT_MASK_SUBSTRUCTURE_REDIRECT.rawValue
        withUnsafeBytes(of: &message) { bytes in
            _ = xcb_send_event(pointer, 0, root, mask, bytes.bindMemory(to: CChar.self).baseAddress)
        }
    }

    // MARK: Answers

    /// Called every `longestAnswer` while an answer is outstanding, with the number of calls so far for this
    /// answer. A client that has grabbed the server (X Window System Protocol, "GrabServer") makes all others
    /// wait.
    var onStall: (_ times: Int) -> Void = { _ in }
    /// In milliseconds. A server that is not grabbed answers within one.
    private static let longestAnswer: Int32 = 100

    /// Waits for the answer to a request, which the caller must free; nil if there is an error instead, or the server
    /// is gone.
    func reply<Reply>(_ sequence: UInt32, as type: Reply.Type) -> UnsafeMutablePointer<Reply>? {
        xcb_flush(pointer)
        var reply: UnsafeMutableRawPointer?
        var error: UnsafeMutablePointer<xcb_generic_error_t>?
        var stalls = 0
        while xcb_poll_for_reply(pointer, sequence, &reply, &error) == 0 {
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, Self.longestAnswer) == 0 {
                stalls += 1
                onStall(stalls)
            }
        }
        free(error)
        return reply?.assumingMemoryBound(to: type)
    }

    /// Makes the descriptor readable soon: sends a request, and drops the answer.
    func wake() {
        xcb_discard_reply(pointer, xcb_get_input_focus(pointer).sequence)
        xcb_flush(pointer)
    }

    // MARK: Atoms and properties

    /// The atoms of these names, created if they do not exist; one round trip.
    func atoms(_ names: [String]) -> [xcb_atom_t] {
        let cookies = names.map { xcb_intern_atom(pointer, 0, UInt16($0.utf8.count), $0) }
        return cookies.map { cookie in
            guard let reply = reply(cookie.sequence, as: xcb_intern_atom_reply_t.self) else {
                return xcb_atom_t(XCB_NONE)
            }
            defer { free(reply) }
            return reply.pointee.atom
        }
    }

    /// A property that was requested.
    struct Question {
        fileprivate let cookie: xcb_get_property_cookie_t
    }

    /// The content of a property.
    enum Property {
        /// Of format 32.
        case numbers([UInt32])
        /// Of format 8.
        case bytes([UInt8])
        /// Not set, or of format 16.
        case absent
    }

    /// Requests a property.
    ///
    /// - Parameter words: how much of it to send, in units of four bytes.
    func ask(_ window: xcb_window_t, _ property: xcb_atom_t, words: UInt32) -> Question {
        Question(
            cookie: xcb_get_property(
                pointer, 0, window, property, XCB_GET_PROPERTY_TYPE_ANY.rawValue, 0, words))
    }

    /// Waits for the answer; nil when the window, or the server, is gone.
    func answer(to question: Question) -> Property? {
        guard let reply = reply(question.cookie.sequence, as: xcb_get_property_reply_t.self) else {
            return nil
        }
        defer { free(reply) }
        guard let value = xcb_get_property_value(reply) else { return .absent }
        let bytes = UnsafeRawBufferPointer(start: value, count: Int(xcb_get_property_value_length(reply)))
        switch reply.pointee.format {
        case 8: return .bytes(Array(bytes))
        case 32: return .numbers(Array(bytes.bindMemory(to: UInt32.self)))
        default: return .absent
        }
    }

    // MARK: Windows

    /// The window that has the keyboard focus; 0 or 1 if none has it (X Window System Protocol, "GetInputFocus"). Takes
    /// a round trip.
    func focus() -> xcb_window_t {
        let cookie = xcb_get_input_focus(pointer)
        guard let reply = reply(cookie.sequence, as: xcb_get_input_focus_reply_t.self) else { return 0 }
        defer { free(reply) }
        return reply.pointee.focus
    }

    /// The attributes of these windows, without windows that are gone. Takes a round trip.
    private func attributes(
        of windows: [xcb_window_t]
    ) -> [(window: xcb_window_t, values: xcb_get_window_attributes_reply_t)] {
        let cookies = windows.map { ($0, xcb_get_window_attributes(pointer, $0)) }
        return cookies.compactMap { window, cookie in
            guard let reply = reply(cookie.sequence, as: xcb_get_window_attributes_reply_t.self) else {
                return nil
            }
            defer { free(reply) }
            return (window, reply.pointee)
        }
    }

    /// The windows among these that are mapped, though perhaps within a window that is not. Takes a round trip.
    func mapped(of windows: [xcb_window_t]) -> Set<xcb_window_t> {
        Set(
            attributes(of: windows).filter { UInt32($0.values.map_state) != XCB_MAP_STATE_UNMAPPED.rawValue }
                .map(\.window))
    }

    /// The windows among these that are mapped, and so are all windows around them. Takes a round trip.
    func viewable(of windows: [xcb_window_t]) -> Set<xcb_window_t> {
        Set(attributes(of: windows).filter(\.values.isViewable).map(\.window))
    }

    /// The windows on the root window that can be seen and that no window manager manages. Takes two round trips.
    func overrides() -> [xcb_window_t] {
        let cookie = xcb_query_tree(pointer, root)
        guard let reply = reply(cookie.sequence, as: xcb_query_tree_reply_t.self) else { return [] }
        defer { free(reply) }
        let children = UnsafeBufferPointer(
            start: xcb_query_tree_children(reply), count: Int(xcb_query_tree_children_length(reply)))
        return overrides(among: Array(children))
    }

    /// The same for some windows.
    func overrides(among windows: [xcb_window_t]) -> [xcb_window_t] {
        attributes(of: windows).filter {
            $0.values.isViewable && $0.values.override_redirect != 0
                && UInt32($0.values._class) == XCB_WINDOW_CLASS_INPUT_OUTPUT.rawValue
        }.map(\.window)
    }

    /// The windows among these children of the root window that cover a quarter of a monitor. Takes a round trip.
    func large(of windows: [xcb_window_t]) -> Set<xcb_window_t> {
        let cookies = windows.map { ($0, xcb_get_geometry(pointer, $0)) }
        let monitors = monitors()
        var large: Set<xcb_window_t> = []
        for (window, cookie) in cookies {
            guard let reply = reply(cookie.sequence, as: xcb_get_geometry_reply_t.self) else { continue }
            defer { free(reply) }
            let area = Rectangle(reply.pointee)
            if monitors.contains(where: { 4 * $0.overlap(with: area) >= $0.overlap(with: $0) }) {
                large.insert(window)
            }
        }
        return large
    }

    /// The areas of the monitors; that of the root window if the server does not tell.
    private func monitors() -> [Rectangle] {
        let sequence = cxcb_get_monitors(pointer, root)
        if sequence != 0, let reply = reply(sequence, as: xcb_generic_reply_t.self) {
            defer { free(reply) }
            // RandR 1.5, "RRGetMonitors": the number of monitors at 12. Each has 24 bytes, and 4 for each output.
            let bytes = UnsafeRawBufferPointer(start: reply, count: 32 + 4 * Int(reply.pointee.length))
            var monitors: [Rectangle] = []
            var next = 32
            for _ in 0..<bytes.loadUnaligned(fromByteOffset: 12, as: UInt32.self)
            where next + 24 <= bytes.count {
                monitors.append(
                    Rectangle(
                        x: Int(bytes.loadUnaligned(fromByteOffset: next + 8, as: Int16.self)),
                        y: Int(bytes.loadUnaligned(fromByteOffset: next + 10, as: Int16.self)),
                        width: Int(bytes.loadUnaligned(fromByteOffset: next + 12, as: UInt16.self)),
                        height: Int(bytes.loadUnaligned(fromByteOffset: next + 14, as: UInt16.self))))
                next += 24 + 4 * Int(bytes.loadUnaligned(fromByteOffset: next + 6, as: UInt16.self))
            }
            if !monitors.isEmpty { return monitors }
        }
        let cookie = xcb_get_geometry(pointer, root)
        guard let reply = reply(cookie.sequence, as: xcb_get_geometry_reply_t.self) else { return [] }
        defer { free(reply) }
        return [Rectangle(reply.pointee)]
    }

    // MARK: Processes

    /// The process of the X server, if it is on this machine.
    var server: Int32? { SocketPeer(of: descriptor)?.pid }

    /// A query for the clients of windows.
    struct ProcessQuestion {
        fileprivate let cookie: xcb_res_query_client_ids_cookie_t
    }

    /// Requests the processes behind windows. Does not use _NET_WM_PID, which a client sets itself, in its own PID
    /// namespace: the server knows the process by the socket (X-Resource 1.2, "QueryClientIds").
    func askProcesses(of windows: [xcb_window_t]) -> ProcessQuestion {
        let specs = windows.map {
            xcb_res_client_id_spec_t(client: $0, mask: XCB_RES_CLIENT_ID_MASK_LOCAL_CLIENT_PID.rawValue)
        }
        return ProcessQuestion(cookie: xcb_res_query_client_ids(pointer, UInt32(specs.count), specs))
    }

    /// Waits for the processes, by `client(of:)` of their windows. Clients on other machines have no process.
    func answer(to question: ProcessQuestion) -> [UInt32: Int32] {
        guard let reply = reply(question.cookie.sequence, as: xcb_res_query_client_ids_reply_t.self) else {
            return [:]
        }
        defer { free(reply) }
        var processes: [UInt32: Int32] = [:]
        var ids = xcb_res_query_client_ids_ids_iterator(reply)
        while ids.rem > 0 {
            let id = ids.data.pointee
            if id.spec.mask & XCB_RES_CLIENT_ID_MASK_LOCAL_CLIENT_PID.rawValue != 0, id.length >= 4,
                let value = xcb_res_client_id_value_value(ids.data), let pid = Int32(exactly: value.pointee),
                pid > 0
            {
                processes[client(of: id.spec.client)] = pid
            }
            xcb_res_client_id_value_next(&ids)
        }
        return processes
    }

    /// The client that made a resource, by the part of the id that the server gave it.
    func client(of resource: UInt32) -> UInt32 { resource & ~resourceMask }

    private var tellsProcesses: Bool {
        guard let resources = cxcb_res_extension(pointer), resources.pointee.present != 0,
            let reply = reply(
                xcb_res_query_version(pointer, 1, 2).sequence, as: xcb_res_query_version_reply_t.self)
        else { return false }
        defer { free(reply) }
        return (reply.pointee.server_major, reply.pointee.server_minor) >= (1, 2)
    }
}

private struct Rectangle {
    let x, y, width, height: Int

    init(x: Int, y: Int, width: Int, height: Int) {
        (self.x, self.y, self.width, self.height) = (x, y, width, height)
    }

    init(_ geometry: xcb_get_geometry_reply_t) {
        self.init(
            x: Int(geometry.x), y: Int(geometry.y), width: Int(geometry.width), height: Int(geometry.height))
    }

    /// The area that both cover.
    func overlap(with other: Rectangle) -> Int {
        let across = min(x + width, other.x + other.width) - max(x, other.x)
        let down = min(y + height, other.y + other.height) - max(y, other.y)
        return max(across, 0) * max(down, 0)
    }
}

extension xcb_get_window_attributes_reply_t {
    fileprivate var isViewable: Bool { UInt32(map_state) == XCB_MAP_STATE_VIEWABLE.rawValue }
}

/// Which events of a window are sent (X Window System Protocol, "SETofEVENT").
struct EventMask: OptionSet {
    let rawValue: UInt32

    static let propertyChange = EventMask(rawValue: XCB_EVENT_MASK_PROPERTY_CHANGE.rawValue)
    /// Among others, that the window is unmapped or destroyed.
    static let structureNotify = EventMask(rawValue: XCB_EVENT_MASK_STRUCTURE_NOTIFY.rawValue)
    /// Of a window's children; for the root window, messages to the window manager as well.
    static let substructureNotify = EventMask(rawValue: XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY.rawValue)
    static let focusChange = EventMask(rawValue: XCB_EVENT_MASK_FOCUS_CHANGE.rawValue)
}
