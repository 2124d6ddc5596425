import Glibc

/// The running kernel's description of its own types, in the format BTF (Documentation/bpf/btf.rst).
struct KernelTypes {
    private let bytes: [UInt8]
    private let subject: String

    /// The whole description has 5 to 10 MB.
    private static let longest = 64 << 20

    /// Throws `ENOENT` if the kernel has no description of its types.
    init(path: String = "/sys/kernel/btf/vmlinux") throws(KernelFailure) {
        let file = try Descriptor.open(path)
        bytes = try Files.bytes(in: file, named: path, limit: Self.longest)
        subject = path
    }

    init(_ bytes: [UInt8]) { (self.bytes, subject) = (bytes, "BTF") }

    /// The numbers of typedefs, in the order of `names`. Throws `ENOENT` if the kernel has no such type, and `EBADMSG`
    /// if the description has another format.
    func numbers(ofTypedefs names: [String]) throws(KernelFailure) -> [UInt32] {
        guard let all = bytes.withUnsafeBytes({ Self.typedefs(named: names, in: $0) }) else {
            throw KernelFailure(operation: "parse", subject: subject, errno: EBADMSG)
        }
        var found: [UInt32] = []
        for name in names {
            guard let number = all[name] else {
                throw KernelFailure(operation: "find \(name) in", subject: subject, errno: ENOENT)
            }
            found.append(number)
        }
        return found
    }

    private static let typedef: UInt32 = 8

    /// nil if this is not the format that is known.
    private static func typedefs(
        named names: [String], in bytes: UnsafeRawBufferPointer
    ) -> [String: UInt32]? {
        // struct btf_header: magic, version, flags, its length, then offset and length of types and of strings.
        guard bytes.count >= 24, bytes.loadUnaligned(as: UInt16.self) == 0xeb9f else { return nil }
        func word(_ offset: Int) -> Int { Int(bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)) }
        let header = word(4)
        let (types, strings) = (header + word(8), header + word(16))
        let (typesEnd, stringsEnd) = (types + word(12), strings + word(20))
        guard typesEnd <= bytes.count, stringsEnd <= bytes.count, strings < stringsEnd,
            bytes[stringsEnd - 1] == 0, let base = bytes.baseAddress
        else { return nil }
        var found: [String: UInt32] = [:]
        var number: UInt32 = 0
        var position = types
        while position < typesEnd {
            // struct btf_type: name, kind and number of members, size or type.
            guard typesEnd - position >= 12 else { return nil }
            number += 1
            let info = UInt32(word(position + 4))
            let kind = info >> 24 & 31
            if kind == typedef, word(position) < stringsEnd - strings {
                // The strings end with a NUL.
                let text = (base + strings + word(position)).assumingMemoryBound(to: CChar.self)
                if let name = names.first(where: { strcmp(text, $0) == 0 }) { found[name] = number }
                if found.count == names.count { break }
            }
            guard let more = size(afterKind: kind, members: Int(info & 0xffff)) else { return nil }
            position += 12 + more
        }
        return found
    }

    /// The bytes that follow a type. nil: the kind is not known.
    private static func size(afterKind kind: UInt32, members: Int) -> Int? {
        switch kind {
        // An integer, a variable, a mark of a declaration.
        case 1, 14, 17: 4
        // An array.
        case 3: 12
        // A structure, a union, a section, an enumeration of 64 bits.
        case 4, 5, 15, 19: 12 * members
        // An enumeration, a function's parameters.
        case 6, 13: 8 * members
        // A pointer, modifiers, a function, a floating point number, a mark of a type.
        case 2, 7, 8, 9, 10, 11, 12, 16, 18: 0
        default: nil
        }
    }
}
