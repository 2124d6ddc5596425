import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Memory really runs short in a cgroup with its own limit: which applications are warned, ended and kept.
@Suite(
    "Memory pressure", .serialized,
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: MemoryLimit.isAvailable, Comment(rawValue: MemoryLimit.whatIsMissing)),
    .enabled(if: access("/proc/pressure/memory", W_OK) == 0, "needs PSI"))
struct PressureTests {
    /// MiB.
    private static let limit = 400
    private static let line = 60
    private static let each = 30
    private static let step = 4

    /// Applications in a cgroup with a limit, and one process that reads more than fits beside them.
    private final class Scene {
        let limit: MemoryLimit
        let configuration: String
        let daemon: TestDaemon
        let client: Client
        let front: App
        let frontPath: String
        private let reader: App
        private let file: String
        private(set) var apps: [String: App] = [:]

        init(_ more: String = "", withoutCapabilities: [String] = []) throws {
            limit = try MemoryLimit(bytes: PressureTests.limit << 20)
            // The kernel accepts windows of two seconds from every process. Stalls never fill a whole window, because
            // the reader reads.
            configuration = """
                [LifeCycle]
                BackgroundGraceSec=0
                [Pressure]
                Source=\(limit.own.cgroup.directory)/memory.pressure
                Warning=some 2ms 2s
                Critical=full 2s 2s
                CriticalAvailable=\(PressureTests.line)M
                \(more)
                """
            daemon = try TestDaemon(configuration: configuration, withoutCapabilities: withoutCapabilities)
            client = try daemon.subscriber()
            front = try App(daemon.bus)
            reader = try App(daemon.bus)
            file = daemon.bus.directory + "/large"
            try limit.take(front.pid)
            try limit.take(reader.pid)
            frontPath = try front.register("org.example.Front", "delegate=b:false")
            try client.call(BusNames.root, BusNames.reporter, "SetFocus") { [front] in
                try $0.append(UInt32(front.pid))
            }
            try client.wait(for: frontPath, toBe: "active")
            try makeFile()
        }

        /// An application that has allocated memory, suspended by policy or by request.
        @discardableResult
        func suspended(
            _ name: String, byPolicy: Bool, mebibytes: Int = PressureTests.each, in home: TestCgroup? = nil,
            isOutside: Bool = false, hasUnsavedChanges: Bool = false, uid: UInt32? = nil
        ) throws -> String {
            let app = try App(daemon.bus, uid: uid)
            if !isOutside { try limit.take(app.pid) }
            try app.ask("allocate \(mebibytes)")
            try home?.take(app.pid)
            let suspension = byPolicy && !hasUnsavedChanges ? "automatic" : "manual"
            // If it registered itself, policy could stop it before it has read the answer.
            let path = try client.register(
                "org.example.\(name)", app.pid,
                [("launch-mode", .string("background")), ("suspension", .string(suspension))])
            if hasUnsavedChanges {
                try app.application(path, "SetUnsavedChanges b:true")
                if byPolicy {
                    try client.application(path, "Configure") {
                        try $0.appendDictionary([("suspension", .string("automatic"))])
                    }
                }
            }
            if !byPolicy { try client.application(path, "Suspend") }
            try client.wait(for: path, toBe: "suspended")
            apps[path] = app
            return path
        }

        /// An application that stays in the background.
        func background(_ name: String, _ options: String = ",suspension=s:manual") throws -> String {
            let app = try App(daemon.bus)
            try limit.take(app.pid)
            try app.ask("allocate \(PressureTests.each)")
            let path = try app.register(
                "org.example.\(name)", "delegate=b:false,launch-mode=s:background" + options)
            try client.wait(for: path, toBe: "background")
            apps[path] = app
            return path
        }

        /// Makes a file that is larger than the memory that is left, and is not cached yet.
        private func makeFile() throws {
            let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            defer { close(descriptor) }
            let block = [UInt8](repeating: 7, count: 1 << 20)
            for _ in 0..<PressureTests.limit { _ = write(descriptor, block, block.count) }
            fsync(descriptor)
            posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
        }

        /// Pauses the reader, or lets it go on.
        func rest(_ isOn: Bool) { kill(reader.pid, isOn ? SIGSTOP : SIGCONT) }

        func stall() { reader.tell("read \(file)") }

