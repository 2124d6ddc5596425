extension UInt64 {
    /// A time that never comes, or a span without an end, as the D-Bus API writes it.
    public static let never = UInt64.max
}

/// What changed the time: the argument of `SignificantTimeChange`.
public enum TimeChange: String, Hashable, Sendable, CaseIterable {
    /// The machine has slept.
    case resume
    /// The clock was set, by a second or more.
    case clockSet = "clock-set"
    /// The local time zone has changed.
    case timeZone = "time-zone"
    /// Daylight saving time has begun or ended.
    case daylightSaving = "daylight-saving"
    /// A new day has begun in the local time zone.
    case midnight
}
