/// The names of the units that we make for an application (systemd's docs/DESKTOP_ENVIRONMENTS, "XDG standardization for
/// applications", with a launcher's name). Portals read the id from them.
///
/// The id is cut if the name would be too long: the name does not identify the application. A random number
/// distinguishes the unit from the application's other units.
enum UnitName {
    private static let longest = 255
    private static let scope = ".scope"

    /// The unit of a program that we start: `app-appstate-ID@NUMBER.service`.
    static func service(_ id: String) -> String { "\(prefix(id))@\(number).service" }

    /// The unit of processes that already run: `app-appstate-ID-NUMBER.scope`.
    static func scope(_ id: String) -> String { "\(prefix(id))-\(number)\(scope)" }

    /// Whether a unit is a scope of an application that an agent has made.
    static func isScope(_ unit: String, of id: String) -> Bool {
        unit.hasPrefix(prefix(id) + "-") && unit.hasSuffix(scope)
    }

    private static var number: UInt32 { .random(in: 1 ... .max) }

    private static func prefix(_ id: String) -> String {
        var prefix = "app-appstate-"
        for (place, byte) in id.utf8.enumerated() {
            // As systemd-escape(1) does.
            let isPlain =
                isAlphanumeric(byte) || plain.contains(byte) && (place > 0 || byte != UInt8(ascii: "."))
            let piece = isPlain ? String(Unicode.Scalar(byte)) : "\\x" + hexadecimal(byte)
            guard prefix.utf8.count + piece.utf8.count + "@4294967295.service".utf8.count <= longest else {
                break
            }
            prefix += piece
        }
        return prefix
    }

    /// The object path of a unit: sd_bus_path_encode(3).
    static func objectPath(_ unit: String) -> String {
        // No name begins with a digit, which would be escaped.
        unit.utf8.reduce(into: "/org/freedesktop/systemd1/unit/") { path, byte in
            path += isAlphanumeric(byte) ? String(Unicode.Scalar(byte)) : "_" + hexadecimal(byte)
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
