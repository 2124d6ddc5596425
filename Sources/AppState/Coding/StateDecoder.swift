/// Decodes Codable types from `CodedValue`.
struct StateDecoder: Decoder {
    let codingPath: [any CodingKey]
    let userInfo: [CodingUserInfoKey: Any] = [:]
    fileprivate let value: CodedValue

    fileprivate init(_ value: CodedValue, _ codingPath: [any CodingKey]) {
        self.value = value
        self.codingPath = codingPath
    }

    /// Reads a value that `StateEncoder` wrote.
    static func decode<Value: Decodable>(_ type: Value.Type, from bytes: [UInt8]) throws -> Value {
        try StateDecoder(CodedValue.decode(bytes), []).decode(type)
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .map(let entries) = value else { throw mismatch([String: Any].self) }
        return KeyedDecodingContainer(KeyedContent<Key>(entries, codingPath))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        switch value {
        case .array(let elements): return UnkeyedContent(.values(elements), codingPath)
        case .bytes(let bytes): return UnkeyedContent(.bytes(bytes), codingPath)
        default: throw mismatch([Any].self)
        }
    }

    func singleValueContainer() -> any SingleValueDecodingContainer { SingleContent(self) }

    fileprivate func mismatch(_ type: Any.Type) -> DecodingError {
        DecodingError.typeMismatch(
            type, .init(codingPath: codingPath, debugDescription: "a value of another type is there"))
    }

    fileprivate func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        if type == [UInt8].self, case .bytes(let bytes) = value, let bytes = bytes as? Value { return bytes }
        return try Value(from: self)
    }

    fileprivate var isNull: Bool { value == .null }

    fileprivate func bool() throws -> Bool {
        guard case .bool(let value) = value else { throw mismatch(Bool.self) }
        return value
    }

    fileprivate func text() throws -> String {
        guard case .text(let value) = value else { throw mismatch(String.self) }
        return value
    }

    fileprivate func number<Number: FixedWidthInteger>(_ type: Number.Type) throws -> Number {
        let number: Number? =
            switch value {
            case .unsigned(let value): Number(exactly: value)
            case .negative(let value): Number(exactly: value)
            default: nil
            }
        guard let number else { throw mismatch(type) }
        return number
    }

    fileprivate func float() throws -> Float {
        if case .float(let value) = value { return value }
        return Float(try double())
    }

    fileprivate func double() throws -> Double {
        switch value {
        case .double(let value): return value
        case .float(let value): return Double(value)
        case .unsigned(let value): return Double(value)
        case .negative(let value): return Double(value)
        default: throw mismatch(Double.self)
        }
    }
}

private struct KeyedContent<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let codingPath: [any CodingKey]
    private let entries: [String: CodedValue]

    init(_ entries: [String: CodedValue], _ codingPath: [any CodingKey]) {
        self.entries = entries
        self.codingPath = codingPath
    }

    var allKeys: [Key] { entries.keys.compactMap { Key(stringValue: $0) } }

    func contains(_ key: Key) -> Bool { entries[key.stringValue] != nil }

    private func at(_ key: Key) throws -> StateDecoder {
        guard let value = entries[key.stringValue] else {
            throw DecodingError.keyNotFound(
                key, .init(codingPath: codingPath, debugDescription: "there is no \(key.stringValue)"))
        }
        return StateDecoder(value, codingPath + [key])
    }

    func decodeNil(forKey key: Key) throws -> Bool { try at(key).isNull }
    func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool { try at(key).bool() }
    func decode(_ type: String.Type, forKey key: Key) throws -> String { try at(key).text() }
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try at(key).double() }
    func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try at(key).float() }
    func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try at(key).number(type) }
    func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try at(key).number(type) }
    func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try at(key).number(type) }
    func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try at(key).number(type) }
    func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try at(key).number(type) }
    func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try at(key).number(type) }
    func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try at(key).number(type) }
    func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try at(key).number(type) }
    func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try at(key).number(type) }
    func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try at(key).number(type) }

    func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
        try at(key).decode(type)
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> {
        try at(key).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try at(key).unkeyedContainer()
    }

    func superDecoder() -> any Decoder { StateDecoder(entries["super"] ?? .null, codingPath) }

    func superDecoder(forKey key: Key) throws -> any Decoder { try at(key) }
}

