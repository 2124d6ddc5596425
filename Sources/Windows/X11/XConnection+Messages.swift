import CXCB
import Glibc

/// Messages to every client that listens at the root window.
extension XConnection {
    /// A window that is never shown, for requests that must name one.
    func makeHiddenWindow() -> xcb_window_t {
        let window = xcb_generate_id(pointer)
        var values: [UInt32] = [1, EventMask.propertyChange.rawValue]
        xcb_create_window(
            pointer, 0, window, root, -100, -100, 1, 1, 0,
            UInt16(XCB_WINDOW_CLASS_INPUT_ONLY.rawValue), 0,
            XCB_CW_OVERRIDE_REDIRECT.rawValue | XCB_CW_EVENT_MASK.rawValue, &values)
        return window
    }

    /// The server's time, which it reports with a change of a property (ICCCM 2.1, "Acquiring Selection Ownership"); 0:
    /// it does not answer. Takes a round trip; earlier events are lost.
    ///
    /// - Parameter window: one of our own, whose properties are watched.
    func time(by window: xcb_window_t) -> UInt32 {
        xcb_change_property(
            pointer, UInt8(XCB_PROP_MODE_APPEND.rawValue), window, XCB_ATOM_WM_NAME.rawValue,
            XCB_ATOM_STRING.rawValue, 8, 0, nil)
        // Events come before the answer to a later request.
        _ = focus()
        var time: UInt32 = 0
        while let event = xcb_poll_for_queued_event(pointer) {
            defer { free(event) }
            guard Int32(cxcb_event_type(event)) == XCB_PROPERTY_NOTIFY else { continue }
            let notice = UnsafeRawPointer(event).loadUnaligned(as: xcb_property_notify_event_t.self)
            if notice.window == window { time = notice.time }
        }
        return time
    }

    /// Sends a text to the root window, in parts of 20 bytes (Startup Notification Protocol 0.2).
    ///
    /// - Parameters:
    ///   - window: identifies the sequence.
    ///   - begin: the type of the first message.
    ///   - more: the type of the others.
    func broadcast(_ text: [UInt8], from window: xcb_window_t, begin: xcb_atom_t, more: xcb_atom_t) {
        let length = 20
        for start in stride(from: 0, to: text.count, by: length) {
            var message = xcb_client_message_event_t()
            message.response_type = UInt8(XCB_CLIENT_MESSAGE)
            message.format = 8
            message.window = window
            message.type = start == 0 ? begin : more
            withUnsafeMutableBytes(of: &message.data) { data in
                data.copyBytes(from: text[start..<min(start + length, text.count)])
            }
            withUnsafeBytes(of: &message) { bytes in
                _ = xcb_send_event(
                    pointer, 0, root, EventMask.propertyChange.rawValue,
                    bytes.bindMemory(to: CChar.self).baseAddress)
            }
        }
        flush()
    }
}
