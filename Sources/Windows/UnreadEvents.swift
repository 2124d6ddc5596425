/// The data that a display server, a session manager or a message bus has sent to a stopped client, and that the
/// client has not read.
///
/// The client had read all earlier events completely, so the first byte begins an event. If it had not, a
/// request may be missed, or detected by mistake. In a bus's data, what begins no message counts as a call.
public enum UnreadEvents: Equatable, Sendable {
    case wayland
    /// The display as in DISPLAY.
    case x11(display: String)
    /// The X Session Management Protocol, by which session managers ask clients to save their state and to end.
    case xsmp
    /// A message bus (D-Bus) that is not the session's: the system bus, or that of accessibility.
    case bus

    /// A server's request to its client.
    public enum Request: Sendable {
        /// To close one of its windows.
        case close
        /// To do something with one of its windows. It may be to close it, but that cannot be told.
        case message
        /// The user has pressed a key or a button for it.
        case input
        /// Another client pastes text that is selected in this one.
        case paste
        /// To save its state, or to exit.
        case endOfSession
        /// A method call of another client of the bus.
        case call

        /// The client is asked to exit, or to close a window.
        var asksToEnd: Bool { self == .close || self == .endOfSession }
    }

    /// - Parameter service: the name of the server's socket, as in `sun_path` of unix(7); nil for a socket of another
    ///   kind of service. Wayland servers are named `wayland-N` (wl_display_add_socket_auto), X servers
    ///   `.X11-unix/XN` (X(7)), session managers `.ICE-unix/PID` (libICE). Buses are named `system_bus_socket` (D-Bus
    ///   specification, "Well-known Message Bus Instances") and `at-spi/bus_N` (at-spi2-core), and a Flatpak's proxies
    ///   `.dbus-proxy/system-bus-proxy-XXXXXX` and `.dbus-proxy/a11y-bus-proxy-XXXXXX`.
    public init?(service: String) {
        let parts = service.split(separator: "/")
        guard let last = parts.last else { return nil }
        switch parts.dropLast().last {
        case ".X11-unix":
            guard last.hasPrefix("X") else { return nil }
            self = .x11(display: ":" + last.dropFirst())
        case ".ICE-unix": self = .xsmp
        case "at-spi": self = .bus
        case ".dbus-proxy":
            guard last.hasPrefix("system-bus-proxy-") || last.hasPrefix("a11y-bus-proxy-") else { return nil }
            self = .bus
        case _ where last == "system_bus_socket": self = .bus
        default:
            guard last.hasPrefix("wayland-") else { return nil }
            self = .wayland
        }
    }

    /// The most bytes that may wait; with twice as many, the server may soon close the connection. Nil: it
    /// never does so for this reason.
    ///
    /// libwayland closes the connection when the socket and its own buffer of 4 KiB are full, and then the
    /// client exits. The kernel counts each message as a kilobyte, so pointer motion events of 28 bytes each
    /// fill a socket with 6 KiB of them.
    public var mostWaiting: Int? {
        switch self {
        case .wayland: 2_048
        case .x11, .xsmp, .bus: nil
        }
    }

    /// The first request to end among events; if there is none, the first request.
    ///
    /// - Parameters:
    ///   - events: bytes that start at the beginning of an event; the last event may be truncated.
    ///   - atoms: asks the X server of a display for its atoms. It is called only if a client's message is among the
    ///     events. nil: they are not known, and each message to a window of a client may be a request.
    public func request(
        in events: UnsafeRawBufferPointer, atoms: (_ display: String) -> CloseAtoms? = CloseAtoms.init
    ) -> Request? {
        var rest = events[...]
        var first: Request?
        lazy var known: CloseAtoms? = if case .x11(let display) = self { atoms(display) } else { nil }
        while !rest.isEmpty {
            let event = UnsafeRawBufferPointer(rebasing: rest)
            guard event.count >= headerSize else { break }
            if let request = request(event, { known }) {
                if request.asksToEnd { return request }
                first = first ?? request
            }
            guard let size = size(event) else { return first ?? (self == .bus ? .call : nil) }
            guard size <= event.count else { break }
            rest = rest.dropFirst(size)
        }
        return first
    }

    private var headerSize: Int {
        switch self {
        case .wayland, .xsmp: 8
        case .bus: 16
        case .x11: 32
        }
    }

