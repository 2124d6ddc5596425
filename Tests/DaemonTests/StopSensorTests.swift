import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// How a flood of signals, or a walk over many applications, affects the turns of the event loop's sources.
@Suite("Looks at stops")
struct StopSensorTests {
    /// A sensor of made-up applications that records the order of the looks.
    private final class Scene {
        let loop: EventLoop
        private(set) var sensor: StopSensor?
        /// `look`, and `other` for each turn of another source that is always ready.
        var story: [String] = []
        let core = Core(settings: Settings())
        private let pipe: PipeEnds
        private var other: Source?
        /// The time that looks have taken, by the sensor's clock.
        private var ahead: Microseconds = 0
        /// How far the sensor's clock begins behind that of the loop's timers.
        private let behind: Microseconds
        /// The time that each reading of the clock takes.
        var clockTime: Microseconds = 0
        private static let look: Microseconds = 300

        /// - Parameters:
        ///   - behind: the most time that will `pass`. If the sensor's clock were ahead of the loop's, its timers
        ///     would expire later than it expects.
        ///   - standing: the standing of real processes; nil for all others.
        init(
            _ count: Int, proc: Proc = Proc(), behind: Microseconds = 0,
            standing: @escaping (ApplicationNumber) -> Standing? = { _ in nil }
        ) throws {
            // A machine that has just booted.
            self.behind = min(behind, Daemon.now)
            loop = try EventLoop()
            pipe = try PipeEnds()
            sensor = try StopSensor(
                loop: loop, proc: proc,
                now: { [unowned self] in
                    ahead += clockTime
                    return Daemon.now - behind + ahead
                }, share: WorkShare(),
                core: core,
                standing: { [unowned self] number in
                    if let standing = standing(number) { return standing }
                    story.append("look")
                    ahead += Self.look
                    return Standing(signal: .none)
                })
            for index in 0..<count {
                // Above the greatest number that Linux gives (PID_MAX_LIMIT).
                let process = ProcessIdentity(pid: 5_000_000 + Int32(index), startTime: 1)
                try watch(process)
            }
            close(pipe.takeWrite())
            other = try loop.watch(pipe.read) { [unowned self] _ in story.append("other") }
        }

        func pass(_ span: Microseconds) { ahead += span }

        func watch(_ process: ProcessIdentity) throws {
            guard let id = ApplicationID("org.example.App") else { return }
            var registration = Registration(
                id: id, process: ProcessID(process), user: getuid(), session: .user(getuid()))
            registration.suspension = .manual
            guard
                case .application(let number) = try core.machine.perform(
                    .register(registration), at: Daemon.now
                )
                .answer
            else { return }
            sensor?.watch(number, process)
        }

        func run(until isDone: () -> Bool) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while !isDone() {
                guard ContinuousClock.now < deadline else { throw TestFailure("it timed out") }
                try loop.runOnce(timeout: 100_000)
            }
        }

