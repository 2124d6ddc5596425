import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// The daemon may die, and the next one continues its work.
@Suite(
    "Restoration", .enabled(if: App.isAvailable, "needs dbus-daemon, appstated and AppActor"))
struct RestorationTests {
    /// What a client can see of all applications, except what is counted from the daemon's start.
    private func picture(_ client: Client) throws -> [String] {
        try client.list().flatMap { row -> [String] in
            let path = String(row.prefix { $0 != " " })
            let names = [
                "State", "StateTimestamp", "StateTimestampMonotonic", "RegisteredTimestamp",
                "RegisteredTimestampMonotonic", "Focused", "Minimized", "Suspension",
                "Reclaimable", "BackgroundModes", "SuspendHolds", "BackgroundTasks", "LaunchOptions",
            ]
            return try [row] + names.map { "\(row) \($0)=\(try client.property(path, $0).texts ?? [])" }
        }
    }

    @Test("the next daemon's first answer reflects what was released meanwhile")
    func knownAtOnce() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let children = try (0..<200).map { _ in try Child("sleep", ["1000"]) }
        for child in children {
            try client.application(client.register("org.example.Held", child.pid), "Suspend")
        }
        try daemon.end(SIGKILL)
        let release = try daemon.release()
        #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
        try daemon.start()
        #expect(try client.list().filter { $0.contains("suspended") } == [])
    }

    @Test(
        "after a kill -9 or a restart of the daemon, applications have the same paths, states and holds",
        arguments: [SIGKILL, SIGUSR1])
    func killed(_ signal: Int32) throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundTaskMaxSec=infinity\n")
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let launched = try app.register("org.example.Actor", "suspension=s:manual")
        try app.application(launched, "FinishLaunching")
        try app.application(launched, "BeginBackgroundTask s:upload")
        let kinds = ["active", "inactive", "minimized", "suspended", "stopped", "plain"]
        var paths: [String: String] = [:]
        var children: [String: Child] = [:]
        for kind in kinds {
            let child = try Child("sleep", ["1000"])
            children[kind] = child
            paths[kind] = try client.register(
                "org.example.\(kind)", child.pid,
                [("launch-options", .dictionary(["why": .string("a\nb"), "n": .uint32(7)]))])
        }
        let pid = { (kind: String) in children[kind]?.pid ?? 0 }
        let reporter = try daemon.client()
        try reporter.updateWindow(1, pid("inactive"), [("title", .string("A title\twith all\nthat"))])
        try reporter.updateWindow(2, pid("minimized"), [("minimized", .bool(true))])
        try client.setFocus(pid("active"))
        try client.application(paths["suspended"] ?? "", "Suspend")
        kill(pid("stopped"), SIGSTOP)
        try client.wait("the stop") { try client.state(paths["stopped"] ?? "") == "suspended" }

        let before = try picture(client)
        try daemon.end(signal)
        #expect(try isStopped(pid("suspended")))
        try daemon.start()
        let after = try picture(client)
        #expect(after.filter { !before.contains($0) } == [])
        #expect(before.filter { !after.contains($0) } == [])
        #expect(try isStopped(pid("suspended")))

        // The restored applications still react to requests, signals and reports.
        let subscriber = try daemon.subscriber()
        try client.application(paths["suspended"] ?? "", "Resume")
        #expect(try !isStopped(pid("suspended")))
        kill(pid("stopped"), SIGCONT)
        try subscriber.wait(for: paths["stopped"] ?? "", toBe: "background")
        try client.setFocus(app.pid)
        #expect(try app.last("DidBecomeActive", of: launched) == [])
        let next = try Child("sleep", ["1000"])
        #expect(try client.register("org.example.Next", next.pid) == BusNames.path(ofApplication: 8))
    }

    @Test(
        "an application that ends while no daemon runs is removed, and its cgroup is thawed",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func endedMeanwhile() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        try scene.daemon.end(SIGKILL)
        let process = try PidFD(pid: scene.app.pid)
        kill(scene.app.pid, SIGKILL)
        let hasEnded = waitForEnd(of: process)
        #expect(hasEnded)
        #expect(try scene.cgroup.wantsFrozen())
        try scene.daemon.start()
        #expect(try scene.client.list() == [])
        #expect(try !scene.cgroup.wantsFrozen())
        #expect(try files(scene.daemon) == [])
    }

    @Test("the next daemon detects a stop or SIGCONT from the time when no daemon ran")
    func stoppedMeanwhile() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let ours = try Child("sleep", ["1000"])
        let theirs = try Child("sleep", ["1000"])
        let held = try client.register("org.example.Held", ours.pid)
        let free = try client.register("org.example.Free", theirs.pid)
        try client.application(held, "Suspend")
        try daemon.end(SIGKILL)
        kill(ours.pid, SIGCONT)
        kill(theirs.pid, SIGSTOP)
        try daemon.start()
        try client.wait("the hold to be enforced again") { try isStopped(ours.pid) }
        try client.wait("the stop to be seen") { try client.state(free) == "suspended" }
        try client.wait("the hold to be seen") { try client.state(held) == "suspended" }
        #expect(try client.holds(held) == ["request uid:\(getuid())"])
        #expect(try client.holds(free).first?.hasPrefix("signal") == true)
    }

    @Test(
        "a foreign stop beneath the daemon's own is over if it was undone while no daemon ran",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func continuedMeanwhile() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Held", process.pid)
        try client.application(path, "Suspend")
        // Signals elsewhere on the machine may fill the trace, which then loses this one.
        try client.wait("the other stop to be seen") {
            kill(process.pid, SIGSTOP)
            return try client.holds(path).count == 2
        }
        try daemon.end(SIGKILL)
        kill(process.pid, SIGCONT)
        try daemon.start()
        try client.wait("the hold to be enforced again") { try isStopped(process.pid) }
        #expect(try client.holds(path) == ["request uid:\(getuid())"])
        try client.application(path, "Resume")
        #expect(try !isStopped(process.pid))
    }

    @Test("a daemon that ends in good order resumes what it suspended, and nothing else")
    func orderly() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let ours = try Child("sleep", ["1000"])
        let theirs = try Child("sleep", ["1000"])
        let held = try client.register("org.example.Held", ours.pid)
        let foreign = try client.register("org.example.Foreign", theirs.pid)
        try client.application(held, "Suspend")
        theirs.kill(SIGSTOP)
        try client.wait(for: foreign, toBe: "suspended")
        try client.application(foreign, "Suspend")
        client.forget()
        try daemon.end(SIGTERM)
        #expect(try !isStopped(ours.pid))
        #expect(try isStopped(theirs.pid))
        // Its last signals were correct.
        try client.wait(for: held, toBe: "background")
        #expect(client.edges(of: foreign) == [])
        try daemon.start()
        #expect(try client.state(held) == "background")
        #expect(try client.state(foreign) == "suspended")
        #expect(try client.holds(held) == [])
        #expect(try client.holds(foreign).allSatisfy { $0.hasPrefix("signal") })
    }

    @Test(
        "a damaged record is reported, its processes are continued, and the others are restored",
        arguments: ["truncated", "garbled", "wrong number", "wrong value"])
    func damaged(_ how: String) throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let children = try (0..<3).map { _ in try Child("sleep", ["1000"]) }
        let paths = try children.map { try client.register("org.example.App", $0.pid) }
        for path in paths { try client.application(path, "Suspend") }
        try daemon.end(SIGKILL)
        let file = daemon.runtimeDirectory + "/applications/2"
        let bytes = try WholeFile.read(file)
        switch how {
        case "truncated": try WholeFile.write(Array(bytes.prefix(bytes.count * 4 / 5)), to: file)
        case "garbled":
            let line = Array("id=\u{FF}".utf8.prefix(4)) + [UInt8(ascii: "\n")]
            try WholeFile.write(line + bytes, to: file)
        case "wrong number": try daemon.rewrite(paths[1]) { $0 == "number=2" ? "number=1" : $0 }
        default: try daemon.rewrite(paths[1]) { $0 == "state=suspended" ? "state=asleep" : $0 }
        }
        try daemon.start()
        try daemon.process.waitForLine(
            containing: "application 2 of the previous daemon cannot be taken over")
        #expect(try client.list().map { $0.prefix { $0 != " " } } == [paths[0][...], paths[2][...]])
        #expect(try isStopped(children[0].pid) && isStopped(children[2].pid))
        #expect(try !isStopped(children[1].pid))
        #expect(try files(daemon) == ["1", "3"])
    }

    @Test("deadlines survive a restart of the daemon, to the microsecond")
    func deadlines() throws {
        let daemon = try TestDaemon(
            configuration:
                "[LifeCycle]\nBackgroundGraceSec=4h\nTerminateGraceSec=1h\nBackgroundTaskMaxSec=2h\nLaunchTimeoutSec=3h\n"
        )
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "BeginBackgroundTask s:upload")
        let child = try Child("sleep", ["1000"])
        let ending = try client.register(
            "org.example.Ending", child.pid, [("suspension", .string("automatic"))])
        // It is asked before it is ended, and does not answer.
        let other = try App(daemon.bus)
        let asked = try other.register()
        try other.application(asked, "FinishLaunching")
        try client.terminate(asked)
        func deadlines() throws -> [Variant?] {
            let names = ["launch-deadline", "suspension-deadline", "kill-deadline", "tasks"]
            return try [path, ending, asked].flatMap { path in
                let explained = try client.explain(path)
                return names.map { explained[$0] }
            }
        }
        let before = try deadlines()
        #expect(before.compactMap { $0 }.count == 6)
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try deadlines() == before)
    }

    @Test("a deadline that passes while no daemon runs has passed for the next daemon")
    func deadlinePassed() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nTerminateGraceSec=1h\n")
        let client = try daemon.client()
        let child = try Child("sh", ["-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"])
        try child.waitForLine(containing: "ready")
        let path = try client.register("org.example.Stubborn", child.pid)
        try client.terminate(path)
        try daemon.end(SIGKILL)
        // The reason, the phase, SIGKILL. This is now due at the first microsecond.
        var hasLine = false
        try daemon.rewrite(path) { line in
            guard line.hasPrefix("termination=") else { return line }
            hasLine = true
            var fields = line.split(separator: " ")
            fields[2] = "1"
            return fields.joined(separator: " ")
        }
        #expect(hasLine)
        try daemon.start()
        #expect(try child.waitForExit() == .signalled(SIGKILL))
        try client.wait("its end") { try client.list().isEmpty }
    }

    @Test("no name that a client gave loses an application or changes in a restart of the daemon")
    func names() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundTaskMaxSec=infinity\n")
        let client = try daemon.client()
        let texts = [
            "", " ", "a b", "\n", "\r\n", "\t", "\\", "\\n", "%20", "=", "\u{301}", "\\\u{301}", "=\u{301}",
            "%\u{301}",
            "\u{200D}", "\\\u{200D}", "\u{2028}", String(repeating: "x", count: 1_000),
        ]
        var children: [Child] = []
        for text in texts {
            let options: [[(String, Variant)]] = [
                [("launch-options", .dictionary([text: .string("x")]))],
                [
                    (
                        "launch-options",
                        .dictionary(["x": .strings([text, "y"]), "y": .dictionary([text: .byte(7)])])
                    )
                ],
                [("background-modes", .strings([text, "x"]))],
            ]
            for options in options {
                let child = try Child("sleep", ["1000"])
                children.append(child)
                _ = try client.register("org.example.App", child.pid, options)
            }
        }
        let own = try client.register("org.example.Test", 0)
        for text in texts {
            try client.call(own, BusNames.application, "BeginBackgroundTask") { try $0.append(text) }
        }
        let before = try picture(client)
        #expect(try client.list().count == texts.count * 3 + 1)
        try daemon.end(SIGKILL)
        try daemon.start()
        let after = try picture(client)
        #expect(after.map { Array($0.utf8) } == before.map { Array($0.utf8) })
        try client.application(own, "Unregister")
    }

    @Test("application numbers continue with free ones after the greatest, also for the next daemon")
    func numbers() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let children = try (0..<4).map { _ in try Child("sleep", ["1000"]) }
        let first = try client.register("org.example.App", children[0].pid)
        try daemon.end(SIGKILL)
        let record = Record([Record.Line("last", String(UInt32.max - 1))])
        try WholeFile.write(RecordFile.bytes(record), to: daemon.runtimeDirectory + "/daemon")
        try daemon.start()
        #expect(
            try client.register("org.example.App", children[1].pid) == "\(BusNames.applications)/4294967295")
        try daemon.end(SIGKILL)
        try daemon.start()
        // The first application has number 1.
        #expect(first == BusNames.path(ofApplication: 1))
        #expect(try client.register("org.example.App", children[2].pid) == BusNames.path(ofApplication: 2))
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try client.register("org.example.App", children[3].pid) == BusNames.path(ofApplication: 3))
        #expect(try client.list().count == 4)
    }

    @Test("connections that left while no daemon ran are gone for the next daemon")
    func connectionsLeft() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
        try app.application(path, "FinishLaunching")
        try app.application(path, "BeginBackgroundTask s:upload")
        try daemon.end(SIGKILL)
        // Its descriptors are closed on exec, and its connection with them.
        let name = try app.ask("name")
        try app.ask("exec sleep 1000")
        try client.wait("its connection to end") { !(try client.bus.hasOwner(name)) }
        try daemon.start()
        #expect(try client.property(path, "BackgroundTasks") == .array("(tst)", []))
        #expect(try client.state(path) == "inactive")
    }

    /// Kills the daemon while it stops an application before SIGKILL. The main process and one child are stopped then;
    /// another child takes no stop while it waits in vfork(2).
    ///
    /// - Returns: the processes that are stopped, and those that were stopped before, which are more than one event
    ///   looks at. After the kill nothing tells them apart.
    private func killedWhileKilling(
        _ daemon: TestDaemon
    ) throws -> (app: App, standing: [Int32], stood: [Int32]) {
        let client = try daemon.client()
        // On a busy machine the daemon may have given up waiting before it is killed.
        for attempt in 0..<10 {
            let app = try App(daemon.bus)
            let child = try app.make("fork")
            let stood = try (0..<100).map { _ in try app.make("fork") }
            for pid in stood { kill(pid, SIGSTOP) }
            for pid in stood { try waitUntilStopped(pid) }
            let fifo = daemon.bus.directory + "/fifo-\(attempt)"
            try #require(mkfifo(fifo, 0o600) == 0)
            let successor = try app.make("descend")
            app.tell("spawn \(fifo)")
            try client.wait("the child of vfork") { try !Proc().children(of: successor).isEmpty }
            let path = try client.register("org.example.Tree\(attempt)", app.pid)
            try client.application(path, "Terminate") { try $0.append(true) }
            let standing = [app.pid, child]
            let isCaught = eventually { standing.allSatisfy { (try? isStopped($0)) ?? true } }
            try daemon.end(SIGKILL)
            if isCaught, standing.allSatisfy({ (try? isStopped($0)) == true }) {
                return (app, standing, stood)
            }
            try daemon.start()
        }
        throw TestFailure("the daemon was never killed in time")
    }

    @Test("processes that were stopped to be killed run again after --release")
    func releasedFromKill() throws {
        let daemon = try TestDaemon()
        let (app, standing, stood) = try killedWhileKilling(daemon)
        let release = try daemon.release()
        #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
        for pid in standing + stood { #expect(try !isStopped(pid)) }
        withExtendedLifetime(app) {}
    }

    @Test("the next daemon kills the processes that were stopped to be killed")
    func killedByNext() throws {
        let daemon = try TestDaemon()
        let (app, standing, stood) = try killedWhileKilling(daemon)
        try daemon.start()
        let client = try daemon.client()
        #expect(try app.process.waitForExit() == .signalled(SIGKILL))
        try client.wait("the end of all") {
            (standing + stood).allSatisfy { pid in
                guard let state = try? Proc().stat(pid).state else { return true }
                return state == .zombie || state == .dead
            }
        }
        try client.wait("no application") { try client.list() == [] }
        #expect(try files(daemon) == [])
    }

    @Test("a daemon that is started while appstated --release is under way waits until that has ended")
    func releaseUnderWay() throws {
        let daemon = try TestDaemon()
        try daemon.end(SIGTERM)
        let release = try Child(
            "flock",
            [
                "--exclusive", "--no-fork", daemon.runtimeDirectory, "sh", "-c",
                "echo locked; exec sleep 1000",
            ])
        try release.waitForLine(containing: "locked")
        try daemon.begin()
        let waits = try eventually {
            try String(contentsOfFile: "/proc/locks", encoding: .utf8).split(separator: "\n").contains {
                $0.contains("->") && $0.contains(" \(daemon.process.pid) ")
            }
        }
        #expect(waits)
        release.kill(SIGKILL)
        try daemon.waitForStart()
        #expect(try daemon.release().waitForExit() == .exited(1))
    }

    private func files(_ daemon: TestDaemon) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: daemon.runtimeDirectory + "/applications")
            .sorted()
    }
}
