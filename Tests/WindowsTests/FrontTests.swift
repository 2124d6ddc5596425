import Testing

@testable import appstate_session

/// Which processes a copy on Wayland is attributed to.
@Suite("Processes in front")
struct FrontTests {
    @Test("who has lost the focus counts for half a second more")
    func overlap() {
        var front = Front()
        #expect(front.processes(at: 0) == [])
        front.note([1], at: 1_000_000)
        #expect(front.processes(at: 1_000_000) == [1])
        front.note([2], at: 2_000_000)
        // The same focus again is no change.
        front.note([2], at: 2_400_000)
        #expect(front.processes(at: 2_499_999) == [1, 2])
        #expect(front.processes(at: 2_500_000) == [2])
        front.note([], at: 3_000_000)
        #expect(front.processes(at: 3_000_001) == [2])
        #expect(front.processes(at: 4_000_000) == [])
    }

    @Test("between two windows the focus may be nowhere for a moment")
    func gap() {
        var front = Front()
        front.note([1], at: 1_000_000)
        front.note([], at: 2_000_000)
        front.note([2], at: 2_100_000)
        #expect(front.processes(at: 2_200_000) == [1, 2])
        front.note([1], at: 2_300_000)
        #expect(front.processes(at: 2_700_000) == [1, 2])
        #expect(front.processes(at: 2_800_000) == [1])
    }
}
