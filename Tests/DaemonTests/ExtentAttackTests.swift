import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Processes of other users in an application's cgroup, before a freeze or after the first. Its own processes are stopped by
/// signal, and no other process is touched.
@Suite(
    "Attacks on the extent", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct ExtentAttackTests {
    /// Freezes and thaws it once.
    private static func judge(_ home: TestCgroup, _ client: Client, _ path: String) throws {
        try client.application(path, "Suspend")
        #expect(try home.cgroup.isFrozen())
        try client.application(path, "Resume")
        #expect(try !home.cgroup.isFrozen())
        try client.catchUp()
    }

    /// Checks that `Suspend` stops `own` but not `others`, without the freezer, and that `Resume` undoes it.
    private func expectSignals(
        _ client: Client, _ path: String, _ cgroup: Cgroup, to own: [Int32], not others: [Int32],
        _ location: SourceLocation = #_sourceLocation
    ) throws {
        try client.application(path, "Suspend")
        #expect(try !cgroup.wantsFrozen(), sourceLocation: location)
        for pid in own { #expect(try isStopped(pid), sourceLocation: location) }
        for pid in others { #expect(try !isStopped(pid), sourceLocation: location) }
        #expect(try client.state(path) == "suspended", sourceLocation: location)
        try client.application(path, "Resume")
        for pid in own + others { #expect(try !isStopped(pid), sourceLocation: location) }
    }

    // MARK: Another user's process

    @Test(
        "another user's child in the cgroup is not stopped; the others are, by signal, and Explain says so",
        .enabled(if: TestDaemon.canBeOthers, "needs root and setpriv"))
    func foreignChild() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let home = try TestCgroup("app-test")
        let (shell, gate) = try gatedShell(
            "sleep 1000 & echo own $!; setpriv --reuid=\(App.nobody) --clear-groups "
                + "sh -c 'echo child $$; exec sleep 1000' & wait", in: home)
        close(gate.takeWrite())
        let own = try number(after: "own", of: shell)
        let child = try number(after: "child", of: shell)
        let path = try client.register("org.example.Editor", shell.pid)
        try expectSignals(client, path, home.cgroup, to: [shell.pid, own], not: [child])
        guard case .strings(let failures)? = try client.explain(path)["stop-failures"] else {
            Issue.record("Explain has no stop-failures")
            return
        }
        #expect(failures.contains { $0.contains("\(child)") })
    }

    @Test(
        "a set-user-ID program that is executed after the first freeze is never stopped",
        .enabled(if: TestDaemon.canBeOthers && SetUserID.isPossible, "needs root and a /tmp without nosuid"),
        arguments: ["by a new child", "by a child that was there"])
    func setUserID(_ how: String) throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let home = try TestCgroup("app-test", owner: App.nobody)
        let program = try SetUserID(in: daemon.bus.directory)
        let script =
            how == "by a new child"
            ? "sleep 1000 & echo own $!; echo ready; read line <&3; \(program.path) 1000 & echo child $!; wait"
            : "sleep 1000 & echo own $!; (read line <&3; exec \(program.path) 1000) & echo child $!; "
                + "echo ready; wait"
        let gate = try PipeEnds()
        let shell = try Child("sh", ["-c", script], uid: App.nobody, descriptors: [3: gate.read])
        try shell.waitForLine(containing: "ready")
        let own = try number(after: "own", of: shell)
        // These are all its processes, moved one by one.
        try home.take(shell.pid)
        try home.take(own)
        if how != "by a new child" { try home.take(try number(after: "child", of: shell)) }
        let path = try client.register("org.example.Editor", shell.pid)
        try Self.judge(home, client, path)

        close(gate.takeWrite())
        let child = try number(after: "child", of: shell)
        defer { kill(child, SIGKILL) }
        try client.wait("the program to be executed") {
            try Proc().status(child).owner.effective == 0
        }
        #expect(try Cgroup.of(child, in: home.cgroup.hierarchy, proc: Proc()) == home.cgroup)
        try expectSignals(client, path, home.cgroup, to: [shell.pid, own], not: [child])
    }

    @Test(
        "an application that changes its user is not stopped, nor are its children, and ListObjections says why",
        .enabled(if: TestDaemon.canBeOthers, "needs root"))
    func changedUser() throws {
        let scene = try CgroupScene()
        try Self.judge(scene.home, scene.client, scene.path)
        try scene.app.ask("setuid \(App.nobody)")
        var failure: BusFailure?
        do {
            try scene.client.application(scene.path, "Suspend")
        } catch let refusal as BusFailure {
            failure = refusal
        }
        let why = "Process \(scene.app.pid) does not run with the rights of user \(getuid()) alone"
        #expect(failure?.message?.hasSuffix(why) == true, "\(failure?.message ?? "")")
        #expect(try !scene.home.cgroup.wantsFrozen())
        for pid in [scene.app.pid] + scene.others { #expect(try !isStopped(pid)) }
        #expect(try scene.client.state(scene.path) == "background")
        #expect(try scene.client.holds(scene.path) == [])
        let objections = try scene.client.listObjections(scene.path)
        #expect(objections.contains { $0.contains("does not run with the rights") }, "\(objections)")
    }

    @Test(
        "appstated --release lets an application go although a child of it belongs to another user",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func releasedWithStranger() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let script = """
            import os, signal
            if os.fork() == 0:
                os.setresuid(1, 1, 1)
                print('child', os.getpid(), flush=True)
            while True: signal.pause()
            """
        // A program of the user nobody that may become another user.
        let main = try Child(
            "setpriv",
            [
                "--reuid=\(App.nobody)", "--clear-groups", "--inh-caps=+setuid", "--ambient-caps=+setuid",
                "--", "/usr/bin/python3", "-c", script,
            ])
        let line = try main.waitForLine(containing: "child ")
        let child = try #require(Int32(line.split(separator: " ").last ?? ""))
        defer { kill(child, SIGKILL) }
        let path = try client.register("org.example.Tool", main.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(main.pid))
        #expect(try !isStopped(child))
        try daemon.end(SIGKILL)
        kill(child, SIGSTOP)
        try waitUntilStopped(child)
        let release = try daemon.release()
        #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
        #expect(try !isStopped(main.pid))
        #expect(try isStopped(child))
        try daemon.start()
        #expect(try client.holds(path) == [])
    }

    // MARK: Means

    /// Starts a shell in the cgroup, whose children start there. Descriptor 3 is the gate, which we hold open.
    private func gatedShell(_ script: String, in home: TestCgroup) throws -> (shell: Child, gate: PipeEnds) {
        let start = try PipeEnds()
        let gate = try PipeEnds()
        let shell = try Child(
            "sh", ["-c", "read line; " + script], descriptors: [STDIN_FILENO: start.read, 3: gate.read])
        try home.take(shell.pid)
        close(start.takeWrite())
        return (shell, gate)
    }

    private func number(after word: String, of shell: Child) throws -> Int32 {
        let line = try shell.waitForLine(containing: word + " ")
        return try #require(line.split(separator: " ").last.flatMap { Int32($0) })
    }
}

/// A copy of sleep(1) that runs as root, whoever executes it.
private struct SetUserID {
    let path: String

    /// Whether set-user-ID programs work where our buses have their directories.
    static let isPossible: Bool = {
        var file = statvfs()
        return statvfs(NSTemporaryDirectory(), &file) == 0 && file.f_flag & UInt(ST_NOSUID) == 0
    }()

    init(in directory: String) throws {
        path = directory + "/sleep-as-root"
        guard let sleep = Programs.inPath("sleep") else { throw TestFailure("no sleep") }
        try Programs.copy(sleep, to: path)
        guard chmod(path, 0o4755) == 0 else { throw TestFailure("chmod \(path): \(errno)") }
    }
}
