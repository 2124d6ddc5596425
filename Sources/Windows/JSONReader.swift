/// Reads one JSON text (RFC 8259) sequentially: the caller requests the values that it needs and skips the
/// rest, so that no unneeded values are created. The reader is strict, and limits the depth; the caller
/// limits the length of the text.
///
///     try json.beginObject()
///     while let key = try json.nextKey() {
///         switch key {
///         case "id": number = try json.integer()
///         default: try json.skip()
///         }
///     }
struct JSONReader {
    /// The text does not have the expected structure, or is not JSON.
    struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
        /// In bytes from the beginning.
        let offset: Int
        /// What should be there.
        let expected: String

        /// One sentence.
        var description: String { "\(expected) expected at byte \(offset) of the JSON text" }
    }

    /// A tree of windows is as deep as its nested containers, with three levels of JSON for each.
    static let mostDepth = 512

    private let bytes: [UInt8]
    private var offset = 0
    private var depth = 0
    /// Whether the present object or array already had a value.
    private var isFollowing = false

    /// - Parameter bytes: the whole text.
    init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    // MARK: Structure

    /// Reads `{`.
    mutating func beginObject() throws(Failure) { try begin("{") }

    /// Reads `[`.
    mutating func beginArray() throws(Failure) { try begin("[") }

    /// The key of the object's next member, whose value must be read or skipped then; nil at the end, which is
    /// consumed.
    mutating func nextKey() throws(Failure) -> String? {
        guard try next(before: "}") else { return nil }
        let key = try string()
        try take(":", "a colon")
        return key
    }

    /// Whether the array has another element, which must be read or skipped then; if not, the end is consumed.
    mutating func nextElement() throws(Failure) -> Bool { try next(before: "]") }

    /// Reads an object. `member` reads or skips the value of each key.
    mutating func object(
        _ member: (_ key: String, _ json: inout JSONReader) throws(Failure) -> Void
    ) throws(Failure) {
        try beginObject()
        while let key = try nextKey() { try member(key, &self) }
    }

    /// Reads an array. `element` reads or skips each element.
    mutating func array(_ element: (_ json: inout JSONReader) throws(Failure) -> Void) throws(Failure) {
        try beginArray()
        while try nextElement() { try element(&self) }
    }

    /// A string in a form that may be forwarded; empty for `null`.
    mutating func text() throws(Failure) -> String {
        try null() ? "" : ObservedWindow.text(try stringBytes())
    }

    /// Checks that nothing follows.
    mutating func end() throws(Failure) {
        skipBlanks()
        guard offset == bytes.count else { throw failure("the end") }
    }

    // MARK: Values

    /// Whether the next scalar is `null`, which is consumed then.
    mutating func null() throws(Failure) -> Bool {
        guard peek() == UInt8(ascii: "n") else { return false }
        try word("null")
        return true
    }

    /// `true` or `false`.
    mutating func bool() throws(Failure) -> Bool {
        guard let first = peek(), "tf".utf8.contains(first) else { throw failure("true or false") }
        let isTrue = first == UInt8(ascii: "t")
        try word(isTrue ? "true" : "false")
        return isTrue
    }

    /// A number without fraction and exponent that fits.
    mutating func integer() throws(Failure) -> Int64 {
        guard let value = Int64(try number()) else { throw failure("an integer of 64 bits") }
        return value
    }

    /// A string. What is not UTF-8 becomes U+FFFD.
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
            case UInt8(ascii: "\\"): text += try escape()
            case 0..<0x20: throw failure("no control character")
            default: text.append(byte)
            }
        }
        throw failure("the end of a string")
    }

    /// Reads a value of any kind, and forgets it.
    mutating func skip() throws(Failure) {
        switch peek() {
        case UInt8(ascii: "{"):
            try beginObject()
            while try nextKey() != nil { try skip() }
        case UInt8(ascii: "["):
            try beginArray()
            while try nextElement() { try skip() }
        case UInt8(ascii: "\""): _ = try stringBytes()
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

    private mutating func escape() throws(Failure) -> [UInt8] {
        guard offset < bytes.count else { throw failure("an escape") }
        let byte = bytes[offset]
        offset += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [byte]
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"): return Array(String(try escapedScalar()).utf8)
        default: throw failure("an escape")
        }
    }

    /// Four hexadecimal digits, or two such escapes that are one scalar together (RFC 8259, § 7). Half of a pair
    /// becomes U+FFFD.
    private mutating func escapedScalar() throws(Failure) -> Unicode.Scalar {
        let first = try fourDigits()
        let before = offset
        if (0xD800..<0xDC00).contains(first), skips("\\"), skips("u") {
            let second = try fourDigits()
            if (0xDC00..<0xE000).contains(second) {
                return Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00)) ?? "\u{FFFD}"
            }
        }
        offset = before
        return Unicode.Scalar(first) ?? "\u{FFFD}"
    }

    private mutating func fourDigits() throws(Failure) -> UInt32 {
        let digits = String(decoding: bytes[offset...].prefix(4), as: UTF8.self)
        guard digits.utf8.count == 4, digits.allSatisfy(\.isHexDigit), let value = UInt32(digits, radix: 16)
        else { throw failure("four hexadecimal digits") }
        offset += 4
        return value
    }

    /// The text of a number.
    mutating func number() throws(Failure) -> String {
        skipBlanks()
        let begin = offset
        _ = skips("-")
        // Only a fraction or an exponent may follow a leading zero.
        if !skips("0") { try digits() }
        if skips(".") { try digits() }
        if skips("e") || skips("E") {
            if !skips("+") { _ = skips("-") }
            try digits()
        }
        isFollowing = true
        return String(decoding: bytes[begin..<offset], as: UTF8.self)
    }

    private mutating func digits() throws(Failure) {
        let begin = offset
        while offset < bytes.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(bytes[offset]) {
            offset += 1
        }
        guard offset > begin else { throw failure("a value") }
    }

    private mutating func word(_ word: String) throws(Failure) {
        guard bytes[offset...].starts(with: word.utf8) else { throw failure(word) }
        offset += word.utf8.count
        isFollowing = true
    }

    private mutating func take(_ sign: Unicode.Scalar, _ expected: String) throws(Failure) {
        skipBlanks()
        guard skips(sign) else { throw failure(expected) }
    }

    /// Whether the next byte is this one, which is consumed then.
    private mutating func skips(_ sign: Unicode.Scalar) -> Bool {
        guard offset < bytes.count, bytes[offset] == UInt8(ascii: sign) else { return false }
        offset += 1
        return true
    }

    /// The next byte that is not a blank: the first of the next value.
    mutating func peek() -> UInt8? {
        skipBlanks()
        return offset < bytes.count ? bytes[offset] : nil
    }

    private mutating func skipBlanks() {
        while offset < bytes.count, [0x20, 0x0A, 0x0D, 0x09].contains(bytes[offset]) { offset += 1 }
    }

    /// A failure at this place.
    func failure(_ expected: String) -> Failure { Failure(offset: offset, expected: expected) }
}
