import CSystemd
import Glibc

/// A connection to a message bus: sd-bus(3).
///
/// It closes when it is released. Slots and messages that outlive it are harmless and have no further effect.
public final class Bus {
    let pointer: OpaquePointer
    let complain: (String) -> Void
    let isMonitor: Bool
    private var disconnection: Slot?

    private init(
        _ pointer: OpaquePointer, _ complain: @escaping (String) -> Void, isMonitor: Bool = false
    ) {
        self.pointer = pointer
        self.complain = complain
        self.isMonitor = isMonitor
    }

    deinit {
        disconnection = nil
        sd_bus_close_unref(pointer)
    }

    /// Connects to the system bus, or to the bus at DBUS_SYSTEM_BUS_ADDRESS.
    ///
    /// - Parameter complain: receives, as a line for a log, errors that cannot be reported to a caller: a
    ///   handler that does not answer, or fails after its answer, and an answer that cannot be written or
    ///   sent.
    public static func system(complain: @escaping (String) -> Void = { _ in }) throws(BusFailure) -> Bus {
        var bus: OpaquePointer?
        try check(sd_bus_open_system_with_description(&bus, "system"), "open", "the system bus")
        guard let bus else { throw BusFailure(operation: "open", subject: "the system bus", errno: ENOMEM) }
        return Bus(bus, complain)
    }

    /// Connects to the bus at a D-Bus address, such as `unix:path=/run/dbus/system_bus_socket`.
    ///
    /// - Parameters:
    ///   - isMonitor: it is about to call BecomeMonitor (D-Bus specification). A filter sees every incoming message,
    ///     and no call is answered: a bus disconnects a monitor that sends anything.
    ///   - complain: as for `system(complain:)`.
    public static func open(
        address: String, isMonitor: Bool = false, complain: @escaping (String) -> Void = { _ in }
    ) throws(BusFailure) -> Bus {
        var made: OpaquePointer?
        try check(sd_bus_new(&made), "open", address)
        guard let made else { throw BusFailure(operation: "open", subject: address, errno: ENOMEM) }
        let bus = Bus(made, complain, isMonitor: isMonitor)
        try check(sd_bus_set_address(made, address), "set the address", address)
        try check(sd_bus_set_bus_client(made, 1), "be a client of", address)
        if isMonitor { try check(sd_bus_set_monitor(made, 1), "be a monitor of", address) }
        try check(sd_bus_start(made), "open", address)
        return bus
    }

    /// Lets the loop send, receive and dispatch for this bus. The bus keeps a reference to the loop.
    public func attach(to loop: EventLoop) throws(BusFailure) {
        try check(
            sd_bus_attach_event(pointer, loop.pointer, Int32(SD_EVENT_PRIORITY_NORMAL)), "attach",
            "the bus to the event loop")
    }

    /// For a bus that is attached to no loop: readable when there is something to `process()`. This is the connection's
    /// own descriptor; it is negative if the connection is lost.
    ///
    /// Messages that are queued because the socket is full do not make it readable: sd_bus_get_events(3).
    public var descriptor: Int32 { sd_bus_get_fd(pointer) }

    /// For a bus that is attached to no loop: handles one pending message, without waiting.
    ///
    /// - Returns: false if there was none.
    public func process() throws(BusFailure) -> Bool {
        try check(sd_bus_process(pointer, nil), "process", "the bus") > 0
    }

    /// Whether messages have been read but not dispatched: those that a waiting call found before its reply
    /// (sd_bus_get_n_queued_read(3)), and those that are dispatched again.
    public var hasQueued: Bool {
        var count: UInt64 = 0
        return sd_bus_get_n_queued_read(pointer, &count) >= 0 && count > 0
    }

