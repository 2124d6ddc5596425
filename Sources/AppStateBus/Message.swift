import CSystemd
import Glibc

/// A D-Bus message: owns one reference to it.
///
/// Writing appends to a message that was made here and not sent yet; reading goes through one that came in,
/// from its first argument on. See sd_bus_message_append(3) and sd_bus_message_read(3).
public struct Message: ~Copyable {
    let pointer: OpaquePointer

    /// Takes over a reference.
    init(owning pointer: OpaquePointer) {
        self.pointer = pointer
        LiveHandles.counts.pointee.messages += 1
    }

    /// Adds a reference to a message that libsystemd lends for the length of a callback.
    init(retaining pointer: OpaquePointer) {
        self.init(owning: sd_bus_message_ref(pointer))
    }

    deinit {
        LiveHandles.counts.pointee.messages -= 1
        sd_bus_message_unref(pointer)
    }

    /// Another reference to the same message, to keep.
    public borrowing func retained() -> Message {
        Message(retaining: pointer)
    }

    /// The member: a method's or a signal's name.
    public var member: String? { text(sd_bus_message_get_member(pointer)) }
    /// The interface.
    public var interface: String? { text(sd_bus_message_get_interface(pointer)) }
    /// The object path.
    public var path: String? { text(sd_bus_message_get_path(pointer)) }
    /// The unique name of the connection that sent it; set by the bus, cannot be forged.
    public var sender: String? { text(sd_bus_message_get_sender(pointer)) }
    /// The connection or name it is addressed to; none for a broadcast.
    public var destination: String? { text(sd_bus_message_get_destination(pointer)) }
    /// The signature of all arguments.
    public var signature: String { text(sd_bus_message_get_signature(pointer, 1)) ?? "" }
    /// The sender's number of this message; none before it is sent.
    public var serial: UInt64? {
        var value: UInt64 = 0
        return sd_bus_message_get_cookie(pointer, &value) >= 0 ? value : nil
    }
    /// Whether it is a method call.
    public var isMethodCall: Bool { sd_bus_message_is_method_call(pointer, nil, nil) > 0 }
    /// Whether it is a signal.
    public var isSignal: Bool { sd_bus_message_is_signal(pointer, nil, nil) > 0 }
    /// Whether it is an error that answers a call.
    public var isError: Bool { sd_bus_message_is_method_error(pointer, nil) > 0 }
    /// Whether the sender of this call waits for an answer.
    public var expectsReply: Bool { sd_bus_message_get_expect_reply(pointer) > 0 }

    /// Whether the sender of this call agrees to wait until somebody has authenticated: the flag
    /// ALLOW_INTERACTIVE_AUTHORIZATION of the D-Bus specification.
    public var allowsInteraction: Bool {
        sd_bus_message_get_allow_interactive_authorization(pointer) > 0
    }

    /// The error that answers a call; none for any other message.
    public var error: MethodError? {
        guard isError, let error = sd_bus_message_get_error(pointer)?.pointee else { return nil }
        return MethodError(text(error.name) ?? "", text(error.message) ?? "")
    }

    /// Whether the other is a reference to this very message.
    public borrowing func isSame(as other: borrowing Message) -> Bool { pointer == other.pointer }

    /// Begins reading from the first argument again.
    public borrowing func rewind() throws(BusFailure) {
        try check(sd_bus_message_rewind(pointer, 1), "rewind", subject)
    }

    /// Whether it is for an object whose path has more than so many bytes; nothing is made of the path.
    public borrowing func hasPath(longerThan limit: Int) -> Bool {
        sd_bus_message_get_path(pointer).map { strnlen($0, limit + 1) > limit } ?? false
    }

    /// How many bytes the arguments are, about as they lie on the wire; nil: more than `limit`, or the message cannot be
    /// walked over.
    public borrowing func size(atMost limit: Int) -> Int? {
        var left = limit
        let result = csystemd_message_weigh(pointer, &left)
        return sd_bus_message_rewind(pointer, 1) < 0 || result != 0 ? nil : limit - left
    }

    /// What failures name: the member, or what kind of message it is.
    var subject: String {
        member ?? (isError ? "an error" : "a reply")
    }

    private func text(_ string: UnsafePointer<CChar>?) -> String? {
        string.map { String(cString: $0) }
    }
}

/// The containers of the D-Bus type system.
public enum Container: UInt8, Sendable {
    /// `a`: any number of one type.
    case array = 0x61
    /// `v`: one value with its type.
    case variant = 0x76
    /// `()`: a fixed row of types.
    case `struct` = 0x72
    /// `{}`: key and value, inside an array.
    case dictEntry = 0x65
}
