import Glibc

/// A moment as the local time zone has it: localtime(3).
public struct LocalTime: Hashable, Sendable {
    /// Grows by one or more with each day.
    public let day: Int
    /// Seconds east of UTC.
    public let offset: Int

    /// - Parameter moment: in seconds since 1970.
    public init(at moment: Int64) {
        var moment = time_t(moment)
        var fields = tm()
        localtime_r(&moment, &fields)
        day = Int(fields.tm_year) * 366 + Int(fields.tm_yday)
        offset = fields.tm_gmtoff
    }

    /// Takes the time zone as it is configured now (tzset(3)), for all that ask later.
    public static func readZone() { tzset() }

    /// The first moment at which the day or the offset is another, in seconds since 1970: midnight, as a rule. Where days do
    /// not begin at midnight, they begin when the zone says.
    ///
    /// No day is longer than 25 hours; where one is (a zone that moves across the date line), 26 hours later.
    public static func nextChange(after moment: Int64) -> Int64 {
        let now = LocalTime(at: moment)
        var (same, other) = (moment, moment + 26 * 3_600)
        while other - same > 1 {
            let middle = same + (other - same) / 2
            if LocalTime(at: middle) == now { same = middle } else { other = middle }
        }
        return other
    }
}
