import CWayland
import Glibc
import Linux

/// A connection to a Wayland compositor. The events of an object go to its listener. Nothing blocks, except
/// that `init` waits for the socket to accept, and `synchronize()` for an answer, both for a limited time.
final class WaylandConnection {
    /// Gets an event: its number in the object's interface, and its arguments, which are valid during the call.
    typealias Listener = (_ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>) -> Void

    /// An object of the compositor that every client can bind.
    struct Global {
        let interface: String
        let name: UInt32
        let version: UInt32
    }

    /// As in WAYLAND_DISPLAY.
    let name: String
    /// The socket on which the compositor says that it listens.
    let service: String
    let descriptor: Int32
    /// In the order in which they were announced.
    private var globals: [Global] = []
    private let display: OpaquePointer
    private let patience: UInt64
    private var registry: OpaquePointer?
    private var listeners: [OpaquePointer: Listener] = [:]

    /// The most that one `receive()` reads, in reads of 4 KiB each, because a compositor that never stops
    /// sending must not block us.
    private static let mostReads = 1_024
    /// The most globals that are remembered; compositors have some fifty.
    private static let mostGlobals = 1_024

    /// The number from which an observer counts windows up, because the protocols do not number them. An observer that
    /// connects again must give no number that was another window's before. Windows are fewer than the microseconds
    /// that pass meanwhile. Below 2^47, where the numbers of shared windows begin, there is room to count.
    static var firstNumber: UInt64 { Clock.monotonicMicroseconds & (1 << 46 - 1) }

    /// Connects, and reads the globals.
    ///
    /// - Parameters:
    ///   - display: as in WAYLAND_DISPLAY: a path, or a name in XDG_RUNTIME_DIR; nil for WAYLAND_DISPLAY itself.
    ///   - patience: how long each answer may take, in microseconds.
    init(display name: String?, patience: UInt64 = Patience.span) throws(ObserverFailure) {
        guard let name = name ?? Environment["WAYLAND_DISPLAY"], !name.isEmpty else {
            throw .unreachable("WAYLAND_DISPLAY is not set")
        }
        guard let path = DisplaySocket.path(ofDisplay: name) else {
            throw .unreachable("WAYLAND_DISPLAY=\(name) is relative to XDG_RUNTIME_DIR, which is not set")
        }
        let socket = try LocalSocket.connect(to: path, patience: patience).release()
        // libwayland owns it from here on.
        guard let display = wl_display_connect_to_fd(socket) else { throw .unreachable("out of memory") }
        self.name = name
        self.display = display
        self.patience = patience
        descriptor = socket
        service = LocalSocket.service(of: socket) ?? path
        guard let registry = wl_display_get_registry(display) else { throw .unreachable("out of memory") }
        self.registry = registry
        listen(to: registry) { [unowned self] event, arguments in take(event, arguments) }
        do throws(ObserverFailure) {
            try synchronize()
        } catch .ended(let why) {
            throw .unreachable("the compositor accepts no connection: \(why)")
        }
    }

    deinit {
        for object in listeners.keys { wl_proxy_destroy(object) }
        wl_display_disconnect(display)
    }

    private func take(_ event: UInt32, _ arguments: UnsafeMutablePointer<wl_argument>) {
        // wl_registry.global_remove: name.
        if event == 1 { globals.removeAll { $0.name == arguments[0].u } }
        // wl_registry.global: name, interface, version.
        guard event == 0, let interface = arguments[1].s, globals.count < Self.mostGlobals else { return }
        globals.append(
            Global(interface: String(cString: interface), name: arguments[0].u, version: arguments[2].u))
    }

    /// The compositor's process.
    var process: Int32? { SocketPeer(of: descriptor)?.pid }

    // MARK: Objects

    /// Binds a global; nil if the compositor does not have it. `interface` gives the newest version that is understood.
    ///
    /// - Parameter choose: chooses a version, given the newest that both sides understand.
    func bind(
        _ interface: UnsafePointer<wl_interface>, version choose: (UInt32) -> UInt32 = { $0 }
    ) -> OpaquePointer? {
        let name = String(cString: interface.pointee.name)
        guard let registry, let global = globals.first(where: { $0.interface == name }) else { return nil }
        let version = choose(min(global.version, UInt32(clamping: interface.pointee.version)))
        return wl_registry_bind(registry, global.name, interface, version).map { OpaquePointer($0) }
    }

