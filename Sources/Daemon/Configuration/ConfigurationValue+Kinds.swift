import LifeCycle
import Linux

extension ConfigurationValue where Value == Int {
    /// A greater number would not be a useful limit.
    static var count: Self { number(1...1_000_000) }
}

extension ConfigurationValue where Value == PressureSettings.Trigger {
    static var trigger: Self {
        Self("is not a trigger (some 70ms 1s, full 700ms 1s; the window from 500ms to 10s)", read: Value.init)
    }
}

extension ConfigurationValue where Value == PressureSettings.Amount {
    static var amount: Self { Self("is not an amount of memory (5%, 256M, 1G, bytes)", read: Value.init) }
}

extension ConfigurationValue where Value == UInt64 {
    static var bytes: Self {
        Self("is not a number of bytes (64M, 1G)") { text in
            guard case .bytes(let bytes)? = PressureSettings.Amount(text) else { return nil }
            return bytes
        }
    }
}

extension ConfigurationValue where Value == UInt64? {
    /// Bytes per second; nil is `infinity`.
    static var rate: Self {
        Self("is not a number of bytes per second (16K, 1M, infinity)") { text in
            if text == "infinity" { return .some(nil) }
            guard case .bytes(let bytes)? = PressureSettings.Amount(text) else { return nil }
            return bytes
        }
    }
}

extension ConfigurationValue where Value == UInt32? {
    /// Hundredths of a per cent; nil is `infinity`.
    static var limit: Self {
        Self("is not a limit (10%, infinity)") { text in
            if text == "infinity" { return .some(nil) }
            guard case .share(let share)? = PressureSettings.Amount(text) else { return nil }
            return share
        }
    }
}

extension ConfigurationValue where Value == UInt32 {
    /// Hundredths of a per cent. More than half for one application would leave the others nothing to work with.
    static var protection: Self {
        Self("is not a share of the memory, up to 50%") { text in
            guard case .share(let share)? = PressureSettings.Amount(text), share <= 5_000 else { return nil }
            return share
        }
    }
}

extension PressureSettings.Trigger {
    /// `some 70ms 1s`: the kind of stall, how much of it, and within how much time.
    fileprivate init?(_ text: String) {
        let words = text.split(whereSeparator: \.isWhitespace).map(String.init)
        guard words.count == 3, let kind = Kind(rawValue: words[0]),
            case .microseconds(let stall)? = TimeSpan.parse(words[1]),
            case .microseconds(let window)? = TimeSpan.parse(words[2]),
            // The kernel accepts no other window (WINDOW_MIN_US and WINDOW_MAX_US of kernel/sched/psi.c).
            (500_000...10_000_000).contains(window), (1...window).contains(stall)
        else { return nil }
        self.init(kind, stall, in: window)
    }
}

extension PressureSettings.Amount {
    /// `5%`, `2.5%`, `256M`, or bytes.
    fileprivate init?(_ text: String) {
        if text.hasSuffix("%") {
            // Less than a hundredth of a per cent would count as zero.
            guard let percent = Double(text.dropLast()), (0.01...100).contains(percent) else { return nil }
            self = .share(UInt32((percent * 100).rounded()))
            return
        }
        // systemd's suffixes, with base 1024 (systemd.resource-control(5), MemoryMax=).
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
