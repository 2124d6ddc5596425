/// A desktop entry's id, as `Register` accepts it. It is a name, not an identity.
public struct ApplicationID: Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String

    /// The longest id, in bytes (dbus-api: `[A-Za-z0-9._-]{1,255}`).
    public static let maximumLength = 255

    /// Accepts `[A-Za-z0-9._-]{1,255}`; nil for anything else.
    public init?(_ text: String) {
        let bytes = text.utf8
        guard (1...Self.maximumLength).contains(bytes.count), bytes.allSatisfy(Self.allows) else {
            return nil
        }
        rawValue = text
    }

    private static func allows(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
            return true
        default:
            return false
        }
    }

    public var description: String { rawValue }
}
