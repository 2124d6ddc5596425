/// Reads one JSON text (RFC 8259) from front to back: whoever reads asks for what it wants and skips the rest, so that
/// nothing is made of what nobody wants. Strict, and bounded in depth; how long the text may be, its owner decides.
///
///     try json.beginObject()
///     while let key = try json.nextKey() {
///         switch key {
///         case "id": number = try json.integer()
///         default: try json.skip()
///         }
///     }
struct JSONReader {
    /// The text is not what the reader was told to expect, or no JSON.
    struct Failure: Error, Equatable, CustomStringConvertible {
        /// In bytes from the beginning.
        let offset: Int
        let expected: String

        var description: String { "\(expected) expected at byte \(offset) of the JSON text" }
    }

    /// A tree of windows is as deep as its nested containers, three levels of JSON for each.
    static let mostDepth = 512

    private let bytes: [UInt8]
    private var offset = 0
    private var depth = 0
    /// Whether a value came before, in the object or array that is read.
    private var isFollowing = false

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    // MARK: Structure

    /// Reads `{`.
    mutating func beginObject() throws(Failure) { try begin("{") }

    /// Reads `[`.
    mutating func beginArray() throws(Failure) { try begin("[") }

    /// The key of the object's next member, whose value must be read or skipped then; nil at its end, which is read.
    mutating func nextKey() throws(Failure) -> String? {
        guard try next(before: "}") else { return nil }
        let key = try string()
        try take(":", "a colon")
        return key
    }

    /// Whether the array has another element, which must be read or skipped then; else its end is read.
    mutating func nextElement() throws(Failure) -> Bool { try next(before: "]") }

    /// Makes sure that nothing follows.
    mutating func end() throws(Failure) {
        skipBlanks()
        guard offset == bytes.count else { throw failure("the end") }
    }

    // MARK: Values

    /// The scalar that comes next is `null`, which is read.
    mutating func null() throws(Failure) -> Bool {
        guard peek() == UInt8(ascii: "n") else { return false }
        try word("null")
        return true
    }

    mutating func bool() throws(Failure) -> Bool {
        switch peek() {
        case UInt8(ascii: "t"):
            try word("true")
            return true
        case UInt8(ascii: "f"):
            try word("false")
            return false
        default: throw failure("true or false")
        }
    }

    /// A number without fraction and exponent that fits.
    mutating func integer() throws(Failure) -> Int64 {
        let text = try number()
        guard let text, let value = Int64(text) else { throw failure("an integer of 64 bits") }
        return value
    }

    mutating func string() throws(Failure) -> String {
        String(decoding: try stringBytes(), as: UTF8.self)
    }

    /// The bytes of a string, which need not be UTF-8.
    mutating func stringBytes() throws(Failure) -> [UInt8] {
        try take("\"", "a string")
        var text: [UInt8] = []
        while offset < bytes.count {
            let byte = bytes[offset]
            offset += 1
            switch byte {
            case UInt8(ascii: "\""):
                isFollowing = true
                return text
            case UInt8(ascii: "\\"): try escape(into: &text)
            case 0..<0x20: throw failure("no control character")
            default: text.append(byte)
            }
        }
        throw failure("the end of a string")
    }

    /// Reads a value of whatever kind, and forgets it.
    mutating func skip() throws(Failure) {
        switch peek() {
        case UInt8(ascii: "{"):
            try beginObject()
            while try next(before: "}") {
                try skipString()
                try take(":", "a colon")
                try skip()
            }
        case UInt8(ascii: "["):
            try beginArray()
            while try nextElement() { try skip() }
        case UInt8(ascii: "\""): try skipString()
        case UInt8(ascii: "t"), UInt8(ascii: "f"): _ = try bool()
        case UInt8(ascii: "n"): _ = try null()
        default: _ = try number()
        }
    }

    // MARK: Parts

    private mutating func begin(_ bracket: Unicode.Scalar) throws(Failure) {
        try take(bracket, "\(bracket)")
        depth += 1
        guard depth <= Self.mostDepth else { throw failure("at most \(Self.mostDepth) levels") }
        isFollowing = false
    }

    private mutating func next(before bracket: Unicode.Scalar) throws(Failure) -> Bool {
        if peek() == UInt8(ascii: bracket) {
            offset += 1
            depth -= 1
            isFollowing = true
            return false
        }
        if isFollowing { try take(",", "a comma or \(bracket)") }
        return true
    }

