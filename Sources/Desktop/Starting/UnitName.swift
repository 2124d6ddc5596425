/// The names of the units that we make for an application (systemd's docs/DESKTOP_ENVIRONMENTS, "XDG standardization for
/// applications", with a launcher's name). Portals read the id from them.
///
/// The id is cut if the name would be too long: the name does not identify the application. The number distinguishes
/// the unit from the application's other units.
enum UnitName {
    private static let longest = 255
    private static let scopeSuffix = ".scope"

    /// The unit of a program that we start: `app-appstate-ID@NUMBER.service`.
    static func service(_ id: String, _ number: UInt64) -> String { name(id, "@\(number).service") }

    /// The unit of processes that already run: `app-appstate-ID-NUMBER.scope`.
    static func scope(_ id: String, _ number: UInt64) -> String { name(id, "-\(number)\(scopeSuffix)") }

    /// Whether a unit is a scope of an application that an agent has made.
    static func isScope(_ unit: String, of id: String) -> Bool {
        let number = unit.dropLast(scopeSuffix.count).split(separator: "-").last.flatMap { UInt64($0) }
        return number.map { scope(id, $0) == unit } ?? false
    }

    private static func name(_ id: String, _ after: String) -> String {
        let before = "app-appstate-"
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
