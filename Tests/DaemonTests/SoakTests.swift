import AppStateBus
import AppStateContract
import Foundation
import TestSupport
import Testing

/// Many processes, many clients, everything at once. APPSTATED_SOAK=1: 1,000 processes for 60 s.
@Suite(
    "Soak", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Herd.isAvailable, "needs sh, cat and setsid"))
struct SoakTests {
    private static let isLong = ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == "1"

    @Test("every subscriber gets a legal and complete sequence, and nothing is left after the last exit")
    func soak() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nTerminateGraceSec=1\n")
        try run(daemon, count: Self.isLong ? 1_000 : 200, seconds: Self.isLong ? 60 : 10)
    }

    @Test(
        "the sequences are legal and complete where stops are found by polling, too",
        .enabled(if: TestDaemon.canBeOthers, "needs root, to take capabilities from the daemon"))
    func polling() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nTerminateGraceSec=1\n",
            withoutCapabilities: ["perfmon", "sys_admin"])
        try run(daemon, count: 40, seconds: 3)
    }

    private func run(_ daemon: TestDaemon, count: Int, seconds: Int) throws {
        let dice = Dice()
        print("soak of \(count) processes for \(seconds) s: APPSTATED_SEED=\(dice.seed)")
        let client = try daemon.client()
        // After this, the daemon has opened what it opens once and keeps, such as the journal's socket.
        let first = try Child("sleep", ["1000"])
        try client.application(client.register("org.example.First", first.pid), "Unregister")
        try client.settle()
        let soak = try Soak(daemon, dice: dice)
        let warmUp = 10
        try soak.round(of: warmUp)
        let before = try daemon.descriptors()
        let end = ContinuousClock.now + .seconds(seconds)
        var memory: [Int] = []
        repeat {
            try soak.round(of: count)
            memory.append(try daemon.anonymousMemory())
            // Further rounds cannot repair a failure.
            guard soak.failures.isEmpty, soak.witnesses.allSatisfy(\.ledger.violations.isEmpty) else { break }
        } while ContinuousClock.now < end || memory.count < 4

        #expect(soak.failures == [])
        for witness in soak.witnesses {
            #expect(witness.ledger.violations == [])
            #expect(witness.ledger.added == warmUp + count * memory.count)
            #expect(witness.ledger.removed.values.reduce(0, +) == warmUp + count * memory.count)
        }
        print(
            "soak: \(memory.count) rounds, \(soak.deeds) deeds, \(soak.witnesses[0].ledger.edges) edges, "
                + "ends \(soak.witnesses[0].ledger.removed), memory after each round \(memory) KiB")

        // Nothing is left.
        #expect(try client.list() == [])
        let objects = try client.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        #expect(try objects.withEntered(.array, "{oa{sa{sv}}}") { objects.atEnd })
        // Others than these may have been open only for a moment at the beginning.
        func left() throws -> [String] {
            try daemon.descriptors().difference(from: before).insertions.map { "\($0)" }
        }
        try? client.wait("descriptors to be closed") { try left() == [] }
        let rest = try left()
        #expect(rest == [])
        try client.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
        // The tables reach their final size in the first round. A leak shows in each later round, what the allocator keeps
        // does not.
        let growth = zip(memory.dropFirst(), memory.dropFirst(2)).map { $1 - $0 }
        #expect((growth.min() ?? 0) < 256, "KiB: \(memory)")
    }
}
