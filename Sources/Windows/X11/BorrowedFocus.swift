import CXCB
import Glibc

/// The keyboard focus of an application that is about to be suspended. Clients that lose it give up what they have grabbed
/// (X Window System Protocol, "GrabPointer", "GrabKeyboard"); a stopped client would keep it from all others.
final class BorrowedFocus {
    private let connection: XConnection
    /// Can have the focus while it is mapped, and shows nothing.
    private let keeper: xcb_window_t
    /// Is never mapped.
    private let probe: xcb_window_t
    /// The window that had the focus; nil: it is not borrowed.
    private var owner: xcb_window_t?

    /// CurrentTime of the X Window System Protocol.
    private static let now: xcb_timestamp_t = 0

    init(_ connection: XConnection) {
        self.connection = connection
        keeper = connection.makeHiddenWindow()
        probe = connection.makeHiddenWindow()
    }

    var isTaken: Bool { owner != nil }

    /// Takes the focus if a window of the clients of these windows has it.
    ///
    /// - Returns: whether one had it.
    func take(from windows: [xcb_window_t]) -> Bool {
        giveBack()
        let focus = connection.focus()
        let client = connection.client(of: focus)
        guard focus > 1, windows.contains(where: { connection.client(of: $0) == client }) else {
            return false
        }
        owner = focus
        xcb_map_window(connection.pointer, keeper)
        set(keeper)
        return true
    }

    /// Gives it back, unless another window has got it meanwhile.
    func giveBack() {
        guard let owner else { return }
        self.owner = nil
        if connection.focus() == keeper { set(owner) }
        // If that window is gone, the focus reverts to where the pointer is.
        xcb_unmap_window(connection.pointer, keeper)
        connection.flush()
    }

    private func set(_ window: xcb_window_t) {
        xcb_set_input_focus(
            connection.pointer, UInt8(XCB_INPUT_FOCUS_POINTER_ROOT.rawValue), window, Self.now)
        connection.flush()
    }

    /// Whether the pointer or the keyboard is grabbed, and probably for these windows: the server does not tell by whom.
    /// The pointer must be over one of them, or one of their clients have the focus. Who holds a button or a key has one
    /// grabbed implicitly, and menus of others are windows that no window manager manages.
    ///
    /// - Parameter desktop: the processes of the desktop, whose frames are such windows, too.
    func isGrabbed(for windows: [xcb_window_t], on desktop: Set<Int32>) -> Bool {
        let clients = Set(windows.map { connection.client(of: $0) })
        let (pointer, keyboard) = grabs()
        guard
            pointer && windows.contains(where: isUnderPointer)
                || keyboard && clients.contains(connection.client(of: owner ?? connection.focus()))
        else { return false }
        let menus = connection.overrides().filter { !clients.contains(connection.client(of: $0)) }
        if menus.isEmpty { return true }
        return desktop.isSuperset(of: connection.answer(to: connection.askProcesses(of: menus)).values)
    }

    private func isUnderPointer(_ window: xcb_window_t) -> Bool {
        let server = connection.pointer
        let (place, size) = (xcb_query_pointer(server, window), xcb_get_geometry(server, window))
        let pointer = connection.reply(place.sequence, as: xcb_query_pointer_reply_t.self)
        let geometry = connection.reply(size.sequence, as: xcb_get_geometry_reply_t.self)
        defer {
            free(pointer)
            free(geometry)
        }
        guard let at = pointer?.pointee, let area = geometry?.pointee else { return false }
        return (0..<Int(area.width)).contains(Int(at.win_x))
            && (0..<Int(area.height)).contains(Int(at.win_y))
    }

    /// Whether the pointer and the keyboard are grabbed, by no button and no key. A grab for a window that cannot be seen
    /// fails in any case, with another status if somebody has one.
    private func grabs() -> (pointer: Bool, keyboard: Bool) {
        let (server, async) = (connection.pointer, UInt8(XCB_GRAB_MODE_ASYNC.rawValue))
        let grabs = [
            xcb_grab_pointer(server, 0, probe, 0, async, async, 0, 0, Self.now).sequence,
            xcb_grab_keyboard(server, 0, probe, Self.now, async, async).sequence,
        ]
        let (buttons, keys) = (xcb_query_pointer(server, connection.root), xcb_query_keymap(server))
        let isTaken = grabs.map { sequence in
            // The two answers have the same form.
            let reply = connection.reply(sequence, as: xcb_grab_pointer_reply_t.self)
            defer { free(reply) }
            return reply.map { UInt32($0.pointee.status) } == XCB_GRAB_STATUS_ALREADY_GRABBED.rawValue
        }
        let state = connection.reply(buttons.sequence, as: xcb_query_pointer_reply_t.self)
        let map = connection.reply(keys.sequence, as: xcb_query_keymap_reply_t.self)
        defer {
            free(state)
            free(map)
        }
        let anyButton: UInt16 = 0x1F00
        var isKeyDown = true
        if let map { isKeyDown = withUnsafeBytes(of: map.pointee.keys) { $0.contains { $0 != 0 } } }
        return (isTaken[0] && (state?.pointee.mask ?? anyButton) & anyButton == 0, isTaken[1] && !isKeyDown)
    }
}
