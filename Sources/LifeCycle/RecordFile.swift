/// How a record is stored in a file, byte by byte. No other stored text has its own grammar.
///
///     record 2 7dcb66b25a2e19dc       the version of all this
///     key field field 03c2…           a line of the record; a blank before each field and before the checksum
///     end 12 a9f1…                    how many lines there are before this one
///
/// A field is its UTF-8 text, with `%` and two hexadecimal digits for characters that would end it: control
/// characters, the blank, `%`. The checksum of a line covers all bytes before the blank in front of it. Each
/// line can therefore be trusted without the others, and the intact part of a damaged file still says which
/// processes to release.
public enum RecordFile {
    public static let version = "2"

    /// The bytes of the file.
    public static func bytes(_ record: Record) -> [UInt8] { bytes([Lines(record.lines)]) }

    /// The bytes of a file of these lines, in this order.
    public static func bytes(_ parts: [Lines]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(parts.reduce(128) { $0 + $1.bytes.count })
        append(Record.Line("record", version), to: &bytes)
        for part in parts { bytes += part.bytes }
        append(Record.Line("end", String(parts.reduce(0) { $0 + $1.count })), to: &bytes)
        return bytes
    }

    /// Lines in the form in which a file stores them. Lines that are many and seldom change need not be encoded again
    /// for each file.
    public struct Lines: Sendable {
        fileprivate let bytes: [UInt8]
        public let count: Int

        public init(_ lines: [Record.Line]) {
            var bytes: [UInt8] = []
            bytes.reserveCapacity(64 * lines.count)
            for line in lines { RecordFile.append(line, to: &bytes) }
            self.bytes = bytes
            count = lines.count
        }
    }

    /// The result of reading a file.
    public struct Reading: Equatable, Sendable {
        /// The lines that are intact.
        public var record: Record
        /// The error in the file as a whole; nil: none.
        public var damage: String?

        public init(_ record: Record, damage: String? = nil) {
            self.record = record
            self.damage = damage
        }
    }

    public static func read(_ bytes: [UInt8]) -> Reading {
        var lines: [Record.Line] = []
        var damage: String?
        var count = 0
        for text in bytes.split(separator: newline, omittingEmptySubsequences: false).dropLast() {
            count += 1
            if let line = line(text) {
                lines.append(line)
            } else {
                damage = damage ?? "line \(count) is damaged"
            }
        }
        // There must be no bytes after the end of the last line.
        if bytes.isEmpty { damage = "it is empty" }
        if let last = bytes.last, last != newline { damage = damage ?? "it ends early" }
        if lines.first?.key == "record" {
            let version = lines.removeFirst().fields.first ?? ""
            if version != Self.version { damage = "its version \(version.prefix(16)) is unknown" }
        } else {
            damage = damage ?? "it does not begin as a record"
        }
        let end = lines.last?.key == "end" ? lines.popLast() : nil
        if end?.fields != [String(lines.count)] { damage = damage ?? "it ends early" }
        return Reading(Record(lines), damage: damage)
    }

    private static let newline = UInt8(ascii: "\n")
    private static let blank = UInt8(ascii: " ")
    private static let percent = UInt8(ascii: "%")
    private static let digits = Array("0123456789abcdef".utf8)

    fileprivate static func append(_ line: Record.Line, to bytes: inout [UInt8]) {
        let start = bytes.count
        bytes += line.key.utf8
        for field in line.fields {
            bytes.append(blank)
            for byte in field.utf8 {
                if byte > blank, byte != percent, byte != 0x7F {
                    bytes.append(byte)
                } else {
                    bytes += [percent, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
                }
            }
        }
        let sum = checksum(bytes[start...])
        bytes.append(blank)
        bytes += sum
        bytes.append(newline)
    }

    private static func line(_ text: ArraySlice<UInt8>) -> Record.Line? {
        guard let last = text.lastIndex(of: blank) else { return nil }
        let body = text[..<last]
        guard text[(last + 1)...].elementsEqual(checksum(body)) else { return nil }
        var words: [String] = []
        for word in body.split(separator: blank, omittingEmptySubsequences: false) {
            guard let field = field(word) else { return nil }
            words.append(field)
        }
        return Record.Line(words[0], Array(words.dropFirst()))
    }

    private static func field(_ word: ArraySlice<UInt8>) -> String? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(word.count)
        var rest = word
        while let byte = rest.popFirst() {
            guard byte == percent else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap({ digits.firstIndex(of: $0) }),
                let low = rest.popFirst().flatMap({ digits.firstIndex(of: $0) })
            else { return nil }
            bytes.append(UInt8(high << 4 | low))
        }
        return String(validating: bytes, as: UTF8.self)
    }

    /// FNV-1a of 64 bits: a change of one byte is always detected, because each step can be undone.
    private static func checksum(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        var sum: UInt64 = 0xcbf2_9ce4_8422_2325
        for byte in bytes { sum = (sum ^ UInt64(byte)) &* 0x100_0000_01b3 }
        return (0..<16).map { digits[Int(truncatingIfNeeded: sum >> (60 - 4 * UInt64($0))) & 15] }
    }
}
