import Glibc
public import Linux

/// A file of groups with keys and values, as the Desktop Entry Specification 1.5 describes it ("Basic format of the
/// file").
///
/// It is read byte by byte: bytes that are not UTF-8 are replaced in the value that contains them, and do not
/// affect other values. A line that does not follow the format is skipped. As in GLib, two groups with the
/// same name, which no program should write, are merged, and of two keys with the same name the last counts.
public struct KeyFile: Sendable {
    /// The most bytes that are read of one file.
    public static let limit = 1 << 22

    private var groups: [String: [String: String]] = [:]
    private var order: [String: [String]] = [:]

    /// - Parameters:
    ///   - bytes: the text of the file.
    ///   - wanted: the only group that is kept; nil: all are.
    public init(_ bytes: [UInt8], only wanted: String? = nil) {
        var group: String?
        for var line in bytes.split(separator: UInt8(ascii: "\n")) {
            // A file that was written on another system may have both.
            if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
            line = Self.trimmed(line)
            guard let first = line.first, first != UInt8(ascii: "#") else { continue }
            if first == UInt8(ascii: "[") {
                group = Self.group(line)
                if let wanted, group != wanted { group = nil }
                if let group, groups[group] == nil { groups[group] = [:] }
            } else if let group, let equals = line.firstIndex(of: UInt8(ascii: "=")) {
                let key = String(decoding: Self.trimmed(line[..<equals]), as: UTF8.self)
                guard !key.isEmpty else { continue }
                let value = String(decoding: Self.trimmed(line[(equals + 1)...]), as: UTF8.self)
                if groups[group]?.updateValue(value, forKey: key) == nil {
                    order[group, default: []].append(key)
                }
            }
        }
    }

    /// Reads a regular file. A file that is longer than `limit` is refused, because half of it could have a
    /// different meaning.
    ///
    /// - Parameters:
    ///   - path: the file.
    ///   - wanted: the only group that is kept; nil: all are.
    public init(path: String, only wanted: String? = nil) throws(KernelFailure) {
        let bytes = try WholeFile.read(path)
        guard bytes.count <= Self.limit else {
            throw KernelFailure(operation: "read", subject: path, errno: EFBIG)
        }
        self.init(bytes, only: wanted)
    }

    /// Whether it has the group.
    public func has(group: String) -> Bool { groups[group] != nil }

    /// The keys of a group, including localized ones (`Name[de]`), as they are in the file.
    public func keys(of group: String) -> [String] { order[group] ?? [] }

    /// A value as it is in the file; nil: the key is not there.
    public func raw(_ key: String, in group: String) -> String? { groups[group]?[key] }

    /// A value of type string; nil: the key is not there.
    public func string(_ key: String, in group: String) -> String? {
        raw(key, in: group).map(Self.unescaped)
    }

    /// A value of type boolean: `true`, or `1` of older files. Nil: the key is not there, or has another value.
    public func bool(_ key: String, in group: String) -> Bool? {
        switch raw(key, in: group) {
        case "true", "1": true
        case "false", "0": false
        default: nil
        }
    }

    /// A value of type list: its elements without the empty ones. None if the key is not there.
    public func list(_ key: String, in group: String) -> [String] {
        raw(key, in: group).map(Self.elements) ?? []
    }

    /// Reads `\s`, `\n`, `\t`, `\r` and `\\`. Any other backslash is left as it is.
    public static func unescaped(_ value: String) -> String {
        var bytes: [UInt8] = []
        var rest = Array(value.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == backslash, let next = rest.first, let meant = escapes[next] {
                bytes.append(meant)
                rest.removeFirst()
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The elements between semicolons; `\;` is a semicolon within an element.
    public static func elements(_ value: String) -> [String] {
        var elements: [[UInt8]] = [[]]
        var rest = Array(value.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: ";") {
                elements.append([])
            } else if byte == backslash, let next = rest.popFirst() {
                // The other escapes are resolved below.
                elements[elements.count - 1] += next == UInt8(ascii: ";") ? [next] : [byte, next]
            } else {
                elements[elements.count - 1].append(byte)
            }
        }
        return elements.filter { !$0.isEmpty }.map { unescaped(String(decoding: $0, as: UTF8.self)) }
    }

    private static let backslash = UInt8(ascii: "\\")
    private static let escapes: [UInt8: UInt8] = [
        UInt8(ascii: "s"): UInt8(ascii: " "), UInt8(ascii: "n"): UInt8(ascii: "\n"),
        UInt8(ascii: "t"): UInt8(ascii: "\t"), UInt8(ascii: "r"): UInt8(ascii: "\r"), backslash: backslash,
    ]

    /// The name between the brackets; nil if the line begins no group.
    private static func group(_ line: ArraySlice<UInt8>) -> String? {
        guard let end = line.lastIndex(of: UInt8(ascii: "]")) else { return nil }
        return String(decoding: line[(line.startIndex + 1)..<end], as: UTF8.self)
    }

    private static func trimmed(_ line: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        var line = line.drop(while: isBlank)
        while let last = line.last, isBlank(last) { line = line.dropLast() }
        return line
    }
}