private struct UnkeyedContent: UnkeyedDecodingContainer {
    let codingPath: [any CodingKey]
    private let elements: Elements
    private(set) var currentIndex = 0

    /// Bytes stay bytes: a value for each would take twenty times as much memory.
    enum Elements {
        case values([CodedValue])
        case bytes([UInt8])

        var count: Int {
            switch self {
            case .values(let values): values.count
            case .bytes(let bytes): bytes.count
            }
        }

        subscript(index: Int) -> CodedValue {
            switch self {
            case .values(let values): values[index]
            case .bytes(let bytes): .unsigned(UInt64(bytes[index]))
            }
        }
    }

    init(_ elements: Elements, _ codingPath: [any CodingKey]) {
        self.elements = elements
        self.codingPath = codingPath
    }

    var count: Int? { elements.count }
    var isAtEnd: Bool { currentIndex == elements.count }

    /// Consumes the next element only if it can be read.
    private mutating func next<Value>(_ read: (StateDecoder) throws -> Value) throws -> Value {
        guard !isAtEnd else {
            throw DecodingError.valueNotFound(
                Value.self, .init(codingPath: codingPath, debugDescription: "there are no more elements"))
        }
        let value = try read(StateDecoder(elements[currentIndex], codingPath))
        currentIndex += 1
        return value
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd, elements[currentIndex] == .null else { return false }
        currentIndex += 1
        return true
    }

    mutating func decode(_ type: Bool.Type) throws -> Bool { try next { try $0.bool() } }
    mutating func decode(_ type: String.Type) throws -> String { try next { try $0.text() } }
    mutating func decode(_ type: Double.Type) throws -> Double { try next { try $0.double() } }
    mutating func decode(_ type: Float.Type) throws -> Float { try next { try $0.float() } }
    mutating func decode(_ type: Int.Type) throws -> Int { try next { try $0.number(type) } }
    mutating func decode(_ type: Int8.Type) throws -> Int8 { try next { try $0.number(type) } }
    mutating func decode(_ type: Int16.Type) throws -> Int16 { try next { try $0.number(type) } }
    mutating func decode(_ type: Int32.Type) throws -> Int32 { try next { try $0.number(type) } }
    mutating func decode(_ type: Int64.Type) throws -> Int64 { try next { try $0.number(type) } }
    mutating func decode(_ type: UInt.Type) throws -> UInt { try next { try $0.number(type) } }
    mutating func decode(_ type: UInt8.Type) throws -> UInt8 { try next { try $0.number(type) } }
    mutating func decode(_ type: UInt16.Type) throws -> UInt16 { try next { try $0.number(type) } }
    mutating func decode(_ type: UInt32.Type) throws -> UInt32 { try next { try $0.number(type) } }
    mutating func decode(_ type: UInt64.Type) throws -> UInt64 { try next { try $0.number(type) } }

    mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        try next { try $0.decode(type) }
    }

    mutating func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type
    ) throws -> KeyedDecodingContainer<Nested> {
        try next { try $0.container(keyedBy: type) }
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
        try next { try $0.unkeyedContainer() }
    }

    mutating func superDecoder() throws -> any Decoder { try next { $0 } }
}

private struct SingleContent: SingleValueDecodingContainer {
    private let decoder: StateDecoder

    init(_ decoder: StateDecoder) { self.decoder = decoder }

    var codingPath: [any CodingKey] { decoder.codingPath }

    func decodeNil() -> Bool { decoder.isNull }
    func decode(_ type: Bool.Type) throws -> Bool { try decoder.bool() }
    func decode(_ type: String.Type) throws -> String { try decoder.text() }
    func decode(_ type: Double.Type) throws -> Double { try decoder.double() }
    func decode(_ type: Float.Type) throws -> Float { try decoder.float() }
    func decode(_ type: Int.Type) throws -> Int { try decoder.number(type) }
    func decode(_ type: Int8.Type) throws -> Int8 { try decoder.number(type) }
    func decode(_ type: Int16.Type) throws -> Int16 { try decoder.number(type) }
    func decode(_ type: Int32.Type) throws -> Int32 { try decoder.number(type) }
    func decode(_ type: Int64.Type) throws -> Int64 { try decoder.number(type) }
    func decode(_ type: UInt.Type) throws -> UInt { try decoder.number(type) }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try decoder.number(type) }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try decoder.number(type) }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try decoder.number(type) }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try decoder.number(type) }
    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try decoder.decode(type) }
}
