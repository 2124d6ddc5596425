extension Variant {
    /// The value as texts that `init(texts:)` can read again: the letter of its type, then its contents, one after the
    /// other. nil for a descriptor, which no text can represent.
    public var texts: [String]? {
        var texts: [String] = []
        return write(to: &texts) ? texts : nil
    }

    /// Reads the output of `texts`, and leaves the texts after it; nil for anything else.
    public init?(texts: inout ArraySlice<String>) {
        guard let value = Self.read(&texts, depth: 0) else { return nil }
        self = value
    }

    private func write(to texts: inout [String]) -> Bool {
        func all(_ members: [Variant]) -> Bool {
            texts.append(String(members.count))
            for member in members where !member.write(to: &texts) { return false }
            return true
        }
        switch self {
        case .string(let value): texts += ["s", value]
        case .objectPath(let value): texts += ["o", value]
        case .signature(let value): texts += ["g", value]
        case .bool(let value): texts += ["b", value ? "1" : "0"]
        case .byte(let value): texts += ["y", String(value)]
        case .int16(let value): texts += ["n", String(value)]
        case .uint16(let value): texts += ["q", String(value)]
        case .int32(let value): texts += ["i", String(value)]
        case .uint32(let value): texts += ["u", String(value)]
        case .int64(let value): texts += ["x", String(value)]
        case .uint64(let value): texts += ["t", String(value)]
        case .double(let value): texts += ["d", String(value.bitPattern)]
        case .bytes(let value): texts += ["ay", Self.hexadecimal(value)]
        case .strings(let value): texts += ["as", String(value.count)] + value
        case .dictionary(let value):
            texts += ["a{sv}", String(value.count)]
            for (key, entry) in value.sorted(by: { $0.key < $1.key }) {
                texts.append(key)
                guard entry.write(to: &texts) else { return false }
            }
        case .descriptor: return false
        case .array(let element, let members):
            texts += ["a", element]
            return all(members)
        case .structure(let members):
            texts.append("(")
            return all(members)
        case .entry(let key, let value):
            texts.append("{")
            return key.write(to: &texts) && value.write(to: &texts)
        case .variant(let value):
            texts.append("v")
            return value.write(to: &texts)
        }
        return true
    }

    private static func read(_ texts: inout ArraySlice<String>, depth: Int) -> Variant? {
        func number<Number: FixedWidthInteger>(_ texts: inout ArraySlice<String>) -> Number? {
            texts.popFirst().flatMap { Number($0) }
        }
        // Each element takes at least one text.
        func list<Element>(
            _ texts: inout ArraySlice<String>, _ read: (inout ArraySlice<String>) -> Element?
        ) -> [Element]? {
            guard let count: Int = number(&texts), count >= 0, count <= texts.count else { return nil }
            var found: [Element] = []
            for _ in 0..<count {
                guard let element = read(&texts) else { return nil }
                found.append(element)
            }
            return found
        }
        func value(_ texts: inout ArraySlice<String>) -> Variant? { read(&texts, depth: depth + 1) }

        // The bus allows 64 levels.
        guard depth <= 64, let kind = texts.popFirst() else { return nil }
        switch kind {
        case "s": return texts.popFirst().map(Variant.string)
        case "o": return texts.popFirst().map(Variant.objectPath)
        case "g": return texts.popFirst().map(Variant.signature)
        case "b": return (number(&texts) as UInt8?).map { .bool($0 == 1) }
        case "y": return number(&texts).map(Variant.byte)
        case "n": return number(&texts).map(Variant.int16)
        case "q": return number(&texts).map(Variant.uint16)
        case "i": return number(&texts).map(Variant.int32)
        case "u": return number(&texts).map(Variant.uint32)
        case "x": return number(&texts).map(Variant.int64)
        case "t": return number(&texts).map(Variant.uint64)
        case "d": return (number(&texts) as UInt64?).map { .double(Double(bitPattern: $0)) }
        case "ay": return texts.popFirst().flatMap(bytes).map(Variant.bytes)
        case "as": return list(&texts) { $0.popFirst() }.map(Variant.strings)
        case "a{sv}":
            let entries = list(&texts) { texts -> (String, Variant)? in
                guard let key = texts.popFirst(), let value = value(&texts) else { return nil }
                return (key, value)
            }
            return entries.map { .dictionary(Dictionary($0) { $1 }) }
        case "a":
            guard let element = texts.popFirst(), let members = list(&texts, value) else { return nil }
            return .array(element, members)
        case "(": return list(&texts, value).map(Variant.structure)
        case "{":
            guard let key = value(&texts), let entry = value(&texts) else { return nil }
            return .entry(key, entry)
        case "v": return value(&texts).map(Variant.variant)
        default: return nil
        }
    }

    private static let digits = Array("0123456789abcdef".utf8)

    // Clients choose how long these are, so nothing is searched or allocated for each byte.

    private static func hexadecimal(_ bytes: [UInt8]) -> String {
        String(unsafeUninitializedCapacity: 2 * bytes.count) { text in
            for (index, byte) in bytes.enumerated() {
                text[2 * index] = digit(byte >> 4)
                text[2 * index + 1] = digit(byte & 15)
            }
            return 2 * bytes.count
        }
    }

    private static func bytes(_ hexadecimal: String) -> [UInt8]? {
        var hexadecimal = hexadecimal
        return hexadecimal.withUTF8 { text -> [UInt8]? in
            guard text.count.isMultiple(of: 2) else { return nil }
            var found: [UInt8] = []
            found.reserveCapacity(text.count / 2)
            for index in stride(from: 0, to: text.count, by: 2) {
                guard let high = value(text[index]), let low = value(text[index + 1]) else { return nil }
                found.append(high << 4 | low)
            }
            return found
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value
    }

    private static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        default: nil
        }
    }
}
