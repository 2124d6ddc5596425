import Glibc

/// A value with its D-Bus type, for `v` and `a{sv}`.
public indirect enum Variant: Equatable {
    /// `s`.
    case string(String)
    /// `o`.
    case objectPath(String)
    /// `g`.
    case signature(String)
    /// `b`.
    case bool(Bool)
    /// `y`.
    case byte(UInt8)
    /// `n`.
    case int16(Int16)
    /// `q`.
    case uint16(UInt16)
    /// `i`.
    case int32(Int32)
    /// `u`.
    case uint32(UInt32)
    /// `x`.
    case int64(Int64)
    /// `t`.
    case uint64(UInt64)
    /// `d`.
    case double(Double)
    /// `ay`.
    case bytes([UInt8])
    /// `as`.
    case strings([String])
    /// `a{sv}`. Written in the order of the keys. If two entries have the same key, the last one is read.
    case dictionary([String: Variant])
    /// The place of a descriptor. Descriptors inside a variant are neither taken out nor written.
    case descriptor
    /// Any other array: the signature of an element, then the elements.
    case array(String, [Variant])
    /// `(…)`, with at least one member.
    case structure([Variant])
    /// `{…}`, the element of an array that is a dictionary: key and value.
    case entry(Variant, Variant)
    /// A variant inside a container: `v`.
    case variant(Variant)

    /// The D-Bus signature of the value.
    public var signature: String {
        switch self {
        case .string: "s"
        case .objectPath: "o"
        case .signature: "g"
        case .bool: "b"
        case .byte: "y"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .bytes: "ay"
        case .strings: "as"
        case .dictionary: "a{sv}"
        case .descriptor: "h"
        case .array(let element, _): "a" + element
        case .structure(let members): "(" + members.map(\.signature).joined() + ")"
        case .entry(let key, let value): "{" + key.signature + value.signature + "}"
        case .variant: "v"
        }
    }
}

extension Message {
    /// Appends `v`. Refuses a descriptor inside, and a value that is nested deeper than `Variant.greatestDepth`.
    public borrowing func append(_ value: Variant) throws(BusFailure) {
        guard value.depth <= Variant.greatestDepth else {
            throw BusFailure(
                operation: "append v", subject: "to \(subject)", errno: EMSGSIZE,
                message: "it is nested more than \(Variant.greatestDepth) levels deep")
        }
        try append(unchecked: value)
    }

    private borrowing func append(unchecked value: Variant) throws(BusFailure) {
        try open(.variant, value.signature)
        try append(bare: value)
        try close()
    }

    /// Reads `v`. A descriptor inside is left in the message and reported as `.descriptor`.
    public borrowing func readVariant() throws(BusFailure) -> Variant {
        guard case (type: "v", contents: let signature?)? = try peek() else { throw mismatch("v", 0) }
        guard try enter(.variant, signature) else { throw mismatch("v", 0) }
        let value = try readBare()
        try exit()
        return value
    }

    /// Reads `a{sv}` in the order of the message, including keys that occur twice.
    public borrowing func readDictionary() throws(BusFailure) -> [(key: String, value: Variant)] {
        guard try enter(.array, "{sv}") else { throw mismatch("a{sv}", 0) }
        var entries: [(key: String, value: Variant)] = []
        while try enter(.dictEntry, "sv") {
            entries.append((try readString(), try readVariant()))
            try exit()
        }
        try exit()
        return entries
    }

    private borrowing func append(bare value: Variant) throws(BusFailure) {
        switch value {
        case .string(let value): try append(value)
        case .objectPath(let value): try append(objectPath: value)
        case .signature(let value): try append(signature: value)
        case .bool(let value): try append(value)
        case .byte(let value): try append(value)
        case .int16(let value): try append(value)
        case .uint16(let value): try append(value)
        case .int32(let value): try append(value)
        case .uint32(let value): try append(value)
        case .int64(let value): try append(value)
        case .uint64(let value): try append(value)
        case .double(let value): try append(value)
        case .bytes(let value): try append(bytes: value)
        case .strings(let value): try append(strings: value)
        case .dictionary(let value):
            try open(.array, "{sv}")
            for (key, entry) in value.sorted(by: { $0.key < $1.key }) {
                try open(.dictEntry, "sv")
                try append(key)
                try append(unchecked: entry)
                try close()
            }
            try close()
        case .descriptor:
            throw BusFailure(operation: "append h", subject: "inside a variant", errno: EINVAL)
        case .array(let element, let values): try append(members: values, .array, element)
        case .structure(let values):
            try append(members: values, .struct, values.map(\.signature).joined())
        case .entry(let key, let value):
            try append(members: [key, value], .dictEntry, key.signature + value.signature)
        case .variant(let value): try append(unchecked: value)
        }
    }

    private borrowing func append(
        members: [Variant], _ kind: Container, _ contents: String
    ) throws(BusFailure) {
        try open(kind, contents)
        for member in members {
            try append(bare: member)
        }
        try close()
    }

    private borrowing func readBare() throws(BusFailure) -> Variant {
        guard let (type, contents) = try peek() else { throw mismatch("a value", 0) }
        switch type {
        case "s": return .string(try readString())
        case "o": return .objectPath(try readObjectPath())
        case "g": return .signature(try readSignature())
        case "b": return .bool(try readBool())
        case "y": return .byte(try readUInt8())
        case "n": return .int16(try readInt16())
        case "q": return .uint16(try readUInt16())
        case "i": return .int32(try readInt32())
        case "u": return .uint32(try readUInt32())
        case "x": return .int64(try readInt64())
        case "t": return .uint64(try readUInt64())
        case "d": return .double(try readDouble())
        case "h":
            try skip("h")
            return .descriptor
        case "v": return .variant(try readVariant())
        case "a": return try readArray(contents ?? "")
        case "r": return .structure(try readMembers(.struct, contents ?? ""))
        case "e":
            let members = try readMembers(.dictEntry, contents ?? "")
            guard members.count == 2 else { throw mismatch("key and value", 0) }
            return .entry(members[0], members[1])
        default: throw mismatch("a known type", 0)
        }
    }

    private borrowing func readArray(_ contents: String) throws(BusFailure) -> Variant {
        switch contents {
        case "y": return .bytes(try readBytes())
        case "s": return .strings(try readStrings())
        case "{sv}":
            return .dictionary(Dictionary(try readDictionary().map { ($0.key, $0.value) }) { $1 })
        default: return .array(contents, try readMembers(.array, contents))
        }
    }

    private borrowing func readMembers(_ kind: Container, _ contents: String) throws(BusFailure) -> [Variant]
    {
        guard try enter(kind, contents) else { throw mismatch(kind.signature(of: contents), 0) }
        var members: [Variant] = []
        while !atEnd {
            members.append(try readBare())
        }
        try exit()
        return members
    }
}
