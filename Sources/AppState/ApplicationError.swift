internal import AppStateBus

/// What appstated refused, or why it could not be asked.
public struct ApplicationError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The name of the D-Bus error, such as `org.appstate1.Error.NoSuchApplication`; nil: appstated is not there, or does
    /// not answer.
    public let name: String?
    /// What was wrong, for a person.
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

    static let alone = ApplicationError(name: nil, message: "appstated is not there")
}
