import Testing

@testable import Linux

/// Time spans as systemd.time(7) writes them.
@Suite("Time spans")
struct TimeSpanTests {
    @Test(
        "a span is a number with a unit, several of them, or a plain number of seconds",
        arguments: [
            ("5", 5_000_000), ("0", 0), ("500ms", 500_000), ("500 ms", 500_000), ("1min", 60_000_000),
            ("1min 30s", 90_000_000), ("1min30s", 90_000_000), ("  2 h  ", 7_200_000_000),
            ("2.5s", 2_500_000),
            ("0.000001", 1), ("0.0000001", 0), ("7us", 7), ("7usec", 7), ("7µs", 7), ("7μs", 7),
            ("3msec", 3_000),
            ("1second", 1_000_000), ("2seconds", 2_000_000), ("2sec", 2_000_000), ("1m", 60_000_000),
            ("1minute", 60_000_000), ("3minutes", 180_000_000), ("1hr", 3_600_000_000),
            ("1hour", 3_600_000_000),
            ("2hours", 7_200_000_000), ("1d", 86_400_000_000), ("1day", 86_400_000_000),
            ("2days", 172_800_000_000),
            ("1w", 604_800_000_000), ("1week", 604_800_000_000), ("1M", 2_630_016_000_000),
            ("1month", 2_630_016_000_000), ("1y", 31_557_600_000_000), ("1year", 31_557_600_000_000),
            ("1s 1s", 2_000_000), ("18446744073709551615us", UInt64.max),
        ])
    func spans(_ text: String, _ microseconds: UInt64) {
        #expect(TimeSpan.parse(text) == .microseconds(microseconds), "\(text)")
    }

    @Test(
        "the text of a span uses the greatest unit of which the span is a whole number",
        arguments: [
            (0, "0"), (1, "1us"), (1_500, "1500us"), (2_000, "2ms"), (90_000_000, "90s"),
            (60_000_000, "1min"),
            (5_400_000_000, "90min"), (172_800_000_000, "2d"), (UInt64.max, "18446744073709551615us"),
        ] as [(UInt64, String)])
    func text(_ microseconds: UInt64, _ text: String) {
        #expect(TimeSpan.text(of: microseconds) == text)
        #expect(TimeSpan.parse(text) == .microseconds(microseconds))
    }

    @Test(
        "invalid spans are refused",
        arguments: [
            "", " ", "s", "five", "-1", "-1s", "+1", "5 fortnights", "5S", "1.", "1.s", ".", "1,5s", "0x10",
            "1e3",
            "infinity 5", "5 infinity", "Infinity", "99999999999999999999", "18446744073709551616us",
            "18446744073709.9", "18446744073709551615us 1us", "999999999999years", "٣", "1½", "5s;", "5;6",
        ])
    func nonsense(_ text: String) {
        #expect(TimeSpan.parse(text) == nil, "\(text)")
    }
}
