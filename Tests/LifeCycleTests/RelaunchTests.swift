import AppStateContract
import Testing

@testable import LifeCycle

/// Which application is started again next, and which is not, after memory was short.
@Suite("Applications that are started again")
struct RelaunchTests {
    private static let pause = Relaunches.pause
    private static let hour: Microseconds = 3_600_000_000

    static func one(_ name: String, of user: UInt32) throws -> Relaunch {
        Relaunch(
            id: try #require(ApplicationID("org.example.\(name)")), user: user, session: .user(user))
    }

    static func many(_ count: Int, of user: UInt32) throws -> [Relaunch] {
        try (0..<count).map { try one("A\($0)", of: user) }
    }

    /// Takes what is due for this long, a pause after the other.
    private func started(_ relaunches: inout Relaunches, from begin: Microseconds, _ times: Int) -> [Relaunch]
    {
        (0..<times).compactMap { relaunches.popDue(at: begin + UInt64($0) * Self.pause) }
    }

    @Test("one is started at a time, with a pause between two, whoever's they are")
    func pauses() throws {
        var relaunches = Relaunches()
        #expect(relaunches.nextDue == nil)
        for user: UInt32 in 1...3 { #expect(relaunches.add(try Self.one("A", of: user), at: 5) == nil) }
        #expect(relaunches.popDue(at: 5)?.user == 1)
        #expect(relaunches.nextDue == 5 + Self.pause)
        #expect(relaunches.popDue(at: 4 + Self.pause) == nil)
        #expect(relaunches.popDue(at: 5 + Self.pause)?.user == 2)
        #expect(relaunches.popDue(at: .max)?.user == 3)
        #expect(relaunches.nextDue == nil)
    }

    @Test(
        "an application is started again a limited number of times within an hour, and only so many of a user wait"
    )
    func often() throws {
        var relaunches = Relaunches()
        let own = try Self.one("A", of: 1)
        for round in 0..<Relaunches.mostInAnHour {
            let now = UInt64(round) * Self.pause
            #expect(relaunches.add(own, at: now) == nil)
            #expect(relaunches.popDue(at: now) == own)
        }
        #expect(relaunches.add(own, at: Self.hour - 1) != nil)
        // An hour after the first start, one more may follow.
        #expect(relaunches.add(own, at: Self.hour) == nil)
        for other in try Self.many(Relaunches.mostWaiting - 1, of: 1) where other.id != own.id {
            #expect(relaunches.add(other, at: Self.hour) == nil)
        }
        #expect(
            relaunches.add(try Self.one("B", of: 1), at: Self.hour) != nil)
        #expect(relaunches.add(try Self.one("B", of: 2), at: Self.hour) == nil)
    }

    @Test("an application that waits already is started once, in the session in which it ran last")
    func again() throws {
        var relaunches = Relaunches()
        #expect(relaunches.add(try Self.one("A", of: 1), at: 0) == nil)
        let newer = Relaunch(id: try Self.one("A", of: 1).id, user: 1, session: .login("c2"))
        #expect(relaunches.add(newer, at: 0) == nil)
        #expect(started(&relaunches, from: 0, 3) == [newer])
    }
}