    /// Requests a well-known name without queueing for it: fails with EEXIST if another connection owns it. A round
    /// trip to the bus.
    ///
    /// - Parameters:
    ///   - isReplaceable: whether a later owner that asks for it gets the name.
    ///   - replaces: takes the name from an owner that has allowed that.
    public func requestName(
        _ name: String, isReplaceable: Bool = false, replaces: Bool = false
    ) throws(BusFailure) {
        let flags =
            (isReplaceable ? csystemd_name_allow_replacement() : 0)
            | (replaces ? csystemd_name_replace_existing() : 0)
        try check(sd_bus_request_name(pointer, name, flags), "request the name", name)
    }

    /// The process that has opened the connection which owns a name. A round trip to the bus.
    public func processID(ofOwner name: String) throws(BusFailure) -> Int32 {
        let call = try newDriverCall("GetConnectionUnixProcessID")
        try call.append(name)
        return Int32(bitPattern: try self.call(call).readUInt32())
    }

    /// Distinguishes this bus from any other, including the next one at the same address: `GetId` of the bus driver.
    ///
    /// - Parameter timeout: in microseconds; 0 for libsystemd's default of 25 s.
    public func id(timeout: UInt64 = 0) throws(BusFailure) -> String {
        try call(try newDriverCall("GetId"), timeout: timeout).readString()
    }

    /// Releases a well-known name. A round trip to the bus.
    public func releaseName(_ name: String) throws(BusFailure) {
        try check(sd_bus_release_name(pointer, name), "release the name", name)
    }

    /// The name that the bus gave this connection, such as `:1.7`. Waits until the bus has given it; empty if the
    /// connection is gone.
    public var uniqueName: String {
        var name: UnsafePointer<CChar>?
        guard sd_bus_get_unique_name(pointer, &name) >= 0, let name else { return "" }
        return String(cString: name)
    }

    /// Whether the connection is open, or being opened.
    public var isOpen: Bool { sd_bus_is_open(pointer) > 0 }

    /// The sender of the message that is being dispatched; nil outside of a handler.
    public var currentSender: String? {
        guard let message = sd_bus_get_current_message(pointer) else { return nil }
        return sd_bus_message_get_sender(message).map { String(cString: $0) }
    }

    /// Calls `handler` once when the connection is lost (org.freedesktop.DBus.Local.Disconnected). A second
    /// handler replaces the first.
    public func onDisconnect(_ handler: @escaping () -> Void) throws(BusFailure) {
        disconnection = try match(
            """
            type='signal',sender='org.freedesktop.DBus.Local',path='/org/freedesktop/DBus/Local',\
            interface='org.freedesktop.DBus.Local',member='Disconnected'
            """,
            // libsystemd generates this signal itself: no bus is involved, so none refuses.
            failed: { _ in }, handler: { _ in handler() })
    }

    /// How many messages wait for the bus to accept them.
    public var queuedMessages: UInt64 {
        var count: UInt64 = 0
        return sd_bus_get_n_queued_write(pointer, &count) >= 0 ? count : 0
    }

    /// Waits until everything queued is written to the socket.
    public func flush() throws(BusFailure) {
        try check(sd_bus_flush(pointer), "flush", "the bus")
    }

    /// Writes what is queued to the socket, for a limited time: a bus that is stopped reads nothing. Meanwhile, incoming
    /// messages are dispatched, so the caller first drops the handlers that must not run.
    ///
    /// - Parameter deadline: CLOCK_MONOTONIC, in microseconds. What the socket takes at once is written even after it.
    public func flush(until deadline: UInt64) throws(BusFailure) {
        while queuedMessages > 0 {
            if try process() {
                guard EventLoop.clock < deadline else { return }
                continue
            }
            let now = EventLoop.clock
            let events = sd_bus_get_events(pointer)
            guard queuedMessages > 0, now < deadline, events > 0 else { return }
            var ready = pollfd(fd: descriptor, events: Int16(events), revents: 0)
            poll(&ready, 1, Int32(min((deadline - now + 999) / 1_000, UInt64(Int32.max))))
        }
    }

    /// Closes the connection without waiting; queued messages are lost.
    public func close() {
        sd_bus_close(pointer)
    }
}