        /// The numbers of looks between two turns of the other source.
        var runs: [Int] {
            story.split(separator: "other", omittingEmptySubsequences: true).map(\.count)
        }
    }

    @Test("a walk over all applications is made in slices, and other sources get turns in between")
    func slices() throws {
        let scene = try Scene(200)
        let sensor = try #require(scene.sensor)
        // Each application is polled; the first walk starts now.
        sensor.rescan()
        try scene.run { scene.story.count { $0 == "look" } >= 200 }
        #expect(scene.runs.allSatisfy { $0 <= 4 }, "\(scene.runs)")
        #expect(sensor.counts.walks == 1)
        #expect(sensor.counts.slices >= 50)
    }

    @Test("an application that is given up in the middle of a walk is not looked at")
    func givenUp() throws {
        let scene = try Scene(20)
        let sensor = try #require(scene.sensor)
        sensor.rescan()
        for number in 1...20 { sensor.unwatch(ApplicationNumber(UInt32(number))) }
        try scene.run { scene.story.count { $0 == "other" } > 200 }
        #expect(scene.story.count { $0 == "look" } <= 4)
    }

    @Suite(
        "By the trace",
        .enabled(if: StopTrace.isAvailable, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
    struct TraceTests {
        /// Programs that send signals without end: to themselves, or to a hundred threads that are not registered. The
        /// alarm ends them where `python3` is a script that starts another process, and only the script is killed.
        private static let floods = [
            "import os, signal\nsignal.alarm(120)\nwhile True: os.kill(os.getpid(), 18)",
            """
            import os, signal, threading, ctypes
            signal.alarm(120)
            kill = ctypes.CDLL(None).tgkill
            threads = []
            def wait():
                threads.append(threading.get_native_id())
                threading.Event().wait()
            for _ in range(100): threading.Thread(target=wait, daemon=True).start()
            while True:
                for thread in threads: kill(os.getpid(), thread, 18)
            """,
        ]

        @Test(
            "a flood causes a bounded number of wake-ups, lookups and looks, and a stop is found",
            .enabled(if: Programs.inPath("python3") != nil, "needs python3"), arguments: 0..<2)
        func flood(_ kind: Int) throws {
            let proc = Proc()
            let victim = try Child("sleep", ["1000"])
            let process = try proc.identity(of: victim.pid)
            let scene = try Scene(50) { number in
                guard number.rawValue > 50, let isStopped = try? proc.isStopped(process) else { return nil }
                return Standing(signal: isStopped ? .stopped : .none)
            }
            let sensor = try #require(scene.sensor)
            try sensor.openTrace()
            try scene.watch(process)
            let before = sensor.counts
            let begin = Daemon.now
            let attacker = try Child("python3", ["-c", Self.floods[kind]])
            try scene.run { sensor.counts.drains >= before.drains + 100 }
            kill(victim.pid, SIGSTOP)
            try scene.run {
                scene.core.facts.contains { if case .looked = $0 { true } else { false } }
            }
            attacker.kill(SIGKILL)
            let span = Daemon.now - begin
            let counts = sensor.counts
            #expect(counts.lookups - before.lookups <= 8 * (counts.drains - before.drains))
            // Once every 5 ms, after the first ones.
            #expect(counts.drains - before.drains <= Int(span / 5_000) + 1_024)
            // The looks at the victim, and those of walks.
            #expect(counts.looks - before.looks <= 60 * (counts.walks - before.walks + 1))
        }

        @Test("the daemon's own stop is not attributed to the sender of a signal that the process ignores")
        func ignored() throws {
            let proc = Proc()
            let victim = try Child("sh", ["-c", "trap '' TSTP; echo on; exec sleep 1000"])
            try victim.waitForLine(containing: "on")
            let process = try proc.identity(of: victim.pid)
            var looks = 0
            let scene = try Scene(0) { _ in
                looks += 1
                return Standing(signal: .stopped)
            }
            let sensor = try #require(scene.sensor)
            try sensor.openTrace()
            try scene.watch(process)
            let number = ApplicationNumber(1)
            // The daemon's SIGSTOP has taken effect, and other processes of the application are still to be stopped.
            _ = try scene.core.machine.perform(.suspend(number, holder: "uid:1000"), at: Daemon.now)
            try #require(scene.core.application(number)?.stop.enforcement == .stopping)
            func senders() -> [String] {
                scene.core.facts.compactMap { fact in
                    if case .looked(_, _, let sender) = fact { sender } else { nil }
                }
            }
            for signal in ["TSTP", "STOP"] {
                var pids: [String] = []
                repeat {
                    looks = 0
                    let losses = sensor.counts.losses
                    let sender = try Child("sh", ["-c", "kill -\(signal) \(victim.pid)"])
                    #expect(try sender.waitForExit() == .exited(0))
                    pids.append("pid \(sender.pid)")
                    // The first look may still be one that the signal before has caused. Signals elsewhere on the machine
                    // may fill the trace, which then loses this one.
                    try scene.run {
                        looks > 0
                            && (signal == "TSTP" || !senders().isEmpty || sensor.counts.losses > losses)
                    }
                } while signal == "STOP" && senders().isEmpty
                #expect(senders().isEmpty == (signal == "TSTP"))
                #expect(Set(senders()).isSubset(of: pids))
            }
        }

        @Test("a daemon that is awake checks all processes once a minute, and nothing wakes it for that")
        func routine() throws {
            let scene = try Scene(5, behind: 2 * StopSensor.routine)
            let sensor = try #require(scene.sensor)
            try sensor.openTrace()
            // A flood of signals elsewhere on the machine is another reason for a walk.
            func expect(walks: Int, at location: SourceLocation = #_sourceLocation) throws {
                scene.story = []
                try scene.run { scene.story.count >= 100 && sensor.counts.looks >= 5 * walks }
                #expect(
                    sensor.counts.walks == walks || sensor.counts.losses > 0, sourceLocation: location)
            }
            // However much time passes.
            scene.pass(StopSensor.routine)
            try expect(walks: 0)
            sensor.noteActivity()
            try expect(walks: 1)
            scene.pass(StopSensor.routine / 2)
            sensor.noteActivity()
            try expect(walks: 1)
            scene.pass(StopSensor.routine / 2)
            sensor.noteActivity()
            try expect(walks: 2)
        }

        @Test("the rings of many CPUs are read in slices, and none is forgotten")
        func rings() throws {
            let proc = Proc()
            let victims = try (0..<4).map { _ in try Child("sleep", ["1000"]) }
            let scene = try Scene(0) { _ in Standing(signal: .none) }
            let sensor = try #require(scene.sensor)
            try sensor.openTrace()
            for victim in victims { try scene.watch(proc.identity(of: victim.pid)) }
            // Every reading of the clock ends a slice.
            scene.clockTime = 1_000
            let before = sensor.counts
            // Together they run on all processors.
            let senders = try victims.map { try Child("sh", ["-c", "kill -CONT \($0.pid)"]) }
            for sender in senders { #expect(try sender.waitForExit() == .exited(0)) }
            try scene.run { sensor.counts.looks >= before.looks + victims.count }
            #expect(sensor.counts.rings - before.rings == sensor.counts.drains - before.drains)
        }

        @Test("if the trace cannot be reopened, the sensor polls from then on, and announces that once")
        func givenUp() throws {
            let root = NSTemporaryDirectory() + "proc-\(UUID().uuidString)"
            defer { try? FileManager.default.removeItem(atPath: root) }
            try FileManager.default.createDirectory(
                atPath: root + "/self/ns", withIntermediateDirectories: true)
            let link = root + "/self/ns/pid"
            try FileManager.default.createSymbolicLink(
                atPath: link, withDestinationPath: "/proc/self/ns/pid")
            let scene = try Scene(3, proc: Proc(root: root))
            let sensor = try #require(scene.sensor)
            try sensor.openTrace()
            var told: [StopDetection] = []
            sensor.detectionChanged = { told.append(sensor.detection) }
            try sensor.renewTrace()
            #expect(told == [])
            #expect(sensor.detection == .events)
            // In a PID namespace other than the machine's, the PIDs in the records mean nothing.
            try FileManager.default.removeItem(atPath: link)
            #expect(throws: KernelFailure.self) { try sensor.renewTrace() }
            #expect(told == [.polling])
            scene.story = []
            try scene.run { scene.story.count { $0 == "look" } >= 6 }
            sensor.giveUpTrace()
            #expect(told == [.polling])
        }
    }
}
