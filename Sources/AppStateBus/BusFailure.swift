import CSystemd
import Glibc

/// A failure of libsystemd, of the system below it, or of the peer that was asked.
public struct BusFailure: Error, Equatable, CustomStringConvertible {
    /// What was attempted, in words: `call`, `append s`, `open the system bus`.
    public let operation: String
    /// What it was attempted on: a member, a path, a rule, a descriptor.
    public let subject: String
    /// The positive error number, as in errno(3).
    public let errno: Int32
    /// The D-Bus error name, when a peer answered with an error.
    public let name: String?
    /// The D-Bus error message, when a peer answered with an error.
    public let message: String?
    /// Whether a message did not hold what the reader asked for: in a method handler, the caller's mistake.
    public let isArgument: Bool

    /// - Parameters:
    ///   - operation: what was attempted.
    ///   - subject: what it was attempted on.
    ///   - errno: the positive error number.
    ///   - name: the D-Bus error name of a peer's answer.
    ///   - message: the D-Bus error message of a peer's answer.
    ///   - isArgument: whether reading a message failed because of what the message holds.
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

    /// Whether the bus answered that nobody has the name that was asked about.
    public var isNobody: Bool { name == "org.freedesktop.DBus.Error.NameHasNoOwner" }

    /// One line: operation, subject, and the peer's words or the system's.
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

/// What a method answers instead of a reply: a D-Bus error.
public struct MethodError: Error, Equatable, CustomStringConvertible {
    /// The D-Bus error name, such as `org.freedesktop.DBus.Error.InvalidArgs`.
    public let name: String
    /// What was wrong, with the value that was, for a person.
    public let message: String

    /// - Parameters:
    ///   - name: a D-Bus error name.
    ///   - message: what was wrong.
    public init(_ name: String, _ message: String) {
        self.name = name
        self.message = message
    }

    /// Whether there was no answer in time, which sd_bus_call(3) waits 25 s for by itself.
    public var isNoReply: Bool { name == "org.freedesktop.DBus.Error.NoReply" }

    /// `org.freedesktop.DBus.Error.InvalidArgs`: the caller's arguments are wrong.
    public static func invalidArgs(_ message: String) -> MethodError {
        MethodError("org.freedesktop.DBus.Error.InvalidArgs", message)
    }

    /// `org.freedesktop.DBus.Error.Failed`: we are at fault.
    public static func failed(_ message: String) -> MethodError {
        MethodError("org.freedesktop.DBus.Error.Failed", message)
    }

    /// Name and message in one line.
    public var description: String { "\(name): \(message)" }

    /// What a caller is told of a failure in a handler: unreadable arguments are the caller's
    /// (`InvalidArgs`), a peer's error is passed on, anything else is ours (`Failed`).
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

/// Throws when `result`, a return value of libsystemd, is a negative error number.
@discardableResult
func check(
    _ result: Int32, _ operation: @autoclosure () -> String, _ subject: @autoclosure () -> String
) throws(BusFailure) -> Int32 {
    guard result < 0 else { return result }
    throw BusFailure(operation: operation(), subject: subject(), errno: -result)
}

extension BusFailure {
    /// What a closure threw, as a failure that passes through `Message`: a failure as it is, a method's error
    /// with its name and message.
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

    /// The failure that `error` describes, or the bare error number when it is empty.
    init(operation: String, subject: String, result: Int32, error: sd_bus_error) {
        self.init(
            operation: operation, subject: subject, errno: -result,
            name: error.name.map { String(cString: $0) }, message: error.message.map { String(cString: $0) })
    }
}
