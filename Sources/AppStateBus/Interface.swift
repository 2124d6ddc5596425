/// A method of an interface.
public struct Method {
    /// The member.
    public let name: String
    /// The name and the type of each argument.
    public let arguments: [(name: String, type: String)]
    /// The name and the type of each result.
    public let results: [(name: String, type: String)]
    /// The most bytes that the arguments of a call may have, as `Message.size(atMost:)` counts them.
    public let limit: Int
    let handler: (borrowing Call) throws -> Void

    /// - Parameters:
    ///   - name: the member.
    ///   - arguments: name and one complete type of each argument, for introspection; a call with another signature is
    ///     answered with `InvalidArgs` and does not reach the handler.
    ///   - results: name and one complete type of each result.
    ///   - limit: the most bytes that the arguments of a call may have; none by default. A call with more is answered with
    ///     `LimitsExceeded` and does not reach the handler.
    ///   - handler: answers the call, keeps it with `deferred()`, or throws. A `MethodError` becomes the answer; a
    ///     `BusFailure` becomes `InvalidArgs` if it comes from reading, otherwise `Failed`.
    public init(
        _ name: String, in arguments: [(String, String)] = [], out results: [(String, String)] = [],
        limit: Int = .max, _ handler: @escaping (borrowing Call) throws -> Void
    ) {
        self.name = name
        self.limit = limit
        self.arguments = arguments.map { (name: $0.0, type: $0.1) }
        self.results = results.map { (name: $0.0, type: $0.1) }
        self.handler = handler
    }
}

/// A property of an interface that can be read but not written.
public struct Property {
    /// The notification of peers when the value changes: the annotation
    /// org.freedesktop.DBus.Property.EmitsChangedSignal.
    public enum Changes: Sendable {
        /// PropertiesChanged with the new value.
        case change
        /// PropertiesChanged without the value.
        case invalidation
        /// The value never changes.
        case const
        /// No signal is sent.
        case none
    }

    /// The property's name.
    public let name: String
    /// Its signature.
    public let type: String
    /// The notification of peers when it changes.
    public let changes: Changes
    let value: (borrowing Message, String) throws -> Void

    /// - Parameters:
    ///   - name: the property.
    ///   - type: its signature, one complete type.
    ///   - changes: the notification of peers when it changes.
    ///   - value: appends the value, one complete type, to the message for the object at the path. If it throws a
    ///     `MethodError`, that becomes the answer.
    public init(
        _ name: String, _ type: String, emits changes: Changes = .none,
        _ value: @escaping (_ message: borrowing Message, _ path: String) throws -> Void
    ) {
        self.name = name
        self.type = type
        self.changes = changes
        self.value = value
    }
}

/// A signal of an interface, as introspection shows it.
public struct Signal {
    /// The member.
    public let name: String
    /// The name and the type of each argument.
    public let arguments: [(name: String, type: String)]

    /// - Parameters:
    ///   - name: the member.
    ///   - arguments: name and one complete type of each argument.
    public init(_ name: String, _ arguments: [(String, String)] = []) {
        self.name = name
        self.arguments = arguments.map { (name: $0.0, type: $0.1) }
    }
}

/// A D-Bus interface and its handlers. It can be added to any number of objects.
public final class Interface {
    /// The interface's name.
    public let name: String
    /// The methods that can be called.
    public let methods: [Method]
    /// The properties that can be read.
    public let properties: [Property]
    /// The signals that may be sent.
    public let signals: [Signal]

    /// - Parameters:
    ///   - name: the interface.
    ///   - methods: the methods that can be called.
    ///   - properties: the properties that can be read.
    ///   - signals: the signals that may be sent.
    public init(
        _ name: String, methods: [Method] = [], properties: [Property] = [], signals: [Signal] = []
    ) {
        self.name = name
        self.methods = methods
        self.properties = properties
        self.signals = signals
    }
}

extension Interface {
    /// Appends name and value (`a{sv}`) of properties of one object, for messages that the program composes itself:
    /// PropertiesChanged, InterfacesAdded.
    ///
    /// - Parameters:
    ///   - message: the message to append to.
    ///   - path: the object.
    ///   - names: which properties; those that the interface does not have are left out; `nil` for all.
    public func appendProperties(
        to message: borrowing Message, path: String, only names: [String]? = nil
    ) throws(MethodError) {
        do {
            try message.open(.array, "{sv}")
            for property in properties where names?.contains(property.name) ?? true {
                try message.appendEntry(property.name, property.type) { try property.value(message, path) }
            }
            try message.close()
        } catch {
            throw Answer.error(for: error)
        }
    }
}
