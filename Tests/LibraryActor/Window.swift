import CXCB
import Glibc

/// A window of this application.
final class Window {
    private let connection: OpaquePointer

    init?() {
        guard let connection = xcb_connect(nil, nil), xcb_connection_has_error(connection) == 0,
            let setup = xcb_get_setup(connection)
        else { return nil }
        self.connection = connection
        let screen = xcb_setup_roots_iterator(setup).data.pointee
        let window = xcb_generate_id(connection)
        xcb_create_window(
            connection, UInt8(XCB_COPY_FROM_PARENT), window, screen.root, 0, 0, 200, 100, 0,
            UInt16(XCB_WINDOW_CLASS_INPUT_OUTPUT.rawValue), screen.root_visual, 0, nil)
        let name = Array("libraryactor\0LibraryActor\0".utf8)
        xcb_change_property(
            connection, UInt8(XCB_PROP_MODE_REPLACE.rawValue), window, XCB_ATOM_WM_CLASS.rawValue,
            XCB_ATOM_STRING.rawValue, 8, UInt32(name.count), name)
        xcb_map_window(connection, window)
        xcb_flush(connection)
        say("window \(window)")
    }
}
