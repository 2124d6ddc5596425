import CSystemd
import Glibc

/// A D-Bus message. Owns one reference to it.
///
/// Writing appends to a message that was created here and not yet sent. Reading goes through a received message,
/// beginning with its first argument. See sd_bus_message_append(3) and sd_bus_message_read(3).
public struct Message: ~Copyable {
    let pointer: OpaquePointer

    /// Takes over a reference.
    init(owning pointer: OpaquePointer) {
        self.pointer = pointer
    }

    /// Adds a reference to a message that libsystemd lends for the duration of a callback.
    init(retaining pointer: OpaquePointer) {
        self.init(owning: sd_bus_message_ref(pointer))
    }

    deinit {
        sd_bus_message_unref(pointer)
    }

    /// Another reference to the same message, to keep.
    public borrowing func retained() -> Message {
        Message(retaining: pointer)
    }

    /// The member: the name of a method or a signal.
    public var member: String? { text(sd_bus_message_get_member(pointer)) }
    /// The interface.
    public var interface: String? { text(sd_bus_message_get_interface(pointer)) }
    /// The object path.
    public var path: String? { text(sd_bus_message_get_path(pointer)) }
    /// The unique name of the connection that sent it. The bus sets it, so it cannot be forged.
    public var sender: String? { text(sd_bus_message_get_sender(pointer)) }
    /// The connection or name it is addressed to; nil for a broadcast.
    public var destination: String? { text(sd_bus_message_get_destination(pointer)) }
    /// The signature of all arguments.
    public var signature: String { text(sd_bus_message_get_signature(pointer, 1)) ?? "" }
    /// The number that the sender gave this message; nil before it is sent.
    public var serial: UInt64? {
        var value: UInt64 = 0
        return sd_bus_message_get_cookie(pointer, &value) >= 0 ? value : nil
    }
    /// The number of the call that this answers; nil: it answers none.
    public var replySerial: UInt64? {
        var value: UInt64 = 0
        return sd_bus_message_get_reply_cookie(pointer, &value) >= 0 ? value : nil
    }
    /// Whether it is a method call.
    public var isMethodCall: Bool { sd_bus_message_is_method_call(pointer, nil, nil) > 0 }
    /// Whether its member has this name. Nothing is copied, so that each message may be asked.
    public borrowing func hasMember(_ name: StaticString) -> Bool {
        guard let member = sd_bus_message_get_member(pointer) else { return false }
        return strcmp(member, UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)) == 0
    }
    /// Whether it is a signal.
    public var isSignal: Bool { sd_bus_message_is_signal(pointer, nil, nil) > 0 }
    /// Whether it is an error that answers a call.
    public var isError: Bool { sd_bus_message_is_method_error(pointer, nil) > 0 }
    /// Whether the sender of this call waits for an answer.
    public var expectsReply: Bool { sd_bus_message_get_expect_reply(pointer) > 0 }

    /// The error that answers a call; nil for any other message. Of its text, the first 4,096 bytes.
    public var error: MethodError? {
        guard isError, let error = sd_bus_message_get_error(pointer)?.pointee else { return nil }
        let text = error.message.map { message in
            let bytes = UnsafeRawBufferPointer(start: message, count: strnlen(message, Self.longestErrorText))
            return String(decoding: bytes, as: UTF8.self)
        }
        return MethodError(self.text(error.name) ?? "", text ?? "")
    }

    private static let longestErrorText = 4_096

    /// Begins reading from the first argument again.
    public borrowing func rewind() throws(BusFailure) {
        try check(sd_bus_message_rewind(pointer, 1), "rewind", subject)
    }

    /// Whether it is for an object whose path is longer than this many bytes. The path itself is not copied.
    public borrowing func hasPath(longerThan limit: Int) -> Bool {
        sd_bus_message_get_path(pointer).map { strnlen($0, limit + 1) > limit } ?? false
    }

    /// The size of the arguments in bytes, roughly as on the wire; nil: it exceeds `limit`.
    ///
    /// Throws `EBADF` for a message that names a descriptor and carries none, another error for one that cannot be
    /// traversed.
    public borrowing func size(atMost limit: Int) throws(BusFailure) -> Int? {
        var left = limit
        let result = csystemd_message_weigh(pointer, &left)
        try rewind()
        return try check(result, "measure", subject) == 0 ? limit - left : nil
    }

    /// Refuses a call whose arguments have more than `limit` bytes, or cannot be traversed.
    borrowing func checkSize(atMost limit: Int) throws(MethodError) {
        if sd_bus_message_is_empty(pointer) > 0 { return }
        let size: Int?
        do throws(BusFailure) {
            size = try self.size(atMost: limit)
        } catch {
            throw error.errno == EBADF
                ? .invalidArgs("The message carries no file descriptor")
                : .invalidArgs("The message is broken")
        }
        guard size != nil else {
            throw MethodError(
                "org.freedesktop.DBus.Error.LimitsExceeded", "The arguments are more than \(limit) bytes")
        }
    }

    /// How failures name it: the member, or else the kind of message.
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
    /// `v`: one value together with its type.
    case variant = 0x76
    /// `()`: a fixed sequence of types.
    case `struct` = 0x72
    /// `{}`: key and value, inside an array.
    case dictEntry = 0x65
}
