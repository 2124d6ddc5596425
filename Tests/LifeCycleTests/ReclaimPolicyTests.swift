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

    @Test("a zero age or an unknown size does not reduce the weight to zero")
    func floors() {
        #expect(first([candidate(1, age: 0, mebibytes: 0), candidate(2, age: 0, mebibytes: 2)]) == 2)
        #expect(first([candidate(1, age: 0, mebibytes: 0), candidate(2, age: 2, mebibytes: 0)]) == 2)
        #expect(first([candidate(1, age: 100, mebibytes: 0), candidate(2, age: 0, mebibytes: 50)]) == 1)
        #expect(first([candidate(2, age: 0, mebibytes: 0), candidate(1, age: 1, mebibytes: 1)]) == 1)
    }

    /// Every combination of small and large values.
    private var corners: [Candidate] {
        var corners: [Candidate] = []
        for (rank, isUnsaved) in ReclaimPolicy.Rank.allCases.flatMap({ [($0, false), ($0, true)] }) {
            for user in [UInt32(1), 2] {
                for age in [Microseconds(0), 100] {
                    for mebibytes in [UInt64(0), 100] {
                        corners.append(
                            candidate(
                                UInt32(corners.count + 1), user: user, rank, isUnsaved: isUnsaved, age: age,
                                mebibytes: mebibytes))
                    }
                }
            }
        }
        return corners
    }

    @Test("the order is total: among any three candidates the same one is first in whatever order they come")
    func total() {
        let corners = corners
        for usage in [[:], [1: 10, 2: 20], [1: 20, 2: 10]] as [[UInt32: UInt64]] {
            for one in corners {
                for two in corners {
                    for three in corners {
                        let winner = first([one, two, three], usage)
                        #expect(winner == first([three, two, one], usage))
                        #expect(winner == first([two, three, one], usage))
                        // The first of three also comes before each of them alone.
                        for other in [one, two, three] where winner == one.number.rawValue {
                            #expect(first([other, one], usage) == winner)
                        }
                    }
                }
            }
        }
    }

    @Test("every permutation of five candidates gives the same order")
    func permutations() {
        let five = [
            candidate(1, .background, age: 500, mebibytes: 500), candidate(2, .stopped, age: 50),
            candidate(3, user: 2, mebibytes: 1), candidate(4, age: 30), candidate(5, age: 31),
        ]
        func permute(_ left: [Candidate], _ taken: [Candidate]) {
            if left.isEmpty { #expect(order(taken, [1: 9, 2: 10]) == [3, 5, 4, 2, 1]) }
            for index in left.indices {
                var rest = left
                let next = rest.remove(at: index)
                permute(rest, taken + [next])
            }
        }
        permute(five, [])
    }

    private func random(_ generator: inout Generator) -> [Candidate] {
        (1...UInt32.random(in: 1...12, using: &generator)).map { number in
            candidate(
                number, user: UInt32.random(in: 1...3, using: &generator),
                generator.pick(ReclaimPolicy.Rank.allCases) ?? .held,
                isUnsaved: Bool.random(using: &generator),
                age: Microseconds.random(in: 0...20, using: &generator),
                mebibytes: UInt64.random(in: 0...20, using: &generator))
        }
    }

    @Test("age or growth keeps the first candidate first; a change to another can only make that one first")
    func monotone() {
        let seed = Generator.chosenSeed
        var generator = Generator(seed: seed)
        for _ in 0..<5_000 {
            let candidates = random(&generator)
            var usage: [UInt32: UInt64] = [:]
            for one in candidates { usage[one.user, default: 0] += one.bytes }
            let winner = first(candidates, usage)
            #expect(winner == first(candidates.shuffled(using: &generator), usage), "APPSTATED_SEED=\(seed)")
            for index in candidates.indices {
                for change in [
                    { $0.age += 7 * Self.second }, { $0.bytes += 7 << 20 }, { $0.rank = .held },
                    { $0.isUnsaved = false },
                ]
                    as [(inout Candidate) -> Void]
                {
                    var changed = candidates
                    change(&changed[index])
                    let next = first(changed, usage)
                    #expect(
                        next == winner || next == changed[index].number.rawValue, "APPSTATED_SEED=\(seed)")
                    if changed[index].number.rawValue == winner {
                        #expect(next == winner, "APPSTATED_SEED=\(seed)")
                    }
                }
            }
            guard let winning = candidates.first(where: { $0.number.rawValue == winner }) else { continue }
            #expect(candidates.allSatisfy { $0.isUnsaved || !winning.isUnsaved })
            let alike = candidates.filter { $0.isUnsaved == winning.isUnsaved }
            #expect(alike.allSatisfy { $0.rank >= winning.rank })
            let peers = alike.filter { $0.rank == winning.rank }
            #expect(peers.allSatisfy { usage[$0.user, default: 0] <= usage[winning.user, default: 0] })
            #expect(peers.allSatisfy { $0.user != winning.user || $0.weight <= winning.weight })
        }
    }
}
