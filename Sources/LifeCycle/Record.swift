/// What the machine knows of one application, as text: written down when it changes, so that the next daemon
/// goes on where a killed one ended (§ 5).
///
/// Lines of a key and a value in a fixed order; a key may come more than once. Values are one line each.
public struct Record: Equatable, Sendable {
    public struct Line: Equatable, Sendable {
        public let key: String
        public let value: String

        public init(_ key: String, _ value: String) {
            self.key = key
            self.value = value
        }
    }

    public var lines: [Line]

    public init(_ lines: [Line] = []) { self.lines = lines }

    /// What is wrong with a record: which key, and its value.
    public struct Flaw: Error, Equatable, Sendable, CustomStringConvertible {
        public let key: String
        public let value: String?

        public init(_ key: String, _ value: String?) {
            self.key = key
            self.value = value
        }

        public var description: String {
            value.map { "\(key)=\($0.prefix(80)) is not understood" } ?? "\(key)= is missing"
        }
    }

    public mutating func add(_ key: String, _ value: String) { lines.append(Line(key, value)) }

    mutating func add(_ key: String, ifPresent value: String?) {
        if let value { add(key, value) }
    }

    public subscript(key: String) -> String? { lines.first { $0.key == key }?.value }

    public func values(of key: String) -> [String] { lines.filter { $0.key == key }.map(\.value) }

    /// What `parse` makes of the value, which must be there.
    public func require<Value>(
        _ key: String, _ parse: (String) -> Value?
    ) throws(Flaw) -> Value {
        guard let text = self[key] else { throw Flaw(key, nil) }
        guard let value = parse(text) else { throw Flaw(key, text) }
        return value
    }

    /// What `parse` makes of the value; nil where there is none.
    public func optional<Value>(
        _ key: String, _ parse: (String) -> Value?
    ) throws(Flaw) -> Value? {
        guard let text = self[key] else { return nil }
        guard let value = parse(text) else { throw Flaw(key, text) }
        return value
    }

    /// What `parse` makes of each value, in order.
    public func all<Value>(
        _ key: String, _ parse: (String) -> Value?
    ) throws(Flaw) -> [Value] {
        var found: [Value] = []
        for text in values(of: key) {
            guard let value = parse(text) else { throw Flaw(key, text) }
            found.append(value)
        }
        return found
    }
}

// MARK: Words

/// Reads the words of one value from left to right.
struct Words {
    private var rest: Substring

    init(_ text: String) { rest = text[...] }

    mutating func next() -> String? {
        guard !rest.isEmpty else { return nil }
        let word = rest.prefix { $0 != " " }
        rest = rest.dropFirst(word.count).dropFirst()
        return String(word)
    }

    mutating func number<Number: FixedWidthInteger>() -> Number? { next().flatMap { Number($0) } }

    mutating func flag() -> Bool? { next().flatMap(Bool.init(digit:)) }

    /// Everything that is left, spaces too.
    mutating func remainder() -> String {
        defer { rest = "" }
        return String(rest)
    }

    var isAtEnd: Bool { rest.isEmpty }
}

extension Bool {
    init?(digit: String) {
        switch digit {
        case "0": self = false
        case "1": self = true
        default: return nil
        }
    }

    var digit: String { self ? "1" : "0" }
}

extension ProcessID {
    /// `1234:567890`: number and start time.
    public var recorded: String { "\(pid):\(startTime)" }

    public init?(recorded text: String) {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, let pid = Int32(parts[0]), pid > 0, let start = UInt64(parts[1]) else {
            return nil
        }
        self.init(pid: pid, startTime: start)
    }
}

extension SessionKey {
    var recorded: String {
        switch self {
        case .login(let id): "login:\(id)"
        case .user(let uid): "user:\(uid)"
        }
    }

    init?(recorded text: String) {
        let parts = text.split(separator: ":", maxSplits: 1).map(String.init)
        guard parts.count == 2 else { return nil }
        switch parts[0] {
        case "login": self = .login(parts[1])
        case "user":
            guard let uid = UInt32(parts[1]) else { return nil }
            self = .user(uid)
        default: return nil
        }
    }
}

extension Countdown {
    var recorded: String {
        switch self {
        case .running(let until): "until:\(until)"
        case .paused(let remaining): "paused:\(remaining)"
        case .endless: "endless"
        }
    }

    init?(recorded text: String) {
        let parts = text.split(separator: ":")
        switch (parts.first, parts.count) {
        case ("endless", 1): self = .endless
        case ("until", 2):
            guard let until = Microseconds(parts[1]) else { return nil }
            self = .running(until: until)
        case ("paused", 2):
            guard let remaining = Microseconds(parts[1]) else { return nil }
            self = .paused(remaining: remaining)
        default: return nil
        }
    }
}
