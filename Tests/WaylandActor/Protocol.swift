import CWayland
import Glibc

/// Descriptions of interfaces in the form that libwayland requires. They are never freed.
enum Protocol {
    typealias Interface = UnsafePointer<wl_interface>
    /// A message: its name, and a letter for each argument (wayland-util.h, "wl_message").
    typealias Message = (name: String, signature: String, types: [Interface?])

    /// An interface that libwayland itself describes.
    static func own(_ interface: wl_interface) -> Interface {
        let place = UnsafeMutablePointer<wl_interface>.allocate(capacity: 1)
        place.initialize(to: interface)
        return Interface(place)
    }

    static func describe(_ name: String, requests: [Message], events: [Message]) -> Interface {
        own(
            wl_interface(
                name: text(name), version: 1, method_count: Int32(requests.count), methods: list(requests),
                event_count: Int32(events.count), events: list(events)))
    }

    private static func list(_ messages: [Message]) -> UnsafePointer<wl_message> {
        let list = UnsafeMutablePointer<wl_message>.allocate(capacity: messages.count)
        for (index, message) in messages.enumerated() {
            let types = UnsafeMutablePointer<Interface?>.allocate(capacity: 4)
            types.initialize(repeating: nil, count: 4)
            for (place, type) in message.types.enumerated() { types[place] = type }
            (list + index).initialize(
                to: wl_message(name: text(message.name), signature: text(message.signature), types: types))
        }
        return UnsafePointer(list)
    }

    private static func text(_ text: String) -> UnsafePointer<CChar>? { UnsafePointer(strdup(text)) }
}

/// xdg_wm_base and the objects it creates, version 1, as far as windows need them. The numbers are those of its
/// messages.
struct XDGShell {
    let base: Protocol.Interface
    let surface: Protocol.Interface
    let toplevel: Protocol.Interface

    enum Base: UInt32 {
        case getSurface = 2
        case pong = 3
    }

    enum Surface: UInt32 {
        case destroy = 0
        case getToplevel = 1
        case acknowledge = 4
    }

    enum Toplevel: UInt32 {
        case destroy = 0
        case setTitle = 2
        case setAppID = 3
        case setMinimized = 13
    }

    /// An event of xdg_toplevel; the only event of the others is number 0.
    static let closeEvent: UInt32 = 1

    init() {
        toplevel = Protocol.describe(
            "xdg_toplevel",
            requests: [
                ("destroy", "", []), ("set_parent", "?o", []), ("set_title", "s", []),
                ("set_app_id", "s", []),
                ("show_window_menu", "ouii", []), ("move", "ou", []), ("resize", "ouu", []),
                ("set_max_size", "ii", []), ("set_min_size", "ii", []), ("set_maximized", "", []),
                ("unset_maximized", "", []), ("set_fullscreen", "?o", []), ("unset_fullscreen", "", []),
                ("set_minimized", "", []),
            ], events: [("configure", "iia", []), ("close", "", [])])
        surface = Protocol.describe(
            "xdg_surface",
            requests: [
                ("destroy", "", []), ("get_toplevel", "n", [toplevel]), ("get_popup", "n?oo", []),
                ("set_window_geometry", "iiii", []), ("ack_configure", "u", []),
            ], events: [("configure", "u", [])])
        base = Protocol.describe(
            "xdg_wm_base",
            requests: [
                ("destroy", "", []), ("create_positioner", "n", []), ("get_xdg_surface", "no", [surface]),
                ("pong", "u", []),
            ], events: [("ping", "u", [])])
    }
}
