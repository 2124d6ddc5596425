import Glibc

/// Reads numbers and words from text that the kernel prints. Invalid text gives nil, never a trap, because
/// the text of a file may be truncated. Allocates nothing, optimized or not.
struct Bytes {
    private let bytes: UnsafeRawBufferPointer
    private var next = 0

    init(_ bytes: UnsafeRawBufferPointer) {
        self.bytes = bytes
    }

    var isEmpty: Bool { next >= bytes.count }

    private var first: UInt8? { isEmpty ? nil : bytes[next] }

    /// The next byte that is not a blank.
    mutating func byte() -> UInt8? {
        skipBlanks()
        guard let byte = first else { return nil }
        next += 1
        return byte
    }

    mutating func unsigned() -> UInt64? {
        skipBlanks()
        var value: UInt64 = 0
        var digits = 0
        while let digit = first, digit >= 0x30, digit <= 0x39 {
            let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
            let (sum, overflow) = product.addingReportingOverflow(UInt64(digit - 0x30))
            guard !tooLarge, !overflow else { return nil }
            value = sum
            digits += 1
            next += 1
        }
        return digits > 0 ? value : nil
    }

    mutating func unsigned32() -> UInt32? {
        unsigned().flatMap { UInt32(exactly: $0) }
    }

    mutating func signed32() -> Int32? {
        skipBlanks()
        let negative = first == UInt8(ascii: "-")
        if negative { next += 1 }
        guard let value = unsigned().flatMap({ Int64(exactly: $0) }) else { return nil }
        return Int32(exactly: negative ? -value : value)
    }

    /// An address as `/proc/PID/maps` prints it: hexadecimal, without a prefix.
    mutating func hexadecimal() -> UInt? {
        skipBlanks()
        var value: UInt = 0
        var digits = 0
        while let byte = first {
            let digit: UInt8
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = byte - UInt8(ascii: "a") + 10
            default: return digits > 0 ? value : nil
            }
            guard value.leadingZeroBitCount >= 4 else { return nil }
            value = value << 4 | UInt(digit)
            digits += 1
            next += 1
        }
        return digits > 0 ? value : nil
    }

    /// Skips `count` fields between blanks; false if there are fewer.
    mutating func skip(fields count: Int) -> Bool {
        for _ in 0..<count {
            skipBlanks()
            guard !isEmpty else { return false }
            while let byte = first, !Self.isBlank(byte) { next += 1 }
        }
        return true
    }

    /// Skips `prefix`, if the rest begins with it.
    mutating func skip(_ prefix: StaticString) -> Bool {
        let length = prefix.utf8CodeUnitCount
        guard bytes.count - next >= length, let base = bytes.baseAddress else { return false }
        let begins = memcmp(base + next, prefix.utf8Start, length) == 0
        if begins { next += length }
        return begins
    }

    /// The remaining bytes.
    var rest: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: bytes[next...]) }

    /// The remaining text; bytes that are not UTF-8 are replaced.
    var text: String { String(decoding: bytes[next...], as: UTF8.self) }

    /// The remaining text; nil if it is not UTF-8.
    var exactText: String? { String(validating: bytes[next...], as: UTF8.self) }

    mutating func skipBlanks() {
        while let byte = first, Self.isBlank(byte) { next += 1 }
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x09 || byte == 0x0A
    }
}

/// The number that a file or directory has as its name: that of a process, a thread or an open file.
func number(named name: UnsafePointer<CChar>) -> Int32? {
    var value: Int32 = 0
    var next = name
    guard next.pointee != 0 else { return nil }
    while next.pointee != 0 {
        guard next.pointee >= 0x30, next.pointee <= 0x39 else { return nil }
        let (product, tooLarge) = value.multipliedReportingOverflow(by: 10)
        let (sum, overflow) = product.addingReportingOverflow(Int32(next.pointee) - 0x30)
        guard !tooLarge, !overflow else { return nil }
        value = sum
        next += 1
    }
    return value
}

/// Names and paths are bytes to the kernel, not `Character`s. To Swift, a slash followed by a combining
/// accent is one character that is not a slash, and two names that look the same are equal.
extension StringProtocol {
    public func hasBytes(prefix: String) -> Bool { utf8.starts(with: prefix.utf8) }

    func hasBytes(suffix: String) -> Bool { utf8.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) }

    func isSameBytes(as other: some StringProtocol) -> Bool { utf8.elementsEqual(other.utf8) }
}
