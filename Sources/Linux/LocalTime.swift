import Glibc

/// A moment in the local time zone: localtime(3).
public struct LocalTime: Hashable, Sendable {
    /// Grows by one or more each day.
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

    /// Reads the time zone as it is configured now (tzset(3)), for all later queries.
    public static func readZone() { tzset() }

    /// The first moment at which the day or the offset differs, in seconds since 1970. This is usually midnight; in
    /// zones where days do not begin at midnight, it is the moment that the zone defines.
    ///
    /// No day is longer than 25 hours. Where one is (a zone that moves across the date line), the result is 26 hours
    /// later.
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
