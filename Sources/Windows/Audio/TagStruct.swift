/// Values of PulseAudio's native protocol, each with a letter before it that gives its type (PulseAudio's
/// src/pulsecore/tagstruct.h). Numbers are in network byte order.
struct TagStruct {
    enum Value: Equatable {
        case number(UInt32)
        /// Nil: none.
        case text(String?)
        case bool(Bool)
        case properties([String: String])
        /// A value that is not of interest, and was skipped.
        case other
    }

    private enum Tag: UInt8 {
        case number = 0x4C  // L
        case byte = 0x42  // B
        case text = 0x74  // t
        case noText = 0x4E  // N
        case bytes = 0x78  // x
        case yes = 0x31  // 1
        case no = 0x30  // 0
        case properties = 0x50  // P
        case sampleSpec = 0x61  // a
        case channelMap = 0x6D  // m
        case volumes = 0x76  // v
        case volume = 0x56  // V
        case duration = 0x55  // U
        case wide = 0x52  // R
        case signedWide = 0x72  // r
        case time = 0x54  // T
    }

    /// The bytes that were appended, or that are left to be read.
    private(set) var bytes: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8> = []) { self.bytes = bytes }

    var isAtEnd: Bool { bytes.isEmpty }

    // MARK: Writing

    mutating func append(_ number: UInt32) {
        bytes.append(Tag.number.rawValue)
        bytes += Self.bigEndian(number)
    }

    mutating func append(bytes data: [UInt8]) {
        bytes.append(Tag.bytes.rawValue)
        bytes += Self.bigEndian(UInt32(data.count))
        bytes += data
    }

    mutating func append(_ properties: [String: String]) {
        bytes.append(Tag.properties.rawValue)
        for (key, value) in properties {
            bytes.append(Tag.text.rawValue)
            bytes += Array(key.utf8) + [0]
            let data = Array(value.utf8) + [0]
            append(UInt32(data.count))
            append(bytes: data)
        }
        bytes.append(Tag.noText.rawValue)
    }

    static func bigEndian(_ number: UInt32) -> [UInt8] {
        [UInt8(number >> 24), UInt8(number >> 16 & 255), UInt8(number >> 8 & 255), UInt8(number & 255)]
    }

    // MARK: Reading

    /// The next value; nil at the end, or if the value is unknown. In that case the rest cannot be read,
    /// either.
    mutating func next() -> Value? {
        guard let tag = bytes.popFirst().flatMap(Tag.init(rawValue:)) else { return nil }
        switch tag {
        case .number: return takeNumber().map(Value.number)
        case .text: return takeText().map(Value.text)
        case .noText: return .text(nil)
        case .yes: return .bool(true)
        case .no: return .bool(false)
        case .properties: return takeProperties().map(Value.properties)
        case .byte: return skip(1)
        case .bytes: return takeNumber().flatMap { skip(Int($0)) }
        // Format and number of channels, one byte each, and the rate.
        case .sampleSpec: return skip(6)
        case .channelMap: return bytes.popFirst().flatMap { skip(Int($0)) }
        case .volumes: return bytes.popFirst().flatMap { skip(4 * Int($0)) }
        case .volume: return skip(4)
        case .duration, .wide, .signedWide, .time: return skip(8)
        }
    }

    mutating func nextNumber() -> UInt32? {
        if case .number(let number)? = next() { number } else { nil }
    }

    private mutating func takeNumber() -> UInt32? {
        guard bytes.count >= 4 else { return nil }
        defer { bytes = bytes.dropFirst(4) }
        return bytes.prefix(4).reduce(0) { $0 << 8 | UInt32($1) }
    }

    private mutating func takeText() -> String? {
        guard let end = bytes.firstIndex(of: 0) else { return nil }
        defer { bytes = bytes[(end + 1)...] }
        return String(decoding: bytes[..<end], as: UTF8.self)
    }

    private mutating func skip(_ count: Int) -> Value? {
        guard bytes.count >= count else { return nil }
        bytes = bytes.dropFirst(count)
        return .other
    }

    /// Keys with values. Each value is a length, and that many bytes with a length of their own. A `noText` ends the
    /// list.
    private mutating func takeProperties() -> [String: String]? {
        var properties: [String: String] = [:]
        // A list in place of a key or of a length is invalid. Lists within lists would exhaust the stack.
        while bytes.first != Tag.properties.rawValue, let key = next() {
            switch key {
            case .text(nil): return properties
            case .text(let key?):
                guard bytes.popFirst() == Tag.number.rawValue, let length = takeNumber(),
                    bytes.popFirst() == Tag.bytes.rawValue, takeNumber() == length,
                    bytes.count >= Int(length)
                else { return nil }
                // A text includes its NUL; other values may be anything.
                let data = bytes.prefix(Int(length))
                properties[key] = String(decoding: data.prefix { $0 != 0 }, as: UTF8.self)
                bytes = bytes.dropFirst(Int(length))
            default: return nil
            }
        }
        return nil
    }
}
