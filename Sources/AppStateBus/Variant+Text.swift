extension Variant {
    /// The value as text that `init(text:)` reads again, whatever its strings hold: each string is written
    /// with its length before it. nil for a descriptor, which no text can keep.
    public var text: String? {
        var text = ""
        return write(to: &text) ? text : nil
    }

    /// Reads what `text` gave; nil for anything else.
    public init?(text: String) {
        var reader = Reader(rest: text.utf8[...])
        guard let value = reader.value(depth: 0), reader.rest.isEmpty else { return nil }
        self = value
    }

    private static func counted(_ string: String) -> String { "\(string.utf8.count):\(string)" }

    private func write(to text: inout String) -> Bool {
        func all(_ members: [Variant]) -> Bool {
            text += "\(members.count):"
            for member in members where !member.write(to: &text) { return false }
            return true
        }
        switch self {
        case .string(let value): text += "s" + Self.counted(value)
        case .objectPath(let value): text += "o" + Self.counted(value)
        case .signature(let value): text += "g" + Self.counted(value)
        case .bool(let value): text += value ? "b1:" : "b0:"
        case .byte(let value): text += "y\(value):"
        case .int16(let value): text += "n\(value):"
        case .uint16(let value): text += "q\(value):"
        case .int32(let value): text += "i\(value):"
        case .uint32(let value): text += "u\(value):"
        case .int64(let value): text += "x\(value):"
        case .uint64(let value): text += "t\(value):"
        case .double(let value): text += "d\(value.bitPattern):"
        case .bytes(let value): text += "Y\(value.count):" + value.map { "\($0)," }.joined()
        case .strings(let value): text += "S\(value.count):" + value.map(Self.counted).joined()
        case .dictionary(let value):
            text += "D\(value.count):"
            for (key, entry) in value.sorted(by: { $0.key < $1.key }) {
                text += Self.counted(key)
                guard entry.write(to: &text) else { return false }
            }
        case .descriptor: return false
        case .array(let element, let members):
            text += "a" + Self.counted(element)
            return all(members)
        case .structure(let members):
            text += "("
            return all(members)
        case .entry(let key, let value):
            text += "{"
            return key.write(to: &text) && value.write(to: &text)
        case .variant(let value):
            text += "v"
            return value.write(to: &text)
        }
        return true
    }

    private struct Reader {
        var rest: Substring.UTF8View

        mutating func number<Number: FixedWidthInteger>() -> Number? {
            let digits = rest.prefix { $0 != UInt8(ascii: ":") }
            guard digits.count < rest.count, let number = Number(Substring(digits)) else { return nil }
            rest = rest.dropFirst(digits.count + 1)
            return number
        }

        mutating func string() -> String? {
            guard let count: Int = number(), count >= 0, count <= rest.count else { return nil }
            defer { rest = rest.dropFirst(count) }
            return String(Substring(rest.prefix(count)))
        }

        mutating func list<Element>(_ read: (inout Reader) -> Element?) -> [Element]? {
            guard let count: Int = number(), count >= 0, count <= rest.count else { return nil }
            var found: [Element] = []
            for _ in 0..<count {
                guard let element = read(&self) else { return nil }
                found.append(element)
            }
            return found
        }

        mutating func value(depth: Int) -> Variant? {
            // The bus allows 64 levels.
            guard depth <= 64, let kind = rest.popFirst() else { return nil }
            switch Character(UnicodeScalar(kind)) {
            case "s": return string().map(Variant.string)
            case "o": return string().map(Variant.objectPath)
            case "g": return string().map(Variant.signature)
            case "b": return (number() as UInt8?).map { .bool($0 == 1) }
            case "y": return number().map(Variant.byte)
            case "n": return number().map(Variant.int16)
            case "q": return number().map(Variant.uint16)
            case "i": return number().map(Variant.int32)
            case "u": return number().map(Variant.uint32)
            case "x": return number().map(Variant.int64)
            case "t": return number().map(Variant.uint64)
            case "d": return (number() as UInt64?).map { .double(Double(bitPattern: $0)) }
            case "Y": return list { $0.listedByte() }.map(Variant.bytes)
            case "S": return list { $0.string() }.map(Variant.strings)
            case "D":
                let entries = list { reader -> (String, Variant)? in
                    guard let key = reader.string(), let value = reader.value(depth: depth + 1) else {
                        return nil
                    }
                    return (key, value)
                }
                return entries.map { .dictionary(Dictionary($0) { $1 }) }
            case "a":
                guard let element = string(), let members = list({ $0.value(depth: depth + 1) }) else {
                    return nil
                }
                return .array(element, members)
            case "(": return list { $0.value(depth: depth + 1) }.map(Variant.structure)
            case "{":
                guard let key = value(depth: depth + 1), let entry = value(depth: depth + 1) else {
                    return nil
                }
                return .entry(key, entry)
            case "v": return value(depth: depth + 1).map(Variant.variant)
            default: return nil
            }
        }

        private mutating func listedByte() -> UInt8? {
            let digits = rest.prefix { $0 != UInt8(ascii: ",") }
            guard digits.count < rest.count, let byte = UInt8(Substring(digits)) else { return nil }
            rest = rest.dropFirst(digits.count + 1)
            return byte
        }
    }
}
