import CSystemd
import Glibc

/// A failure of libsystemd, of the system below it, or of the peer that was called.
public struct BusFailure: Error, Equatable, CustomStringConvertible {
    /// The operation, in words: `call`, `append s`, `open the system bus`.
    public let operation: String
    /// The object of the operation: a member, a path, a rule, a descriptor.
    public let subject: String
    /// The positive error number, as in errno(3).
    public let errno: Int32
    /// The D-Bus error name, if a peer answered with an error.
    public let name: String?
    /// The D-Bus error message, if a peer answered with an error.
    public let message: String?
    /// Whether a message did not contain the values that the reader requested. In a method handler, this is
    /// the caller's mistake.
    public let isArgument: Bool

    /// - Parameters:
    ///   - operation: the operation, in words.
    ///   - subject: the object of the operation.
    ///   - errno: the positive error number.
    ///   - name: the D-Bus error name of a peer's answer.
    ///   - message: the D-Bus error message of a peer's answer.
    ///   - isArgument: whether reading a message failed because of its content.
    public init(
        operation: String, subject: String, errno: Int32, name: String? = nil, message: String? = nil,
        isArgument: Bool = false
    ) {
        self.operation = operation
        self.subject = subject
        self.errno = errno
        self.name = name
        self.message = message
        self.isArgument = isArgument
    }

    /// Whether the bus answered that the name in question has no owner.
    public var isNobody: Bool { name == "org.freedesktop.DBus.Error.NameHasNoOwner" }

    /// One line: operation, subject, and the peer's message or the system's.
    public var description: String {
        if let name {
            return "\(operation) \(subject): \(name)" + (message.map { ": \($0)" } ?? "")
        }
        if let message {
            return "\(operation) \(subject): \(message)"
        }
        return "\(operation) \(subject): \(String(cString: strerror(errno)))"
    }
}

/// A D-Bus error that a method returns instead of a reply.
public struct MethodError: Error, Equatable, CustomStringConvertible {
    /// The D-Bus error name, such as `org.freedesktop.DBus.Error.InvalidArgs`.
    public let name: String
    /// A human-readable description of the error, including the offending value.
    public let message: String

    /// - Parameters:
    ///   - name: a D-Bus error name.
    ///   - message: a description of the error.
    public init(_ name: String, _ message: String) {
        self.name = name
        self.message = message
    }

    /// Whether no answer came in time. By default sd_bus_call(3) waits 25 s.
    public var isNoReply: Bool { name == "org.freedesktop.DBus.Error.NoReply" }

    /// `org.freedesktop.DBus.Error.InvalidArgs`: the caller's arguments are wrong.
    public static func invalidArgs(_ message: String) -> MethodError {
        MethodError("org.freedesktop.DBus.Error.InvalidArgs", message)
    }

    /// `org.freedesktop.DBus.Error.Failed`: the fault is ours.
    public static func failed(_ message: String) -> MethodError {
        MethodError("org.freedesktop.DBus.Error.Failed", message)
    }

    /// Name and message in one line.
    public var description: String { "\(name): \(message)" }

    /// The error that a caller gets for a failure in a handler: unreadable arguments are the caller's mistake
    /// (`InvalidArgs`), a peer's error is passed on, anything else is our fault (`Failed`).
    public init(_ failure: BusFailure) {
        if failure.isArgument {
            self = .invalidArgs("\(failure.subject): \(failure.message ?? failure.operation)")
        } else if let name = failure.name {
            self.init(name, failure.message ?? "")
        } else {
            self = .failed(failure.description)
        }
    }
}

/// Throws if `result`, a return value of libsystemd, is a negative error number.
@discardableResult
func check(
    _ result: Int32, _ operation: @autoclosure () -> String, _ subject: @autoclosure () -> String
) throws(BusFailure) -> Int32 {
    guard result < 0 else { return result }
    throw BusFailure(operation: operation(), subject: subject(), errno: -result)
}

extension BusFailure {
    /// What a closure threw, as a failure that passes through `Message`: a failure unchanged, a method's error with its
    /// name and message.
    init(_ error: any Error, from operation: String, to subject: String) {
        switch error {
        case let failure as BusFailure:
            self = failure
        case let error as MethodError:
            self.init(
                operation: operation, subject: subject, errno: EIO, name: error.name, message: error.message)
        default:
            self.init(operation: operation, subject: subject, errno: EIO, message: "\(error)")
        }
    }

    /// The failure that `error` describes, or the bare error number if `error` is empty.
    init(operation: String, subject: String, result: Int32, error: sd_bus_error) {
        self.init(
            operation: operation, subject: subject, errno: -result,
            name: error.name.map { String(cString: $0) }, message: error.message.map { String(cString: $0) })
    }
}
