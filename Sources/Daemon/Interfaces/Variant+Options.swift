import AppStateBus
import AppStateContract

/// The values of options, in the type that each key requires. A wrong type or length is refused, and the error names
/// the key.
extension Variant {
    func bool(_ key: String) throws(MethodError) -> Bool {
        guard case .bool(let value) = self else { throw wrongType(key, "b") }
        return value
    }

    func uint32(_ key: String) throws(MethodError) -> UInt32 {
        guard case .uint32(let value) = self else { throw wrongType(key, "u") }
        return value
    }

    func uint64(_ key: String) throws(MethodError) -> UInt64 {
        guard case .uint64(let value) = self else { throw wrongType(key, "t") }
        return value
    }

    func string(_ key: String, limit: Int) throws(MethodError) -> String {
        guard case .string(let value) = self else { throw wrongType(key, "s") }
        guard value.utf8.count <= limit else {
            throw MethodError(.limitsExceeded, "\(key) is longer than \(limit) bytes")
        }
        return value
    }

    func strings(_ key: String, limit: Int) throws(MethodError) -> [String] {
        let values: [String]
        switch self {
        case .strings(let strings): values = strings
        default: throw wrongType(key, "as")
        }
        // All existing modes fit in a handful of entries; more is a mistake or an attack.
        guard values.count <= 64 else {
            throw MethodError(.limitsExceeded, "\(key) has more than 64 entries")
        }
        for value in values where value.utf8.count > limit {
            throw MethodError(.limitsExceeded, "an entry of \(key) is longer than \(limit) bytes")
        }
        return values
    }

    func choice<Choice: RawRepresentable<String> & CaseIterable>(
        _ key: String
    ) throws(MethodError) -> Choice {
        guard case .string(let value) = self else { throw wrongType(key, "s") }
        guard let choice = Choice(rawValue: value) else {
            let choices = Choice.allCases.map(\.rawValue).joined(separator: ", ")
            throw MethodError(.invalidArgs, "\(key) is \"\(value.shortened)\", not one of \(choices)")
        }
        return choice
    }

    func wrongType(_ key: String, _ wanted: String) -> MethodError {
        MethodError(.invalidArgs, "\(key) is of type \(signature), not \(wanted)")
    }
}
