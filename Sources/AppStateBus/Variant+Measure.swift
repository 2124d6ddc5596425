extension Variant {
    /// The greatest depth of a value that may be appended to a message. The bus accepts 64 nested containers, counts an
    /// array, its dictionary entry and the variant in it as three, and disconnects a sender that exceeds the limit. The
    /// rest is for what a message wraps around a value: seven in `a{oa{sa{sv}}}`.
    public static let greatestDepth = 16

    /// How deep it is nested: 0 for a plain value. A dictionary, an array, a structure, and a variant directly inside
    /// another one each count as a level.
    public var depth: Int {
        switch self {
        case .string, .objectPath, .signature, .bool, .byte, .int16, .uint16, .int32, .uint32, .int64,
            .uint64, .double, .descriptor:
            0
        case .bytes, .strings: 1
        case .dictionary(let entries): 1 + (entries.values.lazy.map(\.depth).max() ?? 0)
        case .array(let element, let members):
            1 + max(Self.depth(ofSignature: element), members.lazy.map(\.depth).max() ?? 0)
        case .structure(let members): 1 + (members.lazy.map(\.depth).max() ?? 0)
        case .entry(let key, let value): max(key.depth, value.depth)
        case .variant(.variant(let value)): 1 + Variant.variant(value).depth
        case .variant(let value): value.depth
        }
    }

    /// For an empty array, the depth of its elements follows from their type.
    private static func depth(ofSignature signature: String) -> Int {
        var (deepest, level, arrays) = (0, 0, 0)
        var enclosing: [Int] = []
        for byte in signature.utf8 {
            switch byte {
            case UInt8(ascii: "a"):
                arrays += 1
                continue
            case UInt8(ascii: "("), UInt8(ascii: "{"):
                // A dictionary's entry is not a level of its own.
                enclosing.append(arrays + (byte == UInt8(ascii: "(") ? 1 : 0))
                level += enclosing.last ?? 0
                deepest = max(deepest, level)
            case UInt8(ascii: ")"), UInt8(ascii: "}"):
                level -= enclosing.popLast() ?? 0
            default:
                deepest = max(deepest, level + arrays)
            }
            arrays = 0
        }
        return deepest
    }
}
