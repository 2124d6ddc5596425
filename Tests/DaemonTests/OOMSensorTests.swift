import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Daemon

private let canTraceChoices = (try? OOMTrace.open()) != nil

/// The kernel counts a kill, kills, and tells whom, in this order. The kills are real, at a cgroup's limit; the count is
/// made up, so that an end may come before the kernel has told.
@Suite(
    "Whom the kernel's killer chose",
    .enabled(if: MemoryLimit.isAvailable, Comment(rawValue: MemoryLimit.whatIsMissing)),
    .enabled(
        if: canTraceChoices, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
struct OOMSensorTests {
    /// Others are killed meanwhile, and told of.
    private static let many = 1_000

    /// A kernel that has killed as many as the test says, and one that it can kill.
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
            // tail(1) keeps the last lines, and here is no end of one.
            child = try Child(
                "sh", ["-c", "read line; exec tail /dev/zero"], descriptors: [STDIN_FILENO: gate.read])
            try limit.take(child.pid)
        }

        deinit { try? FileManager.default.removeItem(at: vmstat.deletingLastPathComponent()) }

        func count(_ kills: Int) throws {
            // In place: it is kept open.
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

    @Test("told before the end: yes, once")
    func chosen() throws {
        let scene = try Scene()
        try scene.killForMemory()
        scene.ask()
        #expect(scene.answers == [true])
        scene.ask()
        #expect(scene.answers == [true, false])
    }

    @Test("counted before the end and told after it: yes")
    func late() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        #expect(scene.answers == [])
        try scene.killForMemory()
        try scene.waitForAnswer()
        #expect(scene.answers == [true])
    }

    @Test("not counted: no, at once")
    func notCounted() throws {
        let scene = try Scene()
        scene.ask()
        #expect(scene.answers == [false])
    }

    @Test("counted and never told: no, and nobody waits for it again")
    func lost() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        try scene.waitForAnswer()
        scene.ask()
        #expect(scene.answers == [false, false])
    }

    @Test("what was told while we did not run counts, whatever else is to be done")
    func stalled() throws {
        let scene = try Scene()
        try scene.count(Self.many)
        scene.ask()
        // The deadline and the record are ready at once, behind others.
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
