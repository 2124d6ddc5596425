import AppStateBus
import AppStateContract

/// The limits of launch options. The options are stored, and sent to every client that may see the
/// application.
enum LaunchOptions {
    /// The greatest nesting of dictionaries, arrays and structures; the options themselves are the first level.
    static let greatestDepth = 8
    /// For all of a user's applications, with their user activities.
    static let mostBytesPerUser = 1 << 20

    /// The approximate size of the options in a message.
    static func bytes(of options: some Sequence<(String, Variant)>) -> Int {
        options.reduce(0) { $0 + $1.0.utf8.count + 8 + $1.1.byteCount }
    }

    /// The options that can be sent: an earlier daemon may have accepted others.
    static func sendable(_ options: [(String, Variant)]) -> [(String, Variant)] {
        options.filter { $0.1.depth < greatestDepth }
    }
}

extension Variant {
    /// This value as launch options, sorted.
    func launchOptions(_ key: String) throws(MethodError) -> [(String, Variant)] {
        guard case .dictionary(let entries) = self else { throw wrongType(key, "a{sv}") }
        try checkBody(key)
        return entries.sorted { $0.key < $1.key }
    }

    /// Refuses a value that cannot be stored or forwarded in a message.
    func checkBody(_ key: String) throws(MethodError) {
        if containsDescriptor {
            throw MethodError(.invalidArgs, "\(key) holds a file descriptor, which is not allowed there")
        }
        guard byteCount <= Self.greatestBody else {
            throw MethodError(.limitsExceeded, "\(key) holds more than \(Self.greatestBody) bytes")
        }
        guard depth <= LaunchOptions.greatestDepth else {
            throw MethodError(
                .limitsExceeded, "\(key) is nested more than \(LaunchOptions.greatestDepth) levels deep")
        }
    }

    /// dbus-api: "Message bodies other than saved state: at most 64 KiB".
    private static let greatestBody = 64 << 10

    /// The approximate size of the value in a message (D-Bus specification, "Summary of D-Bus marshalling").
    fileprivate var byteCount: Int {
        switch self {
        case .string(let text), .objectPath(let text), .signature(let text): text.utf8.count + 5
        case .bytes(let bytes): bytes.count + 4
        case .strings(let texts): texts.reduce(4) { $0 + $1.utf8.count + 5 }
        case .array(_, let values): values.reduce(4) { $0 + $1.byteCount }
        case .structure(let values): values.reduce(8) { $0 + $1.byteCount }
        case .dictionary(let entries): entries.reduce(4) { $0 + $1.key.utf8.count + 8 + $1.value.byteCount }
        case .entry(let key, let value): 8 + key.byteCount + value.byteCount
        case .variant(let value): 4 + value.byteCount
        case .bool, .byte, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .descriptor: 8
        }
    }

    private var containsDescriptor: Bool {
        switch self {
        case .descriptor: true
        case .array(let element, let values):
            element.contains("h") || values.contains(where: \.containsDescriptor)
        case .structure(let values): values.contains(where: \.containsDescriptor)
        case .dictionary(let entries): entries.values.contains(where: \.containsDescriptor)
        case .entry(let key, let value): key.containsDescriptor || value.containsDescriptor
        case .variant(let value): value.containsDescriptor
        case .string, .objectPath, .signature, .bool, .byte, .int16, .uint16, .int32, .uint32, .int64,
            .uint64,
            .double, .bytes, .strings:
            false
        }
    }
}
