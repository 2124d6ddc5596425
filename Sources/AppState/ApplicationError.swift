internal import AppStateBus

/// An error that appstated returned, or the reason why it could not be called.
public struct ApplicationError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The name of the D-Bus error, such as `org.appstate1.Error.NoSuchApplication`; nil: appstated is not available,
    /// or does not answer.
    public let name: String?
    /// A human-readable description of the error.
    public let message: String

    /// Name and message in one line.
    public var description: String { name.map { "\($0): \(message)" } ?? message }

    init(name: String?, message: String) {
        self.name = name
        self.message = message
    }

    init(_ failure: BusFailure) {
        self.init(name: failure.name, message: failure.message ?? failure.description)
    }

    init(_ error: MethodError) {
        self.init(name: error.isNoReply ? nil : error.name, message: error.message)
    }

    static let alone = ApplicationError(name: nil, message: "appstated is not available")
}
