import AppStateBus
import AppStateContract
import LifeCycle

/// The options of `Register`, each checked: an unknown key, a wrong type or a descriptor is named.
struct RegisterOptions {
    var delegate: Bool?
    var launchMode: LaunchMode?
    var suspension: SuspensionPolicy?
    var reclaimable = true
    var backgroundModes: [String] = []
    var launchOptions: [(String, Variant)] = []
    var adopted = false
    /// About what it takes to keep the launch options.
    var launchOptionBytes = 0

    init(_ entries: [(key: String, value: Variant)], limit: Int) throws(MethodError) {
        var seen: Set<RegisterOption> = []
        for (key, value) in entries {
            guard let option = RegisterOption(rawValue: key) else {
                throw MethodError(.invalidArgs, "Register has no option \"\(key.shortened)\"")
            }
            guard seen.insert(option).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is there twice")
            }
            switch option {
            case .delegate: delegate = try value.bool(key)
            case .launchMode: launchMode = try value.choice(key)
            case .suspension: suspension = try value.choice(key)
            case .reclaimable: reclaimable = try value.bool(key)
            case .backgroundModes: backgroundModes = try value.strings(key, limit: limit)
            case .launchOptions:
                launchOptions = try value.entries(key)
                launchOptionBytes = LaunchOptions.keptBytes(of: launchOptions)
            case .adopted: adopted = try value.bool(key)
            }
        }
    }
}

/// What bounds launch options: they are kept, and go into messages to everybody who may see the application.
enum LaunchOptions {
    /// Dictionaries, arrays and structures, one in the other; the options themselves are the first.
    static let greatestDepth = 8
    /// In the options of one application.
    static let mostValues = 1_024
    /// Of all of a user's applications.
    static let mostBytesPerUser = 1 << 20

    /// About the memory that they take: more than their bytes in a message, since each value is one of its own.
    static func keptBytes(of options: [(String, Variant)]) -> Int {
        options.reduce(0) { $0 + 64 + $1.0.utf8.count + $1.1.keptBytes }
    }

    /// Those that can be sent: a daemon before this one may have taken others.
    static func sendable(_ options: [(String, Variant)]) -> [(String, Variant)] {
        options.filter { $0.1.depth < greatestDepth }
    }
}

extension WindowReport {
    /// A window's state as `UpdateWindow` gives it.
    init(
        number: UInt64, process: ReportedProcess, _ entries: [(key: String, value: Variant)], limit: Int
    ) throws(MethodError) {
        self.init(number: number, process: process)
        var seen: Set<WindowKeyName> = []
        for (key, value) in entries {
            guard let name = WindowKeyName(rawValue: key) else {
                throw MethodError(.invalidArgs, "A window has no key \"\(key.shortened)\"")
            }
            guard seen.insert(name).inserted else {
                throw MethodError(.invalidArgs, "The key \"\(key)\" is there twice")
            }
            switch name {
            case .focused: focused = try value.bool(key)
            case .visible: visible = try value.bool(key)
            case .minimized: minimized = try value.bool(key)
            case .title: title = try value.string(key, limit: limit)
            case .appID: appID = try value.string(key, limit: limit)
            }
        }
    }
}

extension Variant {
    fileprivate func bool(_ key: String) throws(MethodError) -> Bool {
        guard case .bool(let value) = self else { throw wrongType(key, "b") }
        return value
    }

    fileprivate func string(_ key: String, limit: Int) throws(MethodError) -> String {
        guard case .string(let value) = self else { throw wrongType(key, "s") }
        guard value.utf8.count <= limit else {
            throw MethodError(.limitsExceeded, "\(key) is longer than \(limit) bytes")
        }
        return value
    }

    fileprivate func strings(_ key: String, limit: Int) throws(MethodError) -> [String] {
        let values: [String]
        switch self {
        case .strings(let strings): values = strings
        default: throw wrongType(key, "as")
        }
        // The modes there are fit in a handful; more is a mistake or an attack.
        guard values.count <= 64 else {
            throw MethodError(.limitsExceeded, "\(key) has more than 64 entries")
        }
        for value in values where value.utf8.count > limit {
            throw MethodError(.limitsExceeded, "an entry of \(key) is longer than \(limit) bytes")
        }
        return values
    }

    fileprivate func entries(_ key: String) throws(MethodError) -> [(String, Variant)] {
        guard case .dictionary(let entries) = self else { throw wrongType(key, "a{sv}") }
        if containsDescriptor {
            throw MethodError(.invalidArgs, "\(key) holds a descriptor: none is taken there")
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
        return entries.sorted { $0.key < $1.key }
    }

    fileprivate func choice<Choice: RawRepresentable<String> & CaseIterable>(
        _ key: String
    ) throws(MethodError) -> Choice {
        guard case .string(let value) = self else { throw wrongType(key, "s") }
        guard let choice = Choice(rawValue: value) else {
            let choices = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw MethodError(.invalidArgs, "\(key) is \"\(value.shortened)\", none of \(choices)")
        }
        return choice
    }

    private func wrongType(_ key: String, _ wanted: String) -> MethodError {
        MethodError(.invalidArgs, "\(key) is of type \(signature), not \(wanted)")
    }

    /// dbus-api: "Message bodies other than saved state: at most 64 KiB".
    private static let greatestBody = 64 << 10

    /// About as much as the value takes in a message (D-Bus specification, "Summary of D-Bus marshalling").
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

    /// About the memory that it takes.
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
