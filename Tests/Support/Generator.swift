import Foundation

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers for the same seed on every machine.
public struct Generator: RandomNumberGenerator {
    private var state: UInt64

    public init(seed: UInt64) { state = seed }

    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    public mutating func byte() -> UInt8 { UInt8(truncatingIfNeeded: next()) }

    public mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &self) < percent }

    public mutating func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[Int.random(in: 0..<elements.count, using: &self)]
    }

    /// One of these elements or nil; nil is as likely as each element.
    public mutating func pickOrNone<Element>(_ elements: [Element]) -> Element? {
        chance(100 / (elements.count + 1)) ? nil : pick(elements)
    }

    /// The first seed: APPSTATED_SEED, or else a random one.
    public static var chosenSeed: UInt64 {
        ProcessInfo.processInfo.environment["APPSTATED_SEED"].flatMap { UInt64($0) }
            ?? UInt64.random(in: 0...UInt64(UInt32.max))
    }

    /// The number of steps of a simulation: APPSTATED_STEPS, or else a million.
    public static var chosenSteps: Int {
        ProcessInfo.processInfo.environment["APPSTATED_STEPS"].flatMap { Int($0) } ?? 1_000_000
    }
}
