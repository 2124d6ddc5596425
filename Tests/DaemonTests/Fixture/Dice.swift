import Foundation

/// Random numbers that the same seed reproduces (SplitMix64). APPSTATED_SEED sets the seed.
struct Dice: RandomNumberGenerator {
    let seed: UInt64
    private var state: UInt64

    init() {
        let given = ProcessInfo.processInfo.environment["APPSTATED_SEED"].flatMap { UInt64($0) }
        seed = given ?? UInt64.random(in: 0...UInt64(UInt32.max))
        state = seed
    }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94d0_49bb_1331_11eb
        return mixed ^ (mixed >> 31)
    }
}
