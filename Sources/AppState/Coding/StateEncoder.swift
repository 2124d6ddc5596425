/// Encodes Codable types as `CodedValue`, without Foundation.
struct StateEncoder: Encoder {
    let codingPath: [any CodingKey]
    let userInfo: [CodingUserInfoKey: Any] = [:]
    private let box: CodedBox

    private init(_ box: CodedBox, _ codingPath: [any CodingKey]) {
        self.box = box
        self.codingPath = codingPath
    }

    /// Encodes a value into bytes.
    static func encode(_ value: some Encodable) throws -> [UInt8] {
        let box = CodedBox()
        try box.encode(value, [])
        return try box.value.encoded
    }

    static func encoder(for box: CodedBox, _ codingPath: [any CodingKey]) -> StateEncoder {
        StateEncoder(box, codingPath)
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        KeyedEncodingContainer(KeyedState<Key>(box.becomeMap(), codingPath))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer { UnkeyedState(box.becomeArray(), codingPath) }

    func singleValueContainer() -> any SingleValueEncodingContainer { SingleState(box, codingPath) }
}

/// A value under construction. Containers refer to it and may fill it in any order.
final class CodedBox {
    private enum Content {
        case value(CodedValue)
        case array([CodedBox])
        /// An array that contains only bytes so far: a box for each would take a hundred times as much memory.
        case bytes([UInt8])
        case map([String: CodedBox])
    }

    private var content = Content.value(.map([:]))
    private let depth: Int

    /// - Parameter depth: how many arrays and maps contain it.
    init(depth: Int = 0) { self.depth = depth }

    /// The value of this box and of all boxes in it.
    ///
    /// - Throws: if it has more levels than can be read again.
    var value: CodedValue {
        get throws {
            try checkDepth(self, [])
            switch content {
            case .value(let value): return value
            case .bytes(let bytes): return .bytes(bytes)
            case .array(let boxes): return .array(try boxes.map { try $0.value })
            case .map(let boxes): return .map(try boxes.mapValues { try $0.value })
            }
        }
    }

    private func checkDepth(_ value: Any, _ codingPath: [any CodingKey]) throws {
        guard depth > CodedValue.greatestDepth else { return }
        throw EncodingError.invalidValue(
            value,
            .init(
                codingPath: codingPath,
                debugDescription: "more than \(CodedValue.greatestDepth) levels of arrays and maps"))
    }

    func set(_ value: CodedValue) { content = .value(value) }

    /// A box that is already a map stays a map: a class and its superclass may share it.
    func becomeMap() -> CodedBox {
        if case .map = content { return self }
        content = .map([:])
        return self
    }

    func becomeArray() -> CodedBox {
        switch content {
        case .array, .bytes: return self
        case .value, .map: content = .array([])
        }
        return self
    }

    /// Adds an element to an array. The array is kept as bytes for as long as it contains nothing else.
    func addByte(_ byte: UInt8) {
        switch content {
        case .array(let boxes) where boxes.isEmpty: content = .bytes([byte])
        case .bytes(var bytes):
            // Without this, each append copies the bytes.
            content = .array([])
            bytes.append(byte)
            content = .bytes(bytes)
        default: addElement().set(byte)
        }
    }

    func addElement() -> CodedBox {
        if case .bytes(let bytes) = content {
            content = .array(
                bytes.map { byte in
                    let box = CodedBox(depth: depth + 1)
                    box.set(byte)
                    return box
                })
        }
        guard case .array(var boxes) = content else { return CodedBox(depth: depth + 1) }
        // Without this, each append copies the array.
        content = .array([])
        let box = CodedBox(depth: depth + 1)
        boxes.append(box)
        content = .array(boxes)
        return box
    }

    var count: Int {
        switch content {
        case .array(let boxes): boxes.count
        case .bytes(let bytes): bytes.count
        case .value, .map: 0
        }
    }

    /// A map or array that is requested twice is the same one.
    func container(_ key: String) -> CodedBox {
        if case .map(let boxes) = content, let box = boxes[key] { return box }
        return entry(key)
    }

    func entry(_ key: String) -> CodedBox {
        guard case .map(var boxes) = content else { return CodedBox(depth: depth + 1) }
        content = .map([:])
        let box = CodedBox(depth: depth + 1)
        boxes[key] = box
        content = .map(boxes)
        return box
    }

    func encode(_ value: some Encodable, _ codingPath: [any CodingKey]) throws {
        // Bytes are encoded as a byte string, not as a number each. Any empty array can be cast, so the type must match
        // exactly.
        if type(of: value) == [UInt8].self, let bytes = value as? [UInt8] {
            set(.bytes(bytes))
        } else {
            // A value that refers to itself must not exhaust the stack.
            try checkDepth(value, codingPath)
            try value.encode(to: StateEncoder.encoder(for: self, codingPath))
        }
    }

