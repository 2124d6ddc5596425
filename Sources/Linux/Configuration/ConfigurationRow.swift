/// The meaning of one key of a configuration: how its value is read, and where the value is stored.
public struct ConfigurationRow<Target> {
    /// The name of the key.
    public let key: String
    /// Sets a value; the second argument has the defaults. Returns the error in the value, if there is one.
    let apply: (inout Target, Target, String) -> [String]

    private init<Value>(
        _ key: String, _ path: WritableKeyPath<Target, Value>,
        _ read: @escaping (String, inout Value) -> [String]
    ) {
        self.key = key
        apply = { target, defaults, text in
            if !text.isEmpty { return read(text, &target[keyPath: path]) }
            target[keyPath: path] = defaults[keyPath: path]
            return []
        }
    }

    /// Resets the value, as an empty value does.
    public func restore(in target: inout Target, from defaults: Target) { _ = apply(&target, defaults, "") }

    /// A key with one value. An empty value restores the default.
    public init<Value>(
        _ key: String, _ kind: ConfigurationValue<Value>, _ path: WritableKeyPath<Target, Value>
    ) {
        self.init(key, path) { text, value in kind.apply(text) { value = $0 } }
    }

    /// A key with one value, which may be absent.
    public init<Value>(
        _ key: String, _ kind: ConfigurationValue<Value>, _ path: WritableKeyPath<Target, Value?>
    ) {
        self.init(key, path) { text, value in kind.apply(text) { value = $0 } }
    }

    /// A key with a list. systemd.syntax(7): it may be given in several lines; an empty value clears the
    /// list.
    ///
    /// - Parameter add: adds the words of one line; returns the error in them.
    public init<List>(
        _ key: String, list path: WritableKeyPath<Target, List>,
        add: @escaping ([String], inout List) -> [String]
    ) {
        self.init(key, path) { text, list in
            add(text.split(whereSeparator: \.isWhitespace).map(String.init), &list)
        }
    }
}

/// A kind of value, as a configuration writes it.
public struct ConfigurationValue<Value> {
    private let read: (String) -> Value?
    private let wanted: String

    /// - Parameters:
    ///   - wanted: the complaint about a text that is not such a value: `is not a number`.
    ///   - read: the value that a text means; nil: none.
    public init(_ wanted: String, read: @escaping (String) -> Value?) {
        self.wanted = wanted
        self.read = read
    }

    fileprivate func apply(_ text: String, _ put: (Value) -> Void) -> [String] {
        guard let value = read(text) else { return ["\"\(text.excerpt)\" \(wanted)"] }
        put(value)
        return []
    }
}

extension ConfigurationValue where Value == Bool {
    /// A boolean of systemd.syntax(7).
    public static var boolean: Self {
        Self("is not a boolean") { text in
            switch text.lowercased() {
            case "1", "yes", "y", "true", "t", "on": true
            case "0", "no", "n", "false", "f", "off": false
            default: nil
            }
        }
    }
}

extension ConfigurationValue where Value: FixedWidthInteger {
    /// A number within these bounds.
    public static func number(_ range: ClosedRange<Value>) -> Self {
        Self("is not a number from \(range.lowerBound) to \(range.upperBound)") { text in
            Value(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }
}

extension ConfigurationValue where Value: RawRepresentable<String> & CaseIterable {
    /// One of the cases.
    public static var choice: Self {
        Self(
            "is not one of " + Value.allCases.map(\.rawValue).joined(separator: ", "),
            read: Value.init(rawValue:))
    }
}
