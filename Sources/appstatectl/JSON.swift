import AppStateBus
import Linux

/// A JSON value (RFC 8259). Objects keep the order of their members.
enum JSON {
    case null
    case bool(Bool)
    case unsigned(UInt64)
    case signed(Int64)
    case double(Double)
    case string(String)
    case array([JSON])
    case members([Member])

    struct Member {
        let name: String
        let value: JSON
    }

    static func object(_ members: [(String, JSON)]) -> JSON {
        .members(members.map { Member(name: $0.0, value: $0.1) })
    }

    init(_ variant: Variant) {
        switch variant {
        case .string(let text), .objectPath(let text), .signature(let text): self = .string(text)
        case .bool(let value): self = .bool(value)
        case .byte(let number): self = .unsigned(UInt64(number))
        case .int16(let number): self = .signed(Int64(number))
        case .uint16(let number): self = .unsigned(UInt64(number))
        case .int32(let number): self = .signed(Int64(number))
        case .uint32(let number): self = .unsigned(UInt64(number))
        case .int64(let number): self = .signed(number)
        case .uint64(let number): self = .unsigned(number)
        case .double(let number): self = .double(number)
        case .bytes(let bytes): self = .array(bytes.map { .unsigned(UInt64($0)) })
        case .strings(let texts): self = .array(texts.map { .string($0) })
        case .dictionary(let entries):
            self = .object(entries.sorted { $0.key < $1.key }.map { ($0.key, JSON($0.value)) })
        case .descriptor: self = .null
        case .array(_, let values), .structure(let values): self = .array(values.map { JSON($0) })
        case .entry(let key, let value): self = .array([JSON(key), JSON(value)])
        case .variant(let value): self = JSON(value)
        }
    }

    /// The text for programs.
    var text: String { written(Self.quoted) }

    /// The text for users. It goes into a `Line`, which escapes control characters in its own way.
    var words: String {
        written { text in
            "\""
                + text.split(separator: "\\", omittingEmptySubsequences: false).joined(separator: "\\\\")
                .split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\\\"") + "\""
        }
    }

    private func written(_ quoted: (String) -> String) -> String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .unsigned(let number): String(number)
        case .signed(let number): String(number)
        case .double(let number): number.isFinite ? String(number) : "null"
        case .string(let text): quoted(text)
        case .array(let values): "[" + values.map { $0.written(quoted) }.joined(separator: ",") + "]"
        case .members(let members):
            "{" + members.map { quoted($0.name) + ":" + $0.value.written(quoted) }.joined(separator: ",")
                + "}"
        }
    }

    private static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": quoted += "\\\""
            case "\\": quoted += "\\\\"
            case "\n": quoted += "\\n"
            case "\r": quoted += "\\r"
            case "\t": quoted += "\\t"
            case _ where scalar.value < 0x20:
                let digits = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }
}

extension JSON {
    /// Reads one JSON text.
    init(reading bytes: [UInt8]) throws(JSONReader.Failure) {
        var reader = JSONReader(bytes)
        self = try Self.value(&reader)
        try reader.end()
    }

    private static func value(_ reader: inout JSONReader) throws(JSONReader.Failure) -> JSON {
        switch reader.peek().map({ Character(Unicode.Scalar($0)) }) {
        case "{":
            try reader.beginObject()
            var members: [Member] = []
            while let name = try reader.nextKey() {
                members.append(Member(name: name, value: try value(&reader)))
            }
            return .members(members)
        case "[":
            try reader.beginArray()
            var values: [JSON] = []
            while try reader.nextElement() { values.append(try value(&reader)) }
            return .array(values)
        case "\"": return .string(try reader.string())
        case "t", "f": return .bool(try reader.bool())
        case "n":
            _ = try reader.null()
            return .null
        default:
            let text = try reader.number()
            if let number = UInt64(text) { return .unsigned(number) }
            if let number = Int64(text) { return .signed(number) }
            guard let number = Double(text) else { throw reader.failure("a number") }
            return .double(number)
        }
    }
}
