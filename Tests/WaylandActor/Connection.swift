import CWayland
import Glibc

/// A connection to the compositor and the events of its objects.
final class Connection {
    typealias Listener = (_ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>) -> Void

    let display: OpaquePointer
    private var registry: OpaquePointer?
    private var globals: [String: UInt32] = [:]
    private var listeners: [OpaquePointer: Listener] = [:]

    init?() {
        guard let display = wl_display_connect(nil), let registry = wl_display_get_registry(display) else {
            return nil
        }
        self.display = display
        self.registry = registry
        listen(to: registry) { [unowned self] event, arguments in
            if event == 0, let name = arguments[1].s { globals[String(cString: name)] = arguments[0].u }
        }
        guard wl_display_roundtrip(display) >= 0 else { return nil }
    }

    /// Binds a global; nil where it does not exist.
    func bind(_ interface: UnsafePointer<wl_interface>, version: UInt32 = 1) -> OpaquePointer? {
        guard let registry, let global = globals[String(cString: interface.pointee.name)] else { return nil }
        return wl_registry_bind(registry, global, interface, version).map { OpaquePointer($0) }
    }

    func listen(to object: OpaquePointer, _ listener: @escaping Listener) {
        listeners[object] = listener
        wl_proxy_add_dispatcher(
            object,
            { _, object, event, _, arguments in
                guard let object = object.map({ OpaquePointer($0) }), let arguments,
                    let own = wl_proxy_get_user_data(object)
                else { return 0 }
                let connection = Unmanaged<Connection>.fromOpaque(own).takeUnretainedValue()
                connection.listeners[object]?(event, arguments)
                return 0
            }, nil, Unmanaged.passUnretained(self).toOpaque())
    }

    /// Sends a request; returns the object that it creates.
    @discardableResult
    func ask(
        _ object: OpaquePointer, _ request: UInt32, _ arguments: [wl_argument] = [],
        makes: UnsafePointer<wl_interface>? = nil, ends: Bool = false
    ) -> OpaquePointer? {
        if ends { listeners[object] = nil }
        var arguments = arguments
        return wl_proxy_marshal_array_flags(
            object, request, makes, wl_proxy_get_version(object), ends ? UInt32(WL_MARSHAL_FLAG_DESTROY) : 0,
            &arguments)
    }

    func ask(_ object: OpaquePointer, _ request: UInt32, text: String) {
        text.withCString { _ = ask(object, request, [wl_argument(s: $0)]) }
    }

    /// Waits until the compositor has processed all requests.
    func synchronize() -> Bool { wl_display_roundtrip(display) >= 0 }
}
