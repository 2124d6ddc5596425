import AppStateBus
import AppStateContract
import LifeCycle

extension WindowReport {
    /// A window's state as `UpdateWindow` passes it.
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
                throw MethodError(.invalidArgs, "The key \"\(key)\" is given twice")
            }
            switch name {
            case .focused: focused = try value.bool(key)
            case .visible: visible = try value.bool(key)
            case .minimized: minimized = try value.bool(key)
            case .unsavedChanges: unsavedChanges = try value.bool(key)
            case .title: title = try value.string(key, limit: limit)
            case .appID: appID = try value.string(key, limit: limit)
            }
        }
    }
}
