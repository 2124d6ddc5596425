import AppStateBus

/// Values of D-Bus with their types, in the form that busctl(1) has: `{"type":"u","data":3}`. A variant inside is such
/// an object again. An entry of a dictionary other than a{sv} is an array of its key and its value.
extension JSON {
    init(typed value: Variant) {
        self = .object([("type", .string(value.signature)), ("data", Self.data(of: value))])
    }

    /// The entries of a{sv}.
    init(typed entries: [String: Variant]) {
        self = .object(entries.sorted { $0.key < $1.key }.map { ($0.key, JSON(typed: $0.value)) })
    }

    private static func data(of value: Variant) -> JSON {
        switch value {
        case .dictionary(let entries): JSON(typed: entries)
        case .array(_, let values), .structure(let values): .array(values.map(data))
        case .entry(let key, let value): .array([data(of: key), data(of: value)])
        case .variant(let value): JSON(typed: value)
        default: JSON(value)
        }
    }

    /// The entries that `init(typed:)` was given; nil: it is something else.
    func typedEntries() -> [String: Variant]? {
        guard case .members(let members) = self else { return nil }
        var entries: [String: Variant] = [:]
        for member in members {
            guard !member.name.utf8.contains(0), let value = member.value.typed() else { return nil }
            entries[member.name] = value
        }
        return entries
    }

    private func typed() -> Variant? {
        guard case .string(let signature)? = self["type"], let data = self["data"] else { return nil }
        var rest = Substring(signature)
        guard let value = data.value(of: &rest), rest.isEmpty else { return nil }
        return value
    }

    /// The value whose type is the first one of the signature, which is consumed.
    private func value(of signature: inout Substring) -> Variant? {
        guard let code = signature.popFirst() else { return nil }
        switch code {
        case "s": return string.map(Variant.string)
        case "o": return string.flatMap { Self.isPath($0) ? .objectPath($0) : nil }
        case "g": return string.flatMap { Self.isSignature($0) ? .signature($0) : nil }
        case "b":
            guard case .bool(let value) = self else { return nil }
            return .bool(value)
        case "y": return integer().map(Variant.byte)
        case "n": return integer().map(Variant.int16)
        case "q": return integer().map(Variant.uint16)
        case "i": return integer().map(Variant.int32)
        case "u": return integer().map(Variant.uint32)
        case "x": return integer().map(Variant.int64)
        case "t": return integer().map(Variant.uint64)
        case "d": return floating.map(Variant.double)
        case "v": return typed().map(Variant.variant)
        case "a": return array(&signature)
        case "(":
            guard case .array(let values) = self, !values.isEmpty else { return nil }
            return Self.members(values, &signature, until: ")").map(Variant.structure)
        case "{":
            guard case .array(let values) = self, values.count == 2,
                let members = Self.members(values, &signature, until: "}")
            else { return nil }
            return .entry(members[0], members[1])
        default: return nil
        }
    }

    private func array(_ signature: inout Substring) -> Variant? {
        guard let element = Self.firstType(of: signature) else { return nil }
        signature = signature.dropFirst(element.count)
        if element == "{sv}" { return typedEntries().map(Variant.dictionary) }
        guard case .array(let values) = self else { return nil }
        func all<Element>(_ read: (JSON) -> Element?) -> [Element]? {
            let found = values.compactMap(read)
            return found.count == values.count ? found : nil
        }
        switch element {
        case "y": return all { $0.integer() }.map(Variant.bytes)
        case "s": return all { $0.string }.map(Variant.strings)
        default:
            let members = all { value -> Variant? in
                var rest = element[...]
                return value.value(of: &rest)
            }
            return members.map { .array(String(element), $0) }
        }
    }

    private static func members(
        _ values: [JSON], _ signature: inout Substring, until end: Character
    ) -> [Variant]? {
        var found: [Variant] = []
        for value in values {
            guard let member = value.value(of: &signature) else { return nil }
            found.append(member)
        }
        return signature.popFirst() == end ? found : nil
    }

    /// The first complete type of a signature; nil: there is none.
    private static func firstType(of signature: Substring) -> Substring? {
        var (depth, count) = (0, 0)
        for code in signature {
            count += 1
            switch code {
            case "(", "{": depth += 1
            case ")", "}": depth -= 1
            case "a": continue
            default: guard "sogbynqiuxtdv".contains(code) else { return nil }
            }
            if depth == 0 { return signature.prefix(count) }
            if depth < 0 { return nil }
        }
        return nil
    }

    private static func isSignature(_ text: String) -> Bool {
        var rest = text[...]
        while !rest.isEmpty {
            guard let first = firstType(of: rest) else { return false }
            rest = rest.dropFirst(first.count)
        }
        return text.utf8.count <= 255
    }

    private static func isPath(_ text: String) -> Bool {
        if text == "/" { return true }
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        return parts.count > 1 && parts[0].isEmpty
            && parts.dropFirst().allSatisfy { part in
                !part.isEmpty
                    && part.utf8.allSatisfy { byte in
                        let letter = byte | 0x20
                        return (0x61...0x7A).contains(letter) || (0x30...0x39).contains(byte) || byte == 0x5F
                    }
            }
    }

    /// A string that D-Bus can carry.
    private var string: String? {
        guard case .string(let text) = self, !text.utf8.contains(0) else { return nil }
        return text
    }

    private func integer<Number: FixedWidthInteger>() -> Number? {
        switch self {
        case .unsigned(let number): Number(exactly: number)
        case .signed(let number): Number(exactly: number)
        default: nil
        }
    }

    /// JSON has no number that is not finite.
    private var floating: Double? {
        switch self {
        case .unsigned(let number): Double(number)
        case .signed(let number): Double(number)
        case .double(let number): number
        case .null: .nan
        default: nil
        }
    }
}
