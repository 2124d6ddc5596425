internal import AppStateBus
internal import AppStateContract

/// An error that appstated returned, or the reason why it could not be called.
public struct ApplicationError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The name of the D-Bus error, such as ``Name/noSuchApplication``; nil: appstated is not available, or does not
    /// answer. If it ends just then, the bus's error, such as `org.freedesktop.DBus.Error.NameHasNoOwner`, is possible,
    /// too.
    public let name: String?
    /// A human-readable description of the error.
    public let message: String

    /// Name and message in one line.
    public var description: String { name.map { "\($0): \(message)" } ?? message }

    /// - Parameters:
    ///   - name: the name of the D-Bus error; nil: appstated is not available.
    ///   - message: a human-readable description.
    public init(name: String?, message: String) {
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

extension ApplicationError {
    /// The names of the errors that appstated returns. The bus has further ones.
    public enum Name {
        /// There is no such application, or it may not be seen.
        public static var noSuchApplication: String { ErrorName.noSuchApplication.rawValue }
        /// There is no such process.
        public static var noSuchProcess: String { ErrorName.noSuchProcess.rawValue }
        /// The process is registered already.
        public static var alreadyRegistered: String { ErrorName.alreadyRegistered.rawValue }
        /// Only the application itself may do this.
        public static var notDelegate: String { ErrorName.notDelegate.rawValue }
        /// There is no such background task.
        public static var noSuchTask: String { ErrorName.noSuchTask.rawValue }
        /// The application cannot be suspended.
        public static var notSuspendable: String { ErrorName.notSuspendable.rawValue }
        /// The application is not in the foreground.
        public static var notInForeground: String { ErrorName.notInForeground.rawValue }
        /// No session agent runs, which launches applications.
        public static var noSessionAgent: String { ErrorName.noSessionAgent.rawValue }
        /// There is too much data.
        public static var tooLarge: String { ErrorName.tooLarge.rawValue }
        /// The caller may not do this.
        public static var accessDenied: String { ErrorName.accessDenied.rawValue }
        /// An argument is not valid.
        public static var invalidArgs: String { ErrorName.invalidArgs.rawValue }
        /// A limit of appstated is reached. The same request may succeed later.
        public static var limitsExceeded: String { ErrorName.limitsExceeded.rawValue }
        /// This machine does not support it.
        public static var notSupported: String { ErrorName.notSupported.rawValue }
        /// It has failed.
        public static var failed: String { ErrorName.failed.rawValue }
    }
}
