/// URLs of files (RFC 8089), and the schemes of URLs.
public enum FileURL {
    /// The scheme of a URL in lower case. Nil: the text is not a URL.
    public static func scheme(of url: String) -> String? {
        let bytes = Array(url.utf8)
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), let first = bytes.first, isLetter(first),
            bytes[..<colon].allSatisfy({ isLetter($0) || isDigit($0) || others.contains($0) })
        else { return nil }
        return String(decoding: bytes[..<colon], as: UTF8.self).lowercased()
    }

    /// The path of a file of this machine.
    ///
    /// - Parameter url: a `file:` URL whose host is empty or `localhost`, or an absolute path.
    /// - Returns: the path. Nil: the URL does not name a file of this machine, or the text is not a URL.
    public static func path(of url: String) -> String? {
        if url.utf8.first == UInt8(ascii: "/") { return url.utf8.contains(0) ? nil : url }
        guard scheme(of: url) == "file" else { return nil }
        var rest = Array(url.utf8.dropFirst("file:".utf8.count))[...]
        if rest.starts(with: "//".utf8) {
            rest = rest.dropFirst(2)
            let host = rest.prefix { $0 != UInt8(ascii: "/") }
            guard host.isEmpty || String(decoding: host, as: UTF8.self).lowercased() == "localhost" else {
                return nil
            }
            rest = rest[host.endIndex...]
        }
        // The query and the fragment are for the program that shows the file.
        rest = rest.prefix { $0 != UInt8(ascii: "#") && $0 != UInt8(ascii: "?") }
        guard rest.first == UInt8(ascii: "/"), let path = decoded(rest) else { return nil }
        return path
    }

    /// The URL of a file.
    ///
    /// - Parameter path: an absolute path.
    public static func url(of path: String) -> String {
        var url = "file://"
        for byte in path.utf8 {
            if isLetter(byte) || isDigit(byte) || plain.contains(byte) {
                url.unicodeScalars.append(Unicode.Scalar(byte))
            } else {
                url += "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
            }
        }
        return url
    }

    /// Nil if a percent sign is not followed by two digits, or if the path would contain a NUL or invalid UTF-8.
    private static func decoded(_ text: ArraySlice<UInt8>) -> String? {
        var bytes: [UInt8] = []
        var rest = text
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard rest.count >= 2, let high = digit(rest.removeFirst()), let low = digit(rest.removeFirst())
            else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return bytes.contains(0) ? nil : String(validating: bytes, as: UTF8.self)
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        Character(Unicode.Scalar(byte)).hexDigitValue.map { UInt8($0) }
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte | 0x20) }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    private static let others = Set("+-.".utf8)
    private static let plain = Set("-._~/!$&'()*+,:=@".utf8)
}
