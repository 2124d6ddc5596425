import AppStateBus
import FoundationEssentials

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

extension JSON: Decodable {
    /// Reads one JSON text.
    init(reading bytes: [UInt8]) throws { self = try JSONDecoder().decode(JSON.self, from: Data(bytes)) }

    init(from decoder: any Decoder) throws {
        if let members = try? decoder.container(keyedBy: Name.self) {
            self = .members(
                try members.allKeys.map {
                    Member(name: $0.stringValue, value: try members.decode(JSON.self, forKey: $0))
                })
        } else if var values = try? decoder.unkeyedContainer() {
            var all: [JSON] = []
            while !values.isAtEnd { all.append(try values.decode(JSON.self)) }
            self = .array(all)
        } else {
            let value = try decoder.singleValueContainer()
            if value.decodeNil() {
                self = .null
            } else if let isTrue = try? value.decode(Bool.self) {
                self = .bool(isTrue)
            } else if let number = try? value.decode(UInt64.self) {
                self = .unsigned(number)
            } else if let number = try? value.decode(Int64.self) {
                self = .signed(number)
            } else if let number = try? value.decode(Double.self) {
                self = .double(number)
            } else {
                self = .string(try value.decode(String.self))
            }
        }
    }

    /// The name of a member.
    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }

        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}
