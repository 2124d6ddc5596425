internal import AppStateBus

/// A value in a dictionary that is sent between applications: launch options, payloads, the info of an activity.
///
/// D-Bus types that are missing here are converted to the nearest kind: an object path to a string, and each
/// integer to a signed or unsigned 64-bit integer.
public enum Value: Hashable, Sendable {
    case string(String)
    case bool(Bool)
    case int(Int64)
    case uint(UInt64)
    case double(Double)
    case bytes([UInt8])
    case strings([String])
    case array([Value])
    case dictionary([String: Value])
}

extension Value {
    /// The text; nil for any other kind.
    public var stringValue: String? {
        guard case .string(let value) = self else { return nil }
        return value
    }

    /// The Boolean value; nil for any other kind.
    public var boolValue: Bool? {
        guard case .bool(let value) = self else { return nil }
        return value
    }

    /// The number, signed or not; nil for any other kind, and if it does not fit.
    public var intValue: Int? {
        switch self {
        case .int(let value): Int(exactly: value)
        case .uint(let value): Int(exactly: value)
        default: nil
        }
    }

    /// The number, signed or not; nil for any other kind, and if it is negative.
    public var uintValue: UInt? {
        switch self {
        case .int(let value): UInt(exactly: value)
        case .uint(let value): UInt(exactly: value)
        default: nil
        }
    }

    /// The number, also if it is an integer; nil for any other kind, and for an integer that a `Double` cannot
    /// represent.
    public var doubleValue: Double? {
        switch self {
        case .double(let value): value
        case .int(let value): Double(exactly: value)
        case .uint(let value): Double(exactly: value)
        default: nil
        }
    }

    /// The bytes; nil for any other kind.
    public var bytesValue: [UInt8]? {
        guard case .bytes(let value) = self else { return nil }
        return value
    }

    /// The list, also if it is one of strings; nil for any other kind.
    public var arrayValue: [Value]? {
        switch self {
        case .array(let values): values
        case .strings(let values): values.map { .string($0) }
        default: nil
        }
    }

    /// The list of strings, or of values that are all strings; nil for any other kind.
    public var stringsValue: [String]? {
        switch self {
        case .strings(let value): return value
        case .array(let values):
            let texts = values.compactMap(\.stringValue)
            return texts.count == values.count ? texts : nil
        default: return nil
        }
    }

    /// The dictionary; nil for any other kind.
    public var dictionaryValue: [String: Value]? {
        guard case .dictionary(let value) = self else { return nil }
        return value
    }
}

extension Value: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(integerLiteral value: Int64) { self = .int(value) }
    public init(floatLiteral value: Double) { self = .double(value) }

    /// A list of strings only is ``strings(_:)``, as other programs expect it; any other list, also an empty one, is
    /// ``array(_:)``.
    public init(arrayLiteral elements: Value...) {
        let list = Value.array(elements)
        if !elements.isEmpty, let texts = list.stringsValue { self = .strings(texts) } else { self = list }
    }

    /// If a key occurs twice, its last value counts.
    public init(dictionaryLiteral elements: (String, Value)...) {
        self = .dictionary(Dictionary(elements) { $1 })
    }
}

// MARK: On the bus

extension Value {
    init(_ variant: Variant) {
        switch variant {
        case .string(let value), .objectPath(let value), .signature(let value): self = .string(value)
        case .bool(let value): self = .bool(value)
        case .byte(let value): self = .uint(UInt64(value))
        case .uint16(let value): self = .uint(UInt64(value))
        case .uint32(let value): self = .uint(UInt64(value))
        case .uint64(let value): self = .uint(value)
        case .int16(let value): self = .int(Int64(value))
        case .int32(let value): self = .int(Int64(value))
        case .int64(let value): self = .int(value)
        case .double(let value): self = .double(value)
        case .bytes(let value): self = .bytes(value)
        case .strings(let value): self = .strings(value)
        case .dictionary(let value): self = .dictionary(value.mapValues(Value.init))
        case .array(_, let values), .structure(let values): self = .array(values.map(Value.init))
        case .entry(let key, let value): self = .array([Value(key), Value(value)])
        case .variant(let value): self = Value(value)
        // A dictionary carries no descriptors.
        case .descriptor: self = .string("")
        }
    }

    var variant: Variant {
        switch self {
        case .string(let value): .string(value)
        case .bool(let value): .bool(value)
        case .int(let value): .int64(value)
        case .uint(let value): .uint64(value)
        case .double(let value): .double(value)
        case .bytes(let value): .bytes(value)
        case .strings(let value): .strings(value)
        case .array(let values): .array("v", values.map { .variant($0.variant) })
        case .dictionary(let value): .dictionary(value.mapValues(\.variant))
        }
    }
}

extension [String: Value] {
    init(_ entries: [(key: String, value: Variant)]) {
        self.init(entries.map { ($0.key, Value($0.value)) }) { $1 }
    }

    /// In a fixed order.
    var entries: [(String, Variant)] { sorted { $0.key < $1.key }.map { ($0.key, $0.value.variant) } }
}
