/// The name of the unit for an application that we start: `app-appstate-ID@NUMBER.service` (systemd's
/// docs/DESKTOP_ENVIRONMENTS, "XDG standardization for applications", with a launcher's name). Portals read the id from
/// it.
enum UnitName {
    private static let longest = 255

    /// - Parameters:
    ///   - id: the application's id. It is cut if the name would be too long: the name does not identify the
    ///     application.
    ///   - number: distinguishes the unit from the application's other units.
    static func make(_ id: String, _ number: UInt64) -> String {
        let (before, after) = ("app-appstate-", "@\(number).service")
        var room = longest - before.utf8.count - after.utf8.count
        var escaped = ""
        for piece in pieces(of: id) {
            room -= piece.utf8.count
            guard room >= 0 else { break }
            escaped += piece
        }
        return before + escaped + after
    }

    /// The id, with each byte escaped in the way of systemd-escape(1).
    private static func pieces(of id: String) -> [String] {
        id.utf8.enumerated().map { place, byte in
            let isPlain =
                isAlphanumeric(byte) || plain.contains(byte) && (place > 0 || byte != UInt8(ascii: "."))
            return isPlain ? String(Unicode.Scalar(byte)) : "\\x" + hexadecimal(byte)
        }
    }

    /// The object path of a unit: sd_bus_path_encode(3).
    static func objectPath(_ unit: String) -> String {
        unit.utf8.enumerated().reduce(into: "/org/freedesktop/systemd1/unit/") { path, next in
            let (place, byte) = next
            let isDigit = (0x30...0x39).contains(byte)
            path +=
                isAlphanumeric(byte) && !(place == 0 && isDigit)
                ? String(Unicode.Scalar(byte)) : "_" + hexadecimal(byte)
        }
    }

    private static let plain = Set(":_.".utf8)

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
    }

    private static func hexadecimal(_ byte: UInt8) -> String {
        (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }
}