    /// Sends the events of an object to `listener`, until the object is released.
    func listen(to object: OpaquePointer, _ listener: @escaping Listener) {
        listeners[object] = listener
        let own = Unmanaged.passUnretained(self).toOpaque()
        wl_proxy_add_dispatcher(
            object,
            { _, object, event, _, arguments in
                guard let object = object.map({ OpaquePointer($0) }), let arguments,
                    let own = wl_proxy_get_user_data(object)
                else { return 0 }
                let connection = Unmanaged<WaylandConnection>.fromOpaque(own).takeUnretainedValue()
                connection.listeners[object]?(event, arguments)
                return 0
            }, nil, own)
    }

    /// Requests a new object.
    func make(
        _ interface: UnsafePointer<wl_interface>, by request: UInt32, of object: OpaquePointer,
        _ arguments: [wl_argument]
    ) -> OpaquePointer? {
        var arguments = arguments
        return wl_proxy_marshal_array_flags(
            object, request, interface, wl_proxy_get_version(object), 0, &arguments)
    }

    /// Sends a request to an object, at once.
    func ask(_ request: UInt32, of object: OpaquePointer, _ arguments: [wl_argument] = []) {
        var arguments = arguments
        wl_proxy_marshal_array_flags(
            object, request, nil, wl_proxy_get_version(object), 0, &arguments)
        wl_display_flush(display)
    }

    /// Releases an object that the compositor has released already, or that it cannot be notified about.
    func drop(_ object: OpaquePointer) {
        listeners[object] = nil
        wl_proxy_destroy(object)
    }

    /// Releases an object, and notifies the compositor of that with this request.
    func release(_ object: OpaquePointer, by request: UInt32) {
        listeners[object] = nil
        wl_proxy_marshal_array_flags(
            object, request, nil, wl_proxy_get_version(object), UInt32(WL_MARSHAL_FLAG_DESTROY), nil)
    }

    // MARK: Messages

    /// Handles everything that has arrived, without waiting, and sends the requests of the listeners.
    func receive() throws(ObserverFailure) {
        for _ in 0..<Self.mostReads {
            while wl_display_prepare_read(display) != 0 { try check(wl_display_dispatch_pending(display)) }
            // Requests for which there is no room are sent the next time.
            wl_display_flush(display)
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&ready, 1, 0) > 0 else {
                wl_display_cancel_read(display)
                return
            }
            try check(wl_display_read_events(display))
            try check(wl_display_dispatch_pending(display))
        }
    }

    /// Waits until the compositor has handled all requests so far, and has sent the results.
    func synchronize() throws(ObserverFailure) {
        guard let callback = wl_display_sync(display) else { throw .unreachable("out of memory") }
        defer { drop(callback) }
        var isDone = false
        listen(to: callback) { _, _ in isDone = true }
        let deadline = Clock.monotonicMicroseconds + patience
        try receive()
        while !isDone {
            guard Patience.wait(for: descriptor, until: deadline) else {
                throw .unreachable("the compositor at WAYLAND_DISPLAY=\(name) does not answer")
            }
            try receive()
        }
    }

    private func check(_ result: Int32) throws(ObserverFailure) {
        guard result < 0 else { return }
        let number = wl_display_get_error(display)
        switch number {
        case EPIPE, ECONNRESET, 0: throw .ended("it has closed the connection")
        default: throw .ended(String(cString: strerror(number)))
        }
    }
}

extension wl_argument {
    /// A string in a form that may be forwarded.
    var text: String {
        guard let text = s else { return "" }
        return ObservedWindow.text(
            UnsafeBufferPointer(start: text, count: strlen(text)).lazy.map { UInt8(bitPattern: $0) })
    }

    /// An array of numbers.
    var numbers: [UInt32] {
        guard let array = a?.pointee, let data = array.data else { return [] }
        return Array(
            UnsafeRawBufferPointer(start: data, count: array.size / 4 * 4).bindMemory(to: UInt32.self))
    }
}
