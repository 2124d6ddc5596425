/// The machine's data about one application. It is written whenever it changes, so that the next daemon
/// continues where a killed one ended (§ 5).
///
/// Lines of a key and fields, in a fixed order; a key may occur more than once. A field is any text. The file
/// defines how it is written (`RecordFile`), and its reader defines what it means.
public struct Record: Equatable, Sendable {
    public struct Line: Equatable, Sendable {
        public let key: String
        public let fields: [String]

        public init(_ key: String, _ fields: [String]) {
            self.key = key
            self.fields = fields
        }

        public init(_ key: String, _ fields: String...) { self.init(key, fields) }
    }

    public var lines: [Line]

    public init(_ lines: [Line] = []) { self.lines = lines }

    /// An error in a record: the key and its fields.
    public struct Flaw: Error, Equatable, Sendable, CustomStringConvertible {
        public let key: String
        public let value: String?

        public init(_ key: String, _ value: String?) {
            self.key = key
            self.value = value
        }

        public var description: String {
            value.map { "\(key) \($0.prefix(80)) is not understood" } ?? "\(key) is missing"
        }
    }

    public mutating func add(_ key: String, _ fields: String...) { lines.append(Line(key, fields)) }

    public mutating func add(_ key: String, _ fields: [String]) { lines.append(Line(key, fields)) }

    mutating func add(_ key: String, ifPresent fields: [String]?) {
        if let fields { add(key, fields) }
    }

    mutating func add(_ key: String, if flag: Bool) {
        if flag { add(key) }
    }

    /// Whether there is such a line, which has no fields.
    func flag(_ key: String) throws(Flaw) -> Bool { try optional(key) { _ in true } ?? false }

    /// The first line with this key.
    public subscript(key: String) -> Line? { lines.first { $0.key == key } }

    public func lines(of key: String) -> [Line] { lines.filter { $0.key == key } }

    /// The value that `read` takes from the line, which must exist.
    public func require<Value>(
        _ key: String, _ read: (inout Fields) -> Value?
    ) throws(Flaw) -> Value {
        guard let line = self[key] else { throw Flaw(key, nil) }
        return try line.read(read)
    }

    /// The value that `read` takes from the line; nil if there is none.
    public func optional<Value>(
        _ key: String, _ read: (inout Fields) -> Value?
    ) throws(Flaw) -> Value? {
        guard let line = self[key] else { return nil }
        return try line.read(read)
    }

    /// The values that `read` takes from each line, in order.
    public func all<Value>(
        _ key: String, _ read: (inout Fields) -> Value?
    ) throws(Flaw) -> [Value] {
        var found: [Value] = []
        for line in lines(of: key) { found.append(try line.read(read)) }
        return found
    }

    /// The values of the lines that `read` understands.
    public func understood<Value>(_ key: String, _ read: (inout Fields) -> Value?) -> [Value] {
        lines(of: key).compactMap { try? $0.read(read) }
    }
}

extension Record.Line {
    /// The value that `read` takes from all fields; throws if it finds none, or leaves some.
    fileprivate func read<Value>(_ read: (inout Fields) -> Value?) throws(Record.Flaw) -> Value {
        var rest = Fields(fields)
        guard let value = read(&rest), rest.isAtEnd else {
            throw Record.Flaw(key, fields.joined(separator: " "))
        }
        return value
    }
}

/// Reads the fields of one line from left to right.
public struct Fields {
    public var rest: ArraySlice<String>

    public init(_ fields: [String]) { rest = fields[...] }

    public var isAtEnd: Bool { rest.isEmpty }

    public mutating func text() -> String? { rest.popFirst() }

    public mutating func number<Number: FixedWidthInteger>() -> Number? { text().flatMap { Number($0) } }

    /// A number that counts on from here. None that was counted comes near the maximum, where the next would end the
    /// process.
    mutating func count() -> UInt64? {
        guard let number: UInt64 = number(), number <= .max / 2 else { return nil }
        return number
    }

    public mutating func flag() -> Bool? { text().flatMap(Bool.init(digit:)) }

    /// What `read` makes of a text, which may be empty: then nothing.
    mutating func optional<Value>(_ read: (String) -> Value?) -> Value?? {
        guard let text = text() else { return nil }
        return text.isEmpty ? .some(nil) : read(text).map { .some($0) }
    }

    public mutating func value<Value: RawRepresentable>() -> Value? where Value.RawValue == String {
        text().flatMap(Value.init(rawValue:))
    }

    /// All remaining values, each as `read` parses it.
    public mutating func all<Value>(_ read: (inout Fields) -> Value?) -> [Value]? {
        var found: [Value] = []
        while !isAtEnd {
            guard let value = read(&self) else { return nil }
            found.append(value)
        }
        return found
    }
}

extension Bool {
    init?(digit: String) {
        switch digit {
        case "0": self = false
        case "1": self = true
        default: return nil
        }
    }

    public var digit: String { self ? "1" : "0" }
}

extension ProcessID {
    /// The pid and the start time.
    public var fields: [String] { [String(pid), String(startTime)] }

    public init?(_ fields: inout Fields) {
        guard let pid: Int32 = fields.number(), pid > 0, let start: UInt64 = fields.number() else {
            return nil
        }
        self.init(pid: pid, startTime: start)
    }
}

extension SessionKey {
    var fields: [String] {
        switch self {
        case .login(let id): ["login", id]
        case .user(let uid): ["user", String(uid)]
        }
    }

    init?(_ fields: inout Fields) {
        switch fields.text() {
        case "login":
            guard let id = fields.text() else { return nil }
            self = .login(id)
        case "user":
            guard let uid: UInt32 = fields.number() else { return nil }
            self = .user(uid)
        default: return nil
        }
    }
}

extension Countdown {
    var fields: [String] {
        switch self {
        case .running(let until): ["until", String(until)]
        case .paused(let remaining): ["paused", String(remaining)]
        case .endless: ["endless"]
        }
    }

    init?(_ fields: inout Fields) {
        switch fields.text() {
        case "endless": self = .endless
        case "until":
            guard let until: Microseconds = fields.number() else { return nil }
            self = .running(until: until)
        case "paused":
            guard let remaining: Microseconds = fields.number() else { return nil }
            self = .paused(remaining: remaining)
        default: return nil
        }
    }
}
