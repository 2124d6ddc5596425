import LifeCycle

/// `[Pressure]`
extension Configuration {
    /// Takes one line; answers what is wrong with it.
    mutating func applyPressure(_ key: String, _ value: String) -> String? {
        let defaults = PressureSettings()
        switch key {
        case "Source":
            // systemd.syntax(7): a list may be given in several lines; an empty one starts it anew.
            let paths = value.split(whereSeparator: \.isWhitespace).map(String.init)
            if let wrong = paths.first(where: { !$0.hasPrefix("/") }) {
                return "\"\(wrong)\" is no absolute path"
            }
            settings.pressure.sources = paths.isEmpty ? [] : settings.pressure.sources + paths
        case "Warning": return trigger(value, \.warning)
        case "Critical": return trigger(value, \.critical)
        case "CriticalAvailable":
            guard !value.isEmpty else {
                settings.pressure.criticalAvailable = defaults.criticalAvailable
                return nil
            }
            guard let amount = PressureSettings.Amount(value) else {
                return "\"\(value)\" is no amount of memory (5%, 256M, 1G, bytes)"
            }
            settings.pressure.criticalAvailable = amount
        case "KillWaitSec": return finiteSpan(value, \.pressure.killWait)
        case "TerminateGraceSec": return finiteSpan(value, \.pressure.terminateGrace)
        case "KillsPerEvent": return count(value, \.pressure.killsPerEvent)
        case "LowMemoryMonitor":
            guard value.isEmpty || Self.boolean(value) != nil else { return "\"\(value)\" is no boolean" }
            settings.pressure.servesLowMemoryMonitor =
                Self.boolean(value) ?? defaults.servesLowMemoryMonitor
        default: return "no such key in [Pressure]"
        }
        return nil
    }

    private mutating func trigger(
        _ value: String, _ path: WritableKeyPath<PressureSettings, PressureSettings.Trigger>
    ) -> String? {
        if value.isEmpty {
            settings.pressure[keyPath: path] = PressureSettings()[keyPath: path]
            return nil
        }
        guard let trigger = PressureSettings.Trigger(value) else {
            return "\"\(value)\" is no trigger (some 70ms 1s, full 700ms 1s; the window from 500ms to 10s)"
        }
        settings.pressure[keyPath: path] = trigger
        return nil
    }
}

extension PressureSettings.Trigger {
    /// `some 70ms 1s`: whose stall, how much, within how much time.
    fileprivate init?(_ text: String) {
        let words = text.split(whereSeparator: \.isWhitespace).map(String.init)
        guard words.count == 3, let kind = Kind(rawValue: words[0]),
            case .microseconds(let stall)? = TimeSpan.parse(words[1]),
            case .microseconds(let window)? = TimeSpan.parse(words[2]),
            // The kernel takes no other (WINDOW_MIN_US and WINDOW_MAX_US of kernel/sched/psi.c).
            (500_000...10_000_000).contains(window), (1...window).contains(stall)
        else { return nil }
        self.init(kind, stall, in: window)
    }
}

extension PressureSettings.Amount {
    /// `5%`, `2.5%`, `256M`, or bytes.
    fileprivate init?(_ text: String) {
        if text.hasSuffix("%") {
            // Less than a hundredth of a per cent would count as nothing.
            guard let percent = Double(text.dropLast()), (0.01...100).contains(percent) else { return nil }
            self = .share(UInt32((percent * 100).rounded()))
            return
        }
        // systemd's suffixes, to the base of 1024 (systemd.resource-control(5), MemoryMax=).
        let units: [Character: UInt64] = ["K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40]
        let unit = text.last.flatMap { units[$0] }
        guard let number = UInt64(unit == nil ? text : String(text.dropLast())), number > 0 else {
            return nil
        }
        let (bytes, overflow) = number.multipliedReportingOverflow(by: unit ?? 1)
        if overflow { return nil }
        self = .bytes(bytes)
    }
}