    private mutating func skipString() throws(Failure) {
        try take("\"", "a string")
        while offset < bytes.count {
            let byte = bytes[offset]
            offset += 1
            switch byte {
            case UInt8(ascii: "\""):
                isFollowing = true
                return
            case UInt8(ascii: "\\"):
                var ignored: [UInt8] = []
                try escape(into: &ignored)
            case 0..<0x20: throw failure("no control character")
            default: break
            }
        }
        throw failure("the end of a string")
    }

    private mutating func escape(into text: inout [UInt8]) throws(Failure) {
        guard offset < bytes.count else { throw failure("an escape") }
        let byte = bytes[offset]
        offset += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(byte)
        case UInt8(ascii: "b"): text.append(0x08)
        case UInt8(ascii: "f"): text.append(0x0C)
        case UInt8(ascii: "n"): text.append(0x0A)
        case UInt8(ascii: "r"): text.append(0x0D)
        case UInt8(ascii: "t"): text.append(0x09)
        case UInt8(ascii: "u"): text += Array(String(try escapedScalar()).utf8)
        default: throw failure("an escape")
        }
    }

    /// Four hexadecimal digits, or two such escapes that are one scalar together (RFC 8259, § 7). Half of a pair
    /// becomes U+FFFD.
    private mutating func escapedScalar() throws(Failure) -> Character {
        let first = try fourDigits()
        guard (0xD800..<0xDC00).contains(first), offset + 1 < bytes.count,
            bytes[offset] == UInt8(ascii: "\\"), bytes[offset + 1] == UInt8(ascii: "u")
        else { return Character(Unicode.Scalar(first) ?? "\u{FFFD}") }
        let before = offset
        offset += 2
        let second = try fourDigits()
        guard (0xDC00..<0xE000).contains(second) else {
            offset = before
            return "\u{FFFD}"
        }
        let scalar = Unicode.Scalar(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
        return Character(scalar ?? "\u{FFFD}")
    }

    private mutating func fourDigits() throws(Failure) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            guard offset < bytes.count, let digit = Character(Unicode.Scalar(bytes[offset])).hexDigitValue
            else {
                throw failure("a hexadecimal digit")
            }
            value = value << 4 | UInt32(digit)
            offset += 1
        }
        return value
    }

    /// The digits of an integer; nil for a number with fraction or exponent.
    private mutating func number() throws(Failure) -> String? {
        skipBlanks()
        let begin = offset
        if offset < bytes.count, bytes[offset] == UInt8(ascii: "-") { offset += 1 }
        let first = offset
        try digits()
        if bytes[first] == UInt8(ascii: "0"), offset > first + 1 {
            throw failure("no digit after a leading zero")
        }
        var isInteger = true
        if offset < bytes.count, bytes[offset] == UInt8(ascii: ".") {
            isInteger = false
            offset += 1
            try digits()
        }
        if offset < bytes.count, bytes[offset] | 0x20 == UInt8(ascii: "e") {
            isInteger = false
            offset += 1
            if offset < bytes.count, bytes[offset] == UInt8(ascii: "+") || bytes[offset] == UInt8(ascii: "-")
            {
                offset += 1
            }
            try digits()
        }
        isFollowing = true
        return isInteger ? String(decoding: bytes[begin..<offset], as: UTF8.self) : nil
    }

    private mutating func digits() throws(Failure) {
        let begin = offset
        while offset < bytes.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[offset]) {
            offset += 1
        }
        guard offset > begin else { throw failure("a value") }
    }

    private mutating func word(_ word: StaticString) throws(Failure) {
        skipBlanks()
        let end = offset + word.utf8CodeUnitCount
        guard end <= bytes.count,
            word.withUTF8Buffer({ bytes[offset..<end].elementsEqual($0) })
        else { throw failure("\(word)") }
        offset = end
        isFollowing = true
    }

    private mutating func take(_ sign: Unicode.Scalar, _ expected: String) throws(Failure) {
        guard peek() == UInt8(ascii: sign) else { throw failure(expected) }
        offset += 1
    }

    /// The next byte that is no blank.
    private mutating func peek() -> UInt8? {
        skipBlanks()
        return offset < bytes.count ? bytes[offset] : nil
    }

    private mutating func skipBlanks() {
        while offset < bytes.count, [0x20, 0x0A, 0x0D, 0x09].contains(bytes[offset]) { offset += 1 }
    }

    func failure(_ expected: String) -> Failure { Failure(offset: offset, expected: expected) }
}
