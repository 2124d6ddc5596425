import Testing

@testable import LifeCycle

/// The table of the grace period, one line each (§ 4).
@Suite("Grace period")
struct GraceTests {
    private static let now: Microseconds = 100
    private static let span: Microseconds = 50

    private func after(
        _ grace: Grace, _ event: Grace.Event, span: Microseconds? = Self.span, isEligible: Bool = true
    ) -> Grace {
        var next = grace
        next.handle(event, span: span, isEligible: isEligible, at: Self.now)
        return next
    }

    /// One that runs until then.
    private func running(
        _ until: Microseconds, serial: UInt64? = nil, floor: Microseconds = 0
    ) -> Grace {
        .running(serial: serial, .running(until: until), floor: floor)
    }

    @Test("it begins when the application rests, and anew when it is resumed")
    func rests() {
        #expect(after(.none, .begins(serial: 3)) == running(150, serial: 3))
        #expect(after(.over, .begins()) == running(150))
        #expect(after(running(140, serial: 3), .begins()) == running(150))
        #expect(after(.none, .begins(), span: nil) == .running(serial: nil, .endless, floor: 0))
    }

    @Test("one that was needed lasts for a while, however short its grace period is")
    func demanded() {
        let again = Grace.Event.again(atLeast: 70)
        #expect(after(.none, again, isEligible: false) == .demanded(floor: 170))
        #expect(after(.demanded(floor: 170), .begins(serial: 3)) == running(170, serial: 3, floor: 170))
        #expect(after(running(170, floor: 170), .changed) == running(170, floor: 170))
        #expect(after(running(170, floor: 170), .begins(), span: 90) == running(190, floor: 170))
        #expect(after(.demanded(floor: 170), .objectionEnded) == .demanded(floor: 170))
    }

    @Test("it begins again with a demand or an objection; an acknowledgement that is awaited still ends it")
    func again() {
        let again = Grace.Event.again(atLeast: 20)
        #expect(after(.over, again) == running(150, floor: 120))
        #expect(after(running(110, serial: 3, floor: 110), again) == running(150, serial: 3, floor: 120))
        #expect(after(running(150, serial: 3), .acknowledged(3)) == .over)
        #expect(after(running(150, serial: 3), .acknowledged(2)) == running(150, serial: 3))
        #expect(after(running(150), .acknowledged(2)) == running(150))
    }

    @Test("for an answer it is brief, and does not shorten another one")
    func answers() {
        let answers = Grace.Event.answers(within: 20)
        #expect(after(.over, answers) == running(120, floor: 120))
        #expect(after(running(110, serial: 3), answers) == running(120, serial: 3, floor: 120))
        #expect(after(running(150, serial: 3), answers) == running(150, serial: 3))
        #expect(after(.none, answers, isEligible: false) == .demanded(floor: 120, isBrief: true))
        #expect(
            after(.demanded(floor: 120, isBrief: true), .begins(serial: 3))
                == running(120, serial: 3, floor: 120))
        #expect(after(.demanded(floor: 170), answers) == .demanded(floor: 170))
    }

    @Test("it does not end before the former one when something that prevented a suspension has ended")
    func freed() {
        #expect(after(running(110, serial: 3), .objectionEnded) == running(150))
        #expect(after(running(180, serial: 3), .objectionEnded) == running(180))
        #expect(after(.over, .objectionEnded) == running(150))
        #expect(after(.none, .objectionEnded) == .none)
    }

    @Test(
        "a changed length counts from now on; a delegate keeps what it was promised, and its successor owes nothing"
    )
    func changed() {
        #expect(after(running(180), .changed) == running(150))
        #expect(after(running(180, serial: 3), .changed) == running(180, serial: 3))
        #expect(after(.over, .changed) == running(150))
        #expect(after(running(180, serial: 3, floor: 7), .delegateLeft) == running(180, floor: 7))
    }
}
