import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

@testable import Daemon

/// When the sensor looks at which application.
@Suite("Looks at stops")
struct StopSensorTests {
    /// A sensor of made-up applications that records the order of the looks.
    private final class Scene {
        let loop: EventLoop
        private(set) var sensor: StopSensor?
        var looks = 0
        let core = Core(settings: Settings())
        private let pipe: PipeEnds
        private var other: Source?
        /// The turns of another source that is always ready.
        private(set) var turns = 0
        /// The time that has passed by the sensor's clock only.
        private var ahead: Microseconds = 0
        /// How far the sensor's clock begins behind that of the loop's timers.
        private let behind: Microseconds

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
                now: { [unowned self] in Daemon.now - behind + ahead }, core: core,
                standing: { [unowned self] number in
                    looks += 1
                    return standing(number) ?? Standing(signal: .none)
                })
            for index in 0..<count {
                // Above the greatest number that Linux gives (PID_MAX_LIMIT).
                let process = ProcessIdentity(pid: 5_000_000 + Int32(index), startTime: 1)
                try watch(process)
            }
            close(pipe.takeWrite())
            other = try loop.watch(pipe.read) { [unowned self] _ in turns += 1 }
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
    }

    @Test("an application that is given up is not looked at")
    func unwatched() throws {
        let scene = try Scene(20)
        let sensor = try #require(scene.sensor)
        for number in 1...19 { sensor.unwatch(ApplicationNumber(UInt32(number))) }
        sensor.rescan()
        #expect(scene.looks == 1)
    }

    @Suite(
        "By the trace",
        .enabled(if: StopTrace.isAvailable, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
    struct TraceTests {
        @Test("the daemon's own stop is not attributed to the sender of a signal that the process ignores")
        func ignored() throws {
            let proc = Proc()
            let victim = try Child("sh", ["-c", "trap '' TSTP; echo on; exec sleep 1000"])
            try victim.waitForLine(containing: "on")
            let process = try proc.identity(of: victim.pid)
            let scene = try Scene(0) { _ in Standing(signal: .stopped) }
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
                    let (losses, turns) = (sensor.counts.losses, scene.turns)
                    let sender = try Child("sh", ["-c", "kill -\(signal) \(victim.pid)"])
                    #expect(try sender.waitForExit() == .exited(0))
                    pids.append("pid \(sender.pid)")
                    // The hint is in the trace by now. Signals elsewhere on the machine may fill the trace, which then
                    // loses this one.
                    try scene.run {
                        scene.turns >= turns + 100
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
                let turns = scene.turns
                try scene.run { scene.turns >= turns + 100 && sensor.counts.rescans >= walks }
                #expect(
                    sensor.counts.rescans == walks || sensor.counts.losses > 0, sourceLocation: location)
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
            scene.looks = 0
            try scene.run { scene.looks >= 6 }
            sensor.giveUpTrace()
            #expect(told == [.polling])
        }
    }
}
