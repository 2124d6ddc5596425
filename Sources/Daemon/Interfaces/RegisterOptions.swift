import AppStateBus
import AppStateContract

/// The options of `Register`, each checked: the error names an unknown key, a wrong type or a descriptor.
struct RegisterOptions {
    var delegate: Bool?
    var launchMode: LaunchMode?
    var suspension: SuspensionPolicy?
    var reclaimable = true
    var backgroundModes: [String] = []
    var launchOptions: [(String, Variant)] = []
    var adopted = false

    init(_ entries: [(key: String, value: Variant)], limit: Int) throws(MethodError) {
        var seen: Set<RegisterOption> = []
        for (key, value) in entries {
            guard let option = RegisterOption(rawValue: key) else {
                throw MethodError(.invalidArgs, "Register has no option \"\(key.shortened)\"")
            }
            guard seen.insert(option).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is given twice")
            }
            switch option {
            case .delegate: delegate = try value.bool(key)
            case .launchMode: launchMode = try value.choice(key)
            case .suspension: suspension = try value.choice(key)
            case .reclaimable: reclaimable = try value.bool(key)
            case .backgroundModes: backgroundModes = try value.strings(key, limit: limit)
            case .launchOptions: launchOptions = try value.launchOptions(key)
            case .adopted: adopted = try value.bool(key)
            }
        }
    }
}
