import AppStateBus
import AppStateContract

/// The limits of launch options. The options are stored, and sent to every client that may see the
/// application.
enum LaunchOptions {
    /// The greatest nesting of dictionaries, arrays and structures; the options themselves are the first level.
    static let greatestDepth = 8
    /// In the options of one application.
    static let mostValues = 1_024
    /// For all of a user's applications.
    static let mostBytesPerUser = 1 << 20
    /// For all users together, because one person may have many user ids, ...
    static let mostBytesOfAllUsers = 8 << 20
    /// ... except that each user may always have this much.
    static let leastBytesPerUser = 64 << 10

    /// The approximate memory that the options take: more than their bytes in a message, because each value
    /// is stored separately.
    static func keptBytes(of options: [(String, Variant)]) -> Int {
        options.reduce(0) { $0 + 64 + $1.0.utf8.count + $1.1.keptBytes }
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
        guard valueCount <= LaunchOptions.mostValues else {
            throw MethodError(.limitsExceeded, "\(key) holds more than \(LaunchOptions.mostValues) values")
        }
    }

    /// dbus-api: "Message bodies other than saved state: at most 64 KiB".
    private static let greatestBody = 64 << 10

    /// The approximate size of the value in a message (D-Bus specification, "Summary of D-Bus marshalling").
    private var byteCount: Int {
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

    /// The approximate memory that the value takes.
    fileprivate var keptBytes: Int {
        switch self {
        case .string(let text), .objectPath(let text), .signature(let text): 64 + text.utf8.count
        case .bytes(let bytes): 64 + bytes.count
        case .strings(let texts): texts.reduce(64) { $0 + 32 + $1.utf8.count }
        case .array(let element, let values): values.reduce(64 + element.utf8.count) { $0 + $1.keptBytes }
        case .structure(let values): values.reduce(64) { $0 + $1.keptBytes }
        case .dictionary(let entries):
            entries.reduce(64) { $0 + 64 + $1.key.utf8.count + $1.value.keptBytes }
        case .entry(let key, let value): 64 + key.keptBytes + value.keptBytes
        case .variant(let value): 64 + value.keptBytes
        case .bool, .byte, .int16, .uint16, .int32, .uint32, .int64, .uint64, .double, .descriptor: 64
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