        /// The application in front allocates this much more while `isWanted` holds: 4 MiB at a time, at most some
        /// 200 MiB a second.
        func grow(_ mebibytes: Int, while isWanted: () throws -> Bool = { true }) throws {
            for _ in 0..<mebibytes / PressureTests.step where try isWanted() {
                let next = ContinuousClock.now + .milliseconds(20)
                try front.ask("allocate \(PressureTests.step)")
                repeat { _ = try client.loop.runOnce(timeout: 5_000) } while ContinuousClock.now < next
                try client.settle()
            }
        }

        var level: String { levels.last ?? "normal" }
        var levels: [String] {
            client.received.filter { $0.member == "MemoryPressureChanged" }.compactMap(\.arguments.first)
        }

        /// The paths of the reclaimed applications, in the order in which they were ended.
        var reclaimed: [String] {
            client.received.filter { $0.member == "ApplicationReclaimed" }.compactMap(\.arguments.first)
        }

        func warned() throws {
            stall()
            try client.wait("a warning") { level == "warning" }
            try client.settle()
        }

        /// How an application ended; nil while it has not.
        func removal(of path: String) -> String? {
            client.received.last { $0.member == "ApplicationRemoved" && $0.arguments.first == path }?
                .arguments.last
        }

        /// How often the OOM killer killed in this cgroup.
        var kernelKills: Int {
            get throws {
                let cgroup = limit.own.cgroup
                let path =
                    cgroup.hasMemoryController
                    ? "\(cgroup.directory)/memory.events"
                    : "/sys/fs/cgroup/memory/\(cgroup.name)/memory.oom_control"
                let text = try String(contentsOfFile: path, encoding: .utf8)
                let line = text.split(separator: "\n").first { $0.hasPrefix("oom_kill ") }
                return line.flatMap { Int($0.dropFirst("oom_kill ".count)) } ?? -1
            }
        }
    }

