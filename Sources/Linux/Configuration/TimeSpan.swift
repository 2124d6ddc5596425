/// Spans of time in the notation of systemd.time(7): `5`, `500ms`, `1min 30s`, `infinity`.
public enum TimeSpan {
    /// Microseconds of each unit that systemd.time(7) names for spans.
    private static let units: [(names: [String], microseconds: UInt64)] = [
        (["usec", "us", "µs", "μs"], 1),
        (["msec", "ms"], 1_000),
        (["seconds", "second", "sec", "s", ""], 1_000_000),
        (["minutes", "minute", "min", "m"], 60_000_000),
        (["hours", "hour", "hr", "h"], 3_600_000_000),
        (["days", "day", "d"], 86_400_000_000),
        (["weeks", "week", "w"], 604_800_000_000),
        // systemd.time(7): a month is 30.44 days, a year 365.25.
        (["months", "month", "M"], 2_630_016_000_000),
        (["years", "year", "y"], 31_557_600_000_000),
    ]

    /// A span.
    public enum Parsed: Equatable, Sendable {
        /// A span that ends.
        case microseconds(UInt64)
        /// A span that does not end.
        case infinity
    }

    /// Parses a span; nil if the text is not a span, or does not fit 64 bits of microseconds.
    public static func parse(_ text: String) -> Parsed? {
        var rest = Substring(text).drop { $0.isWhitespace }
        if rest == "infinity" { return .infinity }
        guard !rest.isEmpty else { return nil }
        var total: UInt64 = 0
        while !rest.isEmpty {
            guard let part = popPart(&rest) else { return nil }
            let (sum, overflow) = total.addingReportingOverflow(part)
            if overflow { return nil }
            total = sum
            rest = rest.drop { $0.isWhitespace }
        }
        return .microseconds(total)
    }

    /// One number with the greatest unit, up to days, of which the span is a whole multiple. `parse` reads it back.
    public static func text(of microseconds: UInt64) -> String {
        guard microseconds > 0 else { return "0" }
        let written: [(name: String, microseconds: UInt64)] = [
            ("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000),
        ]
        let unit = written.first { microseconds.isMultiple(of: $0.microseconds) } ?? ("us", 1)
        return "\(microseconds / unit.microseconds)\(unit.name)"
    }

    /// Removes one number with its unit from the front.
    private static func popPart(_ rest: inout Substring) -> UInt64? {
        let whole = rest.prefix { $0.isDecimalDigit }
        rest = rest.dropFirst(whole.count)
        var fraction: Substring = ""
        if rest.first == "." {
            fraction = rest.dropFirst().prefix { $0.isDecimalDigit }
            if fraction.isEmpty { return nil }
            rest = rest.dropFirst(fraction.count + 1)
        }
        guard let number = UInt64(whole) else { return nil }
        rest = rest.drop { $0.isWhitespace }
        let name = rest.prefix { !$0.isWhitespace && !$0.isDecimalDigit && $0 != "." }
        rest = rest.dropFirst(name.count)
        guard let unit = units.first(where: { $0.names.contains(String(name)) })?.microseconds else {
            return nil
        }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit)
        if overflow { return nil }
        var part = product
        var scale = unit
        for digit in fraction {
            scale /= 10
            let (sum, overflow) = part.addingReportingOverflow(UInt64(digit.wholeNumberValue ?? 0) * scale)
            if overflow { return nil }
            part = sum
        }
        return part
    }
}

extension Character {
    fileprivate var isDecimalDigit: Bool { ("0"..."9").contains(self) }
}

extension ConfigurationValue where Value == UInt64? {
    /// A span of time in microseconds; nil is `infinity`.
    public static var span: Self {
        Self("is not a time span (5, 500ms, 1min 30s, infinity)") { text in
            switch TimeSpan.parse(text) {
            case .microseconds(let span)?: .some(span)
            case .infinity?: .some(nil)
            case nil: nil
            }
        }
    }
}

extension ConfigurationValue where Value == UInt64 {
    /// A span of time in microseconds that ends.
    public static var finiteSpan: Self {
        Self("is not a finite time span (5, 500ms, 1min 30s)") { text in
            if case .microseconds(let span)? = TimeSpan.parse(text) { span } else { nil }
        }
    }
}
