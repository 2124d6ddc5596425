import Foundation
import Glibc
import Testing

@testable import Linux

/// Days in the local time zone, and the clock's timer.
@Suite("Local time", .serialized)
struct LocalTimeTests {
    /// Whether the system has files of time zones.
    private static let hasZones = access("/usr/share/zoneinfo/Europe/Berlin", R_OK) == 0

    /// The time zone is global to the process: no other code asks for local time while a test runs.
    private func inZone(_ zone: String, _ body: () -> Void) {
        let before = getenv("TZ").map { String(cString: $0) }
        setenv("TZ", zone, 1)
        LocalTime.readZone()
        body()
        if let before { setenv("TZ", before, 1) } else { unsetenv("TZ") }
        LocalTime.readZone()
    }

    @Test(
        "the next change is midnight or daylight saving time, whichever comes first",
        .enabled(if: hasZones, "needs tzdata"),
        arguments: [
            // date -d 'TZ="Europe/Berlin" …' +%s
            ("Europe/Berlin", 1_795_467_000, 1_795_474_800), ("Europe/Berlin", 1_795_474_799, 1_795_474_800),
            ("Europe/Berlin", 1_795_474_800, 1_795_561_200),
            // 2026-03-29: 02:00 becomes 03:00. 2026-10-25: 03:00 becomes 02:00.
            ("Europe/Berlin", 1_774_738_800, 1_774_746_000), ("Europe/Berlin", 1_774_746_000, 1_774_821_600),
            ("Europe/Berlin", 1_792_879_200, 1_792_890_000), ("Europe/Berlin", 1_792_890_000, 1_792_969_200),
            // 2018-11-04: midnight became 01:00. 2018-02-18: midnight became 23:00 of the day before.
            ("America/Sao_Paulo", 1_541_296_800, 1_541_300_400),
            ("America/Sao_Paulo", 1_541_300_400, 1_541_383_200),
            ("America/Sao_Paulo", 1_518_915_600, 1_518_919_200),
            ("America/Sao_Paulo", 1_518_919_200, 1_518_922_800),
            ("UTC", 0, 86_400), ("Asia/Kathmandu", 1_795_467_000, 1_795_544_100),
        ] as [(String, Int64, Int64)])
    func next(_ zone: String, _ moment: Int64, _ expected: Int64) {
        inZone(zone) {
            let found = LocalTime.nextChange(after: moment)
            #expect(found == expected, "\(zone) \(moment): \(found)")
        }
    }
}
