/// A value of saved state: the part of CBOR (RFC 8949) that Swift's Codable needs.
///
/// The format is CBOR because it is self-describing: a newer version of an application finds the keys that it knows,
/// and any CBOR tool can show a person what was saved.
enum CodedValue: Equatable {
    case null
    case bool(Bool)
    case unsigned(UInt64)
    /// Less than zero.
    case negative(Int64)
    case float(Float)
    case double(Double)
    case bytes([UInt8])
    case text(String)
    case array([CodedValue])
    case map([String: CodedValue])
}

/// Why bytes do not form a value.
struct CodedValueFailure: Error, Equatable {
    /// The offset in bytes.
    let offset: Int
    let what: String
}

extension CodedValue {
    /// Values with more levels of arrays and maps than this are refused, because reading must not exhaust the
    /// stack.
    static let greatestDepth = 256

    private enum Major: UInt8 {
        case unsigned = 0
        case negative = 1
        case bytes = 2
        case text = 3
        case array = 4
        case map = 5
        case simple = 7
    }

    // MARK: Writing

    /// The encoded bytes, with maps in the order of their keys.
    var encoded: [UInt8] {
        var bytes: [UInt8] = []
        append(to: &bytes)
        return bytes
    }

    private func append(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes.append(0xf6)
        case .bool(let value): bytes.append(value ? 0xf5 : 0xf4)
        case .unsigned(let value): Self.append(.unsigned, value, to: &bytes)
        // -1 - n, which is the complement of n.
        case .negative(let value): Self.append(.negative, UInt64(bitPattern: ~value), to: &bytes)
        case .float(let value):
            bytes.append(0xfa)
            Self.append(bigEndian: UInt64(value.bitPattern), count: 4, to: &bytes)
        case .double(let value):
            bytes.append(0xfb)
            Self.append(bigEndian: value.bitPattern, count: 8, to: &bytes)
        case .bytes(let value):
            Self.append(.bytes, UInt64(value.count), to: &bytes)
            bytes += value
        case .text(let value): Self.append(text: value, to: &bytes)
        case .array(let values):
            Self.append(.array, UInt64(values.count), to: &bytes)
            for value in values { value.append(to: &bytes) }
        case .map(let values):
            Self.append(.map, UInt64(values.count), to: &bytes)
            for (key, value) in values.sorted(by: { $0.key < $1.key }) {
                Self.append(text: key, to: &bytes)
                value.append(to: &bytes)
            }
        }
    }

    private static func append(text: String, to bytes: inout [UInt8]) {
        append(.text, UInt64(text.utf8.count), to: &bytes)
        bytes += text.utf8
    }

    private static func append(_ major: Major, _ argument: UInt64, to bytes: inout [UInt8]) {
        let head = major.rawValue << 5
        switch argument {
        case ..<24: bytes.append(head | UInt8(argument))
        case ...0xff: append(head | 24, argument, 1, to: &bytes)
        case ...0xffff: append(head | 25, argument, 2, to: &bytes)
        case ...0xffff_ffff: append(head | 26, argument, 4, to: &bytes)
        default: append(head | 27, argument, 8, to: &bytes)
        }
    }

    private static func append(_ head: UInt8, _ value: UInt64, _ count: Int, to bytes: inout [UInt8]) {
        bytes.append(head)
        append(bigEndian: value, count: count, to: &bytes)
    }

    private static func append(bigEndian value: UInt64, count: Int, to bytes: inout [UInt8]) {
        for index in (0..<count).reversed() {
            bytes.append(UInt8(truncatingIfNeeded: value >> UInt64(8 * index)))
        }
    }

    // MARK: Reading

    /// Reads one value, which must use up all the bytes.
    static func decode(_ bytes: [UInt8]) throws(CodedValueFailure) -> CodedValue {
        var reader = Reader(bytes: bytes)
        let value = try reader.value(depth: 0)
        guard reader.offset == bytes.count else { throw reader.failure("extra bytes after the value") }
        return value
    }

    private struct Reader {
        let bytes: [UInt8]
        var offset = 0

        func failure(_ what: String) -> CodedValueFailure { CodedValueFailure(offset: offset, what: what) }

        mutating func value(depth: Int) throws(CodedValueFailure) -> CodedValue {
            guard depth <= CodedValue.greatestDepth else { throw failure("too many levels") }
            let head = try byte()
            guard let major = Major(rawValue: head >> 5) else { throw failure("a tag") }
            if major == .simple { return try simple(head) }
            let argument = try argument(head & 0x1f)
            switch major {
            case .unsigned: return .unsigned(argument)
            case .negative:
                guard argument <= UInt64(Int64.max) else {
                    throw failure("a number that is too small for 64 bits")
                }
                return .negative(~Int64(argument))
            case .bytes: return .bytes(Array(try take(argument)))
            case .text: return .text(try text(argument))
            case .array:
                var values: [CodedValue] = []
                for _ in 0..<(try count(argument, each: 1)) { values.append(try value(depth: depth + 1)) }
                return .array(values)
            case .map: return .map(try map(argument, depth))
            case .simple: throw failure("an unknown kind of value")
            }
        }

        private mutating func map(
            _ argument: UInt64, _ depth: Int
        ) throws(CodedValueFailure) -> [String: CodedValue] {
            var values: [String: CodedValue] = [:]
            for _ in 0..<(try count(argument, each: 2)) {
                guard case .text(let key) = try value(depth: depth + 1) else {
                    throw failure("a key that is not text")
                }
                values[key] = try value(depth: depth + 1)
            }
            return values
        }

        private mutating func simple(_ head: UInt8) throws(CodedValueFailure) -> CodedValue {
            switch head {
            case 0xf4: return .bool(false)
            case 0xf5: return .bool(true)
            case 0xf6: return .null
            case 0xfa: return .float(Float(bitPattern: UInt32(truncatingIfNeeded: try bigEndian(4))))
            case 0xfb: return .double(Double(bitPattern: try bigEndian(8)))
            default: throw failure("an unsupported simple value")
            }
        }

        private mutating func argument(_ short: UInt8) throws(CodedValueFailure) -> UInt64 {
            switch short {
            case ..<24: return UInt64(short)
            case 24: return try bigEndian(1)
            case 25: return try bigEndian(2)
            case 26: return try bigEndian(4)
            case 27: return try bigEndian(8)
            default: throw failure("a length that is not specified")
            }
        }

        /// The number of values that follow. It is at most what the remaining bytes can hold, so a length
        /// alone cannot cause a large allocation.
        private func count(_ argument: UInt64, each size: Int) throws(CodedValueFailure) -> Int {
            guard argument <= UInt64((bytes.count - offset) / size) else {
                throw failure("an unexpected end")
            }
            return Int(argument)
        }

        private mutating func text(_ length: UInt64) throws(CodedValueFailure) -> String {
            guard let text = String(validating: try take(length), as: UTF8.self) else {
                throw failure("text that is not UTF-8")
            }
            return text
        }

        private mutating func take(_ length: UInt64) throws(CodedValueFailure) -> ArraySlice<UInt8> {
            let length = try count(length, each: 1)
            defer { offset += length }
            return bytes[offset..<(offset + length)]
        }

        private mutating func byte() throws(CodedValueFailure) -> UInt8 {
            guard offset < bytes.count else { throw failure("an unexpected end") }
            defer { offset += 1 }
            return bytes[offset]
        }

        private mutating func bigEndian(_ count: Int) throws(CodedValueFailure) -> UInt64 {
            var value: UInt64 = 0
            for _ in 0..<count { value = value << 8 | UInt64(try byte()) }
            return value
        }
    }
}