    /// nil: no event can have this size.
    private func size(_ event: UnsafeRawBufferPointer) -> Int? {
        switch self {
        case .xsmp: return nil
        case .bus:
            guard let fields = Self.fields(of: event), let body = Self.number(in: event, at: 4),
                body <= 1 << 27
            else { return nil }
            return (Self.fixed + fields + 7) / 8 * 8 + body
        case .wayland:
            // The Wayland protocol, "Wire Format": an object, then the opcode in the lower half of a word and the size
            // in the upper one.
            let size = Int(event.loadUnaligned(fromByteOffset: 4, as: UInt32.self) >> 16)
            return size >= headerSize ? size : nil
        case .x11:
            // X Window System Protocol, "Encoding": replies and, with the X Generic Event Extension, some events have
            // more than 32 bytes.
            guard event[0] == Self.reply || event[0] & 0x7f == Self.genericEvent else { return headerSize }
            return headerSize + 4 * Int(event.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        }
    }

    private func request(_ event: UnsafeRawBufferPointer, _ atoms: () -> CloseAtoms?) -> Request? {
        switch self {
        // In this protocol, a server sends only requests.
        case .xsmp: return .endOfSession
        case .bus: return Self.isCall(event) ? .call : nil
        case .wayland:
            // xdg_toplevel.close and xdg_popup.popup_done: opcode 1 without arguments, for an object that the client
            // has made. Other events of this form are rare for a client that is not in front: the loss of the
            // primary selection, or the user's return.
            let isAsked =
                event.loadUnaligned(fromByteOffset: 4, as: UInt32.self) == 8 << 16 | 1
                && event.loadUnaligned(as: UInt32.self) < Self.firstOfServer
            return isAsked ? .message : nil
        case .x11:
            switch event[0] & ~Self.sent {
            // In a menu, which no window manager lists; on a tray icon; or an input that the client has
            // grabbed.
            case Self.keyPress, Self.buttonPress: return .input
            case Self.selectionRequest: return .paste
            case Self.genericEvent: return isInput(generic: event) ? .input : nil
            default: break
            }
            // A message of another client to a window, as WM_DELETE_WINDOW (ICCCM, 4.2.8). Messages about the root
            // window, and those of the Startup Notification Protocol, which have the format 8, go to all clients.
            guard event[0] == Self.sent | Self.clientMessage, event[1] == 32,
                event.loadUnaligned(fromByteOffset: 4, as: UInt32.self) >= Self.firstOfClients
            else { return nil }
            guard let atoms = atoms() else { return .message }
            let isAsked =
                event.loadUnaligned(fromByteOffset: 8, as: UInt32.self) == atoms.protocols
                && event.loadUnaligned(fromByteOffset: 12, as: UInt32.self) == atoms.deleteWindow
            return isAsked ? .close : nil
        }
    }

    /// Whether it is `XI_KeyPress`, `XI_ButtonPress` or `XI_TouchBegin` of the X Input Extension 2, which have 80 bytes at
    /// least. Events of the Present Extension that have these types have 40.
    private func isInput(generic event: UnsafeRawBufferPointer) -> Bool {
        guard let size = size(event), size >= 80 else { return false }
        return [2, 4, 18].contains(event.loadUnaligned(fromByteOffset: 8, as: UInt16.self))
    }

    // MARK: D-Bus

    /// The length of a message's header before the fields (D-Bus specification, "Message Format").
    private static let fixed = 16
    private static let methodCall: UInt8 = 1
    /// The field of a header with the interface, as a string: its code and its signature.
    private static let interface: [UInt8] = [2, 1, UInt8(ascii: "s"), 0]
    /// Libraries answer these calls by themselves: nobody needs the application for them.
    private static let peer = "org.freedesktop.DBus.Peer"

    /// Whether the message is a call for which the application is needed.
    private static func isCall(_ message: UnsafeRawBufferPointer) -> Bool {
        guard message[1] == methodCall, let fields = fields(of: message) else { return false }
        // Each field begins at a multiple of eight bytes. If the fields are not all there, the call counts.
        for place in stride(from: fixed, to: min(fixed + fields, message.count), by: 8) {
            let field = UnsafeRawBufferPointer(rebasing: message[place...])
            guard field.starts(with: interface), let length = number(in: field, at: 4, of: message) else {
                continue
            }
            let name = field.dropFirst(8).prefix(length + 1)
            if name.elementsEqual(Array(peer.utf8) + [0]) { return false }
        }
        return true
    }

    /// The length of a message's fields; nil: this is not the beginning of a message.
    private static func fields(of message: UnsafeRawBufferPointer) -> Int? {
        guard message.count >= fixed, message[3] == 1, let length = number(in: message, at: 12),
            length <= 1 << 26
        else { return nil }
        return length
    }

    /// A number of four bytes, in the byte order that the message states at its beginning.
    private static func number(
        in bytes: UnsafeRawBufferPointer, at place: Int, of message: UnsafeRawBufferPointer? = nil
    ) -> Int? {
        guard bytes.count >= place + 4 else { return nil }
        let number = bytes.loadUnaligned(fromByteOffset: place, as: UInt32.self)
        switch (message ?? bytes)[0] {
        case UInt8(ascii: "l"): return Int(UInt32(littleEndian: number))
        case UInt8(ascii: "B"): return Int(UInt32(bigEndian: number))
        default: return nil
        }
    }

    /// The Wayland protocol, "Creating Objects": the server's objects have this id or a greater one.
    private static let firstOfServer: UInt32 = 0xff00_0000
    private static let reply: UInt8 = 1
    /// The event was sent by a client (SendEvent).
    private static let sent: UInt8 = 0x80
    private static let keyPress: UInt8 = 2
    private static let buttonPress: UInt8 = 4
    private static let selectionRequest: UInt8 = 30
    private static let clientMessage: UInt8 = 33
    private static let genericEvent: UInt8 = 35
    /// X.Org's server counts its own resources below this, the root window among them (include/dix/resource.h: 29 bits,
    /// of which 11 at most tell clients apart).
    private static let firstOfClients: UInt32 = 1 << 18
}

/// The atoms in a request to close a window (ICCCM, 4.2.8.1). Their numbers differ between X servers.
public struct CloseAtoms: Sendable {
    let protocols: UInt32
    let deleteWindow: UInt32

    /// Connects to the X server for a moment. nil: it does not answer.
    public init?(display: String) {
        guard let connection = try? XConnection(display: display) else { return nil }
        let atoms = connection.atoms(["WM_PROTOCOLS", "WM_DELETE_WINDOW"])
        self.init(protocols: atoms[0], deleteWindow: atoms[1])
    }

    init(protocols: UInt32, deleteWindow: UInt32) {
        (self.protocols, self.deleteWindow) = (protocols, deleteWindow)
    }
}
