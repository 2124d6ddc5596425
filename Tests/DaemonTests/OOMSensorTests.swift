import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Daemon

private let canTraceChoices = (try? OOMTrace.open()) != nil

/// The kernel counts a kill, kills the process, and reports which process it was, in this order. The kills are real, at
/// a cgroup's limit. The count is made up, so that a process may end before the kernel has reported the kill.
@Suite(
    "Detection of kills by the OOM killer",
    .enabled(if: MemoryLimit.isAvailable, Comment(rawValue: MemoryLimit.whatIsMissing)),
    .enabled(
        if: canTraceChoices, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
struct OOMSensorTests {
    /// A count so high that reports of other kills do not use it up meanwhile.
    private static let many = 1_000

    /// A kernel that has counted as many kills as the test says, and a process that it can kill.
    private final class Scene {
        let loop: EventLoop
        let sensor: OOMSensor
        let child: Child
        private let vmstat: URL
        private let limit: MemoryLimit
        private let gate: PipeEnds
        private(set) var answers: [Bool] = []

        init() throws {
            let directory = FileManager.default.temporaryDirectory
                .appendingPathComponent("oom-\(UUID().uuidString)")
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            vmstat = directory.appendingPathComponent("vmstat")
            try Data("oom_kill 0\n".utf8).write(to: vmstat)
            loop = try EventLoop()
            sensor = try OOMSensor(loop: loop, proc: Proc(), root: directory.path) { Daemon.now }
            limit = try MemoryLimit(bytes: 32 << 20)
            gate = try PipeEnds()
            // tail(1) keeps the last lines in memory, and /dev/zero is a line without an end.
            child = try Child(
                "sh", ["-c", "read line; exec tail /dev/zero"], descriptors: [STDIN_FILENO: gate.read])
            try limit.take(child.pid)
        }

        deinit { try? FileManager.default.removeItem(at: vmstat.deletingLastPathComponent()) }

        func count(_ kills: Int) throws {
            // Written in place, because the sensor keeps the file open.
            let file = try FileHandle(forWritingTo: vmstat)
            try file.write(contentsOf: Data("oom_kill \(kills)\n".utf8))
            try file.close()
        }

        func ask() { sensor.wasChosen(child.pid) { [unowned self] in answers.append($0) } }

        func killForMemory() throws {
            close(gate.takeWrite())
            #expect(try child.waitForExit() == .signalled(SIGKILL))
        }

        func waitForAnswer() throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while answers.isEmpty {
                guard ContinuousClock.now < deadline else { throw TestFailure("no answer") }
                try loop.runOnce(timeout: 100_000)
            }
        }
    }

    @Test("a kill that is reported before the end is answered with yes, once")
    func chosen() throws {
        let scene = try Scene()
        try scene.killForMemory()
        scene.ask()
        #expect(scene.answers == [true])
        scene.ask()
        #expect(scene.answers == [true, false])
    }

    @Test("a kill that is counted before the end and reported after it is answered with yes")
    func late() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        #expect(scene.answers == [])
        try scene.killForMemory()
        try scene.waitForAnswer()
        #expect(scene.answers == [true])
    }

    @Test("without a counted kill the answer is no, at once")
    func notCounted() throws {
        let scene = try Scene()
        scene.ask()
        #expect(scene.answers == [false])
    }

    @Test("a kill that is counted but never reported is answered with no, and is not awaited again")
    func lost() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        try scene.waitForAnswer()
        scene.ask()
        #expect(scene.answers == [false, false])
    }

    @Test("a report that arrived while the process did not run counts, whatever else is pending")
    func stalled() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        // The deadline and the record become ready at the same time, behind other sources.
        let others = try (0..<2).map { _ in try PipeEnds() }
        let sources = try others.map { ends in
            try scene.loop.watch(ends.read) { _ in }
        }
        for ends in others { close(ends.takeWrite()) }
        try scene.killForMemory()
        let end = ContinuousClock.now + .microseconds(Int(OOMSensor.patience) * 2)
        while ContinuousClock.now < end { sched_yield() }
        try scene.waitForAnswer()
        #expect(scene.answers == [true])
        for source in sources { source.cancel() }
    }
}