    func set(_ number: some BinaryInteger) {
        if let number = UInt64(exactly: number) {
            set(.unsigned(number))
        } else {
            set(.negative(Int64(truncatingIfNeeded: number)))
        }
    }
}

private struct KeyedState<Key: CodingKey>: KeyedEncodingContainerProtocol {
    let codingPath: [any CodingKey]
    private let box: CodedBox

    init(_ box: CodedBox, _ codingPath: [any CodingKey]) {
        self.box = box
        self.codingPath = codingPath
    }

    private func entry(_ key: Key) -> CodedBox { box.entry(key.stringValue) }

    func encodeNil(forKey key: Key) { entry(key).set(.null) }
    func encode(_ value: Bool, forKey key: Key) { entry(key).set(.bool(value)) }
    func encode(_ value: String, forKey key: Key) { entry(key).set(.text(value)) }
    func encode(_ value: Double, forKey key: Key) { entry(key).set(.double(value)) }
    func encode(_ value: Float, forKey key: Key) { entry(key).set(.float(value)) }
    func encode(_ value: Int, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: Int8, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: Int16, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: Int32, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: Int64, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: UInt, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: UInt8, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: UInt16, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: UInt32, forKey key: Key) { entry(key).set(value) }
    func encode(_ value: UInt64, forKey key: Key) { entry(key).set(value) }

    func encode(_ value: some Encodable, forKey key: Key) throws {
        try entry(key).encode(value, codingPath + [key])
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) -> KeyedEncodingContainer<Nested> {
        KeyedEncodingContainer(
            KeyedState<Nested>(box.container(key.stringValue).becomeMap(), codingPath + [key]))
    }

    func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
        UnkeyedState(box.container(key.stringValue).becomeArray(), codingPath + [key])
    }

    func superEncoder() -> any Encoder { StateEncoder.encoder(for: box.entry("super"), codingPath) }

    func superEncoder(forKey key: Key) -> any Encoder {
        StateEncoder.encoder(for: entry(key), codingPath + [key])
    }
}

private struct UnkeyedState: UnkeyedEncodingContainer {
    let codingPath: [any CodingKey]
    private let box: CodedBox

    init(_ box: CodedBox, _ codingPath: [any CodingKey]) {
        self.box = box
        self.codingPath = codingPath
    }

    var count: Int { box.count }

    func encodeNil() { box.addElement().set(.null) }
    func encode(_ value: Bool) { box.addElement().set(.bool(value)) }
    func encode(_ value: String) { box.addElement().set(.text(value)) }
    func encode(_ value: Double) { box.addElement().set(.double(value)) }
    func encode(_ value: Float) { box.addElement().set(.float(value)) }
    func encode(_ value: Int) { box.addElement().set(value) }
    func encode(_ value: Int8) { box.addElement().set(value) }
    func encode(_ value: Int16) { box.addElement().set(value) }
    func encode(_ value: Int32) { box.addElement().set(value) }
    func encode(_ value: Int64) { box.addElement().set(value) }
    func encode(_ value: UInt) { box.addElement().set(value) }
    func encode(_ value: UInt8) { box.addByte(value) }
    func encode(_ value: UInt16) { box.addElement().set(value) }
    func encode(_ value: UInt32) { box.addElement().set(value) }
    func encode(_ value: UInt64) { box.addElement().set(value) }

    func encode(_ value: some Encodable) throws {
        if let byte = value as? UInt8, type(of: value) == UInt8.self { return encode(byte) }
        try box.addElement().encode(value, codingPath)
    }

    func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) -> KeyedEncodingContainer<Nested> {
        KeyedEncodingContainer(KeyedState<Nested>(box.addElement().becomeMap(), codingPath))
    }

    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
        UnkeyedState(box.addElement().becomeArray(), codingPath)
    }

    func superEncoder() -> any Encoder { StateEncoder.encoder(for: box.addElement(), codingPath) }
}

private struct SingleState: SingleValueEncodingContainer {
    let codingPath: [any CodingKey]
    private let box: CodedBox

    init(_ box: CodedBox, _ codingPath: [any CodingKey]) {
        self.box = box
        self.codingPath = codingPath
    }

    func encodeNil() { box.set(.null) }
    func encode(_ value: Bool) { box.set(.bool(value)) }
    func encode(_ value: String) { box.set(.text(value)) }
    func encode(_ value: Double) { box.set(.double(value)) }
    func encode(_ value: Float) { box.set(.float(value)) }
    func encode(_ value: Int) { box.set(value) }
    func encode(_ value: Int8) { box.set(value) }
    func encode(_ value: Int16) { box.set(value) }
    func encode(_ value: Int32) { box.set(value) }
    func encode(_ value: Int64) { box.set(value) }
    func encode(_ value: UInt) { box.set(value) }
    func encode(_ value: UInt8) { box.set(value) }
    func encode(_ value: UInt16) { box.set(value) }
    func encode(_ value: UInt32) { box.set(value) }
    func encode(_ value: UInt64) { box.set(value) }
    func encode(_ value: some Encodable) throws { try box.encode(value, codingPath) }
}