    /// Applications that policy holds go first, the longest suspended first. Those in front or in the background stay.
    @Test(
        "after a warning, only as many suspended applications are ended as memory requires, in order",
        arguments: 0..<(ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == nil ? 1 : 20))
    func asManyAsItTakes(round: Int) throws {
        let scene = try Scene("KillWaitSec=10s\n")
        // The longest suspended is also the largest, so the weights leave no doubt about the order.
        let requested = try [36, 32, 28].map {
            try scene.suspended("Requested\($0)", byPolicy: false, mebibytes: $0)
        }
        let held = try [32, 28].map { try scene.suspended("Held\($0)", byPolicy: true, mebibytes: $0) }
        let background = try scene.background("Background")
        try scene.warned()
        #expect(scene.client.signals(of: scene.frontPath).contains { $0.member == "DidReceiveMemoryWarning" })
        #expect(scene.client.signals(of: background).contains { $0.member == "DidReceiveMemoryWarning" })
        for path in requested + held {
            #expect(!scene.client.signals(of: path).contains { $0.member == "DidReceiveMemoryWarning" })
        }
        #expect(scene.reclaimed == [])

        // Of the 400 MiB, the suspended applications have 156 and the one in the background 30, so 214 are left.
        // Another 230 are wanted, with 60 to spare. Ending 32, 28 and 36 brings 80 back; ending two of them would not
        // be enough.
        let order = held + requested
        try scene.grow(230)
        try scene.client.wait("relief") { scene.levels.contains("critical") && scene.level != "critical" }
        let bytes = scene.client.received.filter { $0.member == "ApplicationReclaimed" }
            .compactMap { $0.arguments.dropLast().last.flatMap { UInt64($0) } }
        #expect(scene.reclaimed == Array(order.prefix(3)))
        #expect(bytes.count == 3 && bytes.allSatisfy { $0 > 28 << 20 }, "\(bytes)")
        for path in order.prefix(3) { #expect(try scene.client.waitForRemoval(of: path) == "reclaimed") }
        #expect(scene.levels.prefix(2) == ["warning", "critical"])
        #expect(try scene.kernelKills == 0)
        #expect(try scene.client.state(scene.frontPath) == "active")
        #expect(try scene.client.state(background) == "background")
        for path in order.dropFirst(3) { #expect(try scene.client.state(path) == "suspended") }
    }

    @Test(
        "a daemon killed while it reclaims leaves applications as announced, and none ending for ever",
        arguments: 0..<(ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == nil ? 3 : 30))
    func killed(round: Int) throws {
        let scene = try Scene()
        let paths = try (0..<4).map { try scene.suspended("A\($0)", byPolicy: $0 % 2 == 0) }
        try scene.warned()
        try scene.grow(400) { scene.level != "critical" }
        // The random moment is the point of this test, so it waits for nothing.
        var moment = timespec(tv_sec: 0, tv_nsec: Int.random(in: 0..<20_000_000))
        nanosleep(&moment, nil)
        try scene.daemon.end(SIGKILL)
        scene.rest(true)
        try scene.front.ask("release")
        try scene.daemon.start()
        var wrong: [String] = []
        func isAsAnnounced() throws -> Bool {
            let rows = try scene.client.list()
            wrong = try paths.flatMap { path -> [String] in
                guard let app = scene.apps[path] else { return [] }
                let state = try? Proc().stat(app.pid).state
                let row = rows.first { $0.hasPrefix(path + " ") }
                if state == nil || state == .zombie || state == .dead {
                    return row.map { ["\($0) is not there any more"] } ?? []
                }
                guard row?.hasSuffix(" suspended") == true else { return ["\(row ?? path) lives"] }
                let isEnding = try scene.client.explain(path)["terminating"] == .bool(true)
                let holds = try scene.client.holds(path)
                let isRight = try !isEnding && !holds.isEmpty && isStopped(app.pid)
                return isRight
                    ? [] : ["\(path): \(state.map { "\($0)" } ?? ""), \(holds), ending: \(isEnding)"]
            }
            return wrong.isEmpty
        }
        do {
            try scene.client.wait("every application to be as announced") { (try? isAsAnnounced()) == true }
        } catch {
            Issue.record("\(wrong)")
        }
        #expect(try scene.client.state(scene.frontPath) == "active")
        #expect(try scene.kernelKills == 0)
    }

    @Test(
        "an application that the OOM killer ends is removed with the reason out-of-memory",
        .enabled(if: getuid() == 0, "needs root"))
    func chosenByTheKernel() throws {
        let scene = try Scene("CriticalAvailable=1\n")
        let path = try scene.background("Eater")
        let app = try #require(scene.apps[path])
        app.tell("allocate \(Self.limit * 2)")
        #expect(try scene.client.waitForRemoval(of: path) == "out-of-memory")
    }

    @Test("the daemon takes low-memory-monitor's name, gives it back, and leaves it to another owner")
    func lowMemoryName() throws {
        let name = "org.freedesktop.LowMemoryMonitor"
        let daemon = try TestDaemon(configuration: "[Pressure]\nLowMemoryMonitor=no\n")
        let client = try Client(daemon.bus)
        let other = try Bus.open(address: daemon.bus.address)
        try daemon.reconfigure("[Pressure]\nLowMemoryMonitor=yes\n")
        try client.wait("the name") { try client.bus.hasOwner(name) }
        try daemon.reconfigure("[Pressure]\nLowMemoryMonitor=no\n")
        try client.wait("the name to be given back") { try !client.bus.hasOwner(name) }
        try other.requestName(name)
        try daemon.reconfigure("[Pressure]\nLowMemoryMonitor=yes\n")
        try daemon.process.waitForLine(containing: "\(name) is left to another service")
        #expect(try client.bus.owner(of: name) == other.uniqueName)
    }

    @Test(
        "GLib's memory monitor gets level 50 for a warning and level 100 for critical pressure",
        .enabled(if: Scripts.haveGI, "needs python3-gi"))
    func lowMemoryMonitor() throws {
        let scene = try Scene()
        let script = try Scripts.start("memory_monitor.py", on: scene.daemon.bus)
        try script.waitForLine(containing: "monitor GMemoryMonitorDBus")
        // GLib asks for the name, and for signals, in a thread of its own.
        try scene.client.wait("the monitor") {
            try scene.client.bus.hasOwner("org.freedesktop.LowMemoryMonitor")
        }
        try scene.suspended("A", byPolicy: false)
        try scene.warned()
        try script.waitForLine(containing: "level 50")
        try scene.grow(400) { scene.reclaimed == [] }
        try script.waitForLine(containing: "level 100")
        #expect(script.errors == "")
    }
}
