/// How a record is stored in a file.
///
///     key=field field     a line of the record, with a blank between two fields
///     key                 one without fields
///     end                 the last line: the file is whole
///
/// A field is its UTF-8 text, with `%` and two hexadecimal digits for each byte that would end a field or a line: control
/// characters, the blank, `%`.
public enum RecordFile {
    public static func bytes(_ record: Record) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(64 * (record.lines.count + 1))
        for line in record.lines {
            bytes += line.key.utf8
            for (index, field) in line.fields.enumerated() {
                bytes.append(index == 0 ? equals : blank)
                append(field, to: &bytes)
            }
            bytes.append(newline)
        }
        return bytes + end + [newline]
    }

    /// The lines that can be read, and whether these are all that was written.
    public static func read(_ bytes: [UInt8]) -> (record: Record, isWhole: Bool) {
        var lines = bytes.split(separator: newline, omittingEmptySubsequences: false)
        // After the last newline comes nothing, or a line that was cut.
        let isComplete = lines.popLast()?.isEmpty == true && lines.last?.elementsEqual(end) == true
        if isComplete { lines.removeLast() }
        let understood = lines.compactMap(line)
        return (Record(understood), isComplete && understood.count == lines.count)
    }

    private static let newline = UInt8(ascii: "\n")
    private static let blank = UInt8(ascii: " ")
    private static let equals = UInt8(ascii: "=")
    private static let percent = UInt8(ascii: "%")
    private static let end = Array("end".utf8)
    private static let digits = Array("0123456789abcdef".utf8)

    private static func append(_ field: String, to bytes: inout [UInt8]) {
        for byte in field.utf8 {
            if byte > blank, byte != percent, byte != 0x7F {
                bytes.append(byte)
            } else {
                bytes += [percent, digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }

    private static func line(_ text: ArraySlice<UInt8>) -> Record.Line? {
        let parts = text.split(separator: equals, maxSplits: 1, omittingEmptySubsequences: false)
        let words = parts.dropFirst().first?.split(separator: blank, omittingEmptySubsequences: false) ?? []
        let fields = words.compactMap(field)
        guard fields.count == words.count, let key = field(parts[0]) else { return nil }
        return Record.Line(key, fields)
    }

    private static func field(_ word: ArraySlice<UInt8>) -> String? {
        var bytes: [UInt8] = []
        var rest = word
        while let byte = rest.popFirst() {
            guard byte == percent else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(digits.firstIndex(of:)),
                let low = rest.popFirst().flatMap(digits.firstIndex(of:))
            else { return nil }
            bytes.append(UInt8(high << 4 | low))
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
