import AppStateContract
import Testing

@testable import LifeCycle

/// Which application is ended first (§ 6): the table of `ReclaimPolicy`.
@Suite("Reclaim policy")
struct ReclaimPolicyTests {
    typealias Candidate = ReclaimPolicy.Candidate
    private static let second: Microseconds = 1_000_000

    private func candidate(
        _ number: UInt32, user: UInt32 = 1, _ rank: ReclaimPolicy.Rank = .held, isUnsaved: Bool = false,
        age: Microseconds = 10, mebibytes: UInt64 = 10
    ) -> Candidate {
        Candidate(
            number: ApplicationNumber(number), user: user, rank: rank, isUnsaved: isUnsaved,
            age: age * Self.second,
            bytes: mebibytes << 20)
    }

    private func first(_ candidates: [Candidate], _ usage: [UInt32: UInt64] = [:]) -> UInt32? {
        ReclaimPolicy.first(of: candidates, usage: usage)?.number.rawValue
    }

    /// The order in which all of them would be ended.
    private func order(_ candidates: [Candidate], _ usage: [UInt32: UInt64]) -> [UInt32] {
        var rest = candidates
        var order: [UInt32] = []
        while let next = ReclaimPolicy.first(of: rest, usage: usage) {
            order.append(next.number.rawValue)
            rest.removeAll { $0 == next }
        }
        return order
    }

    @Test("without candidates there is no victim")
    func nobody() { #expect(first([]) == nil) }

    @Test("the rank is compared before the user, and the user before the weight")
    func precedence() {
        let usage: [UInt32: UInt64] = [1: 1, 2: 1_000]
        #expect(first([candidate(1, user: 1, .held), candidate(2, user: 2, .stopped)], usage) == 1)
        #expect(
            first(
                [candidate(1, .stopped), candidate(2, user: 2, .background, age: 999, mebibytes: 999)], usage)
                == 1)
        #expect(first([candidate(1, age: 999, mebibytes: 999), candidate(2, user: 2)], usage) == 2)
        #expect(first([candidate(1), candidate(2, mebibytes: 11)], usage) == 2)
        #expect(first([candidate(1), candidate(2, age: 11)], usage) == 2)
    }

    @Test("applications with unsaved changes are ended after all others, whatever else differs")
    func unsaved() {
        let saved = [
            candidate(1, user: 2, .background, age: 0, mebibytes: 0), candidate(2, .stopped),
            candidate(3, .held, age: 999, mebibytes: 999),
        ]
        let unsaved = [
            candidate(4, .held, isUnsaved: true, age: 999, mebibytes: 999),
            candidate(5, .stopped, isUnsaved: true),
            candidate(6, user: 2, .background, isUnsaved: true),
        ]
        #expect(order(unsaved + saved, [1: 9, 2: 1]) == [3, 2, 1, 4, 5, 6])
    }

    @Test("between users the total memory of each decides, not the size of the candidates")
    func usage() {
        let both = [candidate(1, user: 1, mebibytes: 900), candidate(2, user: 2, mebibytes: 1)]
        #expect(first(both, [1: 5, 2: 6]) == 2)
        #expect(first(both, [1: 6, 2: 5]) == 1)
        #expect(first(both, [2: 1]) == 2)
        // Neither user holds more than the other: there is some stable order all the same.
        #expect(first(both, [1: 5, 2: 5]) == first(both.reversed(), [1: 5, 2: 5]))
    }
}
