import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Applications with a cgroup of their own are frozen as a whole.
@Suite(
    "Freezing", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct FreezeTests {
    @Test("Suspend freezes the cgroup, and no process gets a signal; Resume thaws it")
    func whole() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        #expect(try scene.cgroup.isFrozen() && scene.isMarked)
        #expect(try scene.noneIsStopped)
        #expect(try scene.client.state(scene.path) == "suspended")
        #expect(try scene.client.explain(scene.path)["means"] == .string("freezer"))
        try scene.client.application(scene.path, "Resume")
        #expect(try !scene.cgroup.isFrozen() && !scene.isMarked)
        try scene.app.settle()
        #expect(try scene.client.state(scene.path) == "background")
    }

    @Test("a freeze by another process is detected, is a hold of its own, and is not lifted by focus")
    func foreign() throws {
        let scene = try CgroupScene()
        try scene.cgroup.freeze()
        try scene.client.wait(for: scene.path, toBe: "suspended")
        #expect(try scene.client.holds(scene.path) == ["signal cgroup \(scene.cgroup.name)"])
        try scene.client.setFocus(scene.app.pid)
        try scene.client.settle()
        #expect(try scene.cgroup.isFrozen())
        #expect(try scene.client.state(scene.path) == "suspended")
        try scene.cgroup.thaw()
        try scene.client.wait(for: scene.path, toBe: "active")
        #expect(try scene.client.holds(scene.path) == [])
    }

    @Test("a freeze of an ancestor is not a hold, and our own freeze outlasts it")
    func ancestor() throws {
        let session = try TestCgroup("session")
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let homes = try ["app-a.scope", "app-b.scope"].map { try TestCgroup($0, below: session.cgroup) }
        let children = try homes.map { home in
            let child = try Child("sleep", ["1000"])
            try home.take(child.pid)
            return child
        }
        let paths = try children.map { try client.register("org.example.App", $0.pid) }
        try client.application(paths[0], "Suspend")
        let events = try CgroupEvents(homes[1].cgroup)
        try client.settle()
        client.forget()
        try session.cgroup.freeze()
        try client.wait("the freeze") { try events.read().isFrozen }
        // Whatever was announced about the freeze has arrived once a later call is answered.
        try client.setMinimized(children[1].pid, true)
        try client.settle()
        #expect(try client.state(paths[1]) == "background")
        #expect(try client.holds(paths[1]) == [])
        try session.cgroup.thaw()
        #expect(try homes[0].cgroup.isFrozen())
        #expect(try client.state(paths[0]) == "suspended")
        #expect(client.edges(of: paths[0]) == [])
    }

    @Test(
        "SIGSTOP to a frozen application is a hold of its own: it is stopped when it is thawed",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func stopWhileFrozen() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        scene.app.process.kill(SIGSTOP)
        let both = ["request uid:\(getuid())", "signal pid \(getpid())"]
        try scene.client.wait("the second hold") { try scene.client.holds(scene.path) == both }
        // SIGCONT lifts only that hold.
        scene.app.process.kill(SIGCONT)
        try scene.client.wait("the first hold alone") {
            try scene.client.holds(scene.path) == [both[0]]
        }
        #expect(try scene.cgroup.isFrozen())
        try scene.client.settle()
        #expect(scene.client.edges(of: scene.path).last == "background→suspended")

        scene.app.process.kill(SIGSTOP)
        try scene.client.wait("the second hold") { try scene.client.holds(scene.path) == both }
        // While the other hold remains, ours is lifted by focus if it is policy's, and by the daemon's own end if it
        // is a request.
        try scene.daemon.end(SIGTERM)
        #expect(try !scene.cgroup.wantsFrozen())
        try scene.client.wait("the stop") { try isStopped(scene.app.pid) }
    }

    @Test("a server that a frozen application started goes on, and a crash handler stays part of it")
    func server() throws {
        let unit = try UnitWithOrphan("os.setsid(); print('on', flush=True)\nwhile True: signal.pause()")
        _ = try unit.main.waitForLine(containing: "on")
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let path = try client.register("org.example.Unit", unit.main.pid)
        try client.application(path, "Suspend")
        #expect(try isStopped(unit.main.pid) && !unit.home.cgroup.wantsFrozen())
        #expect(try !isStopped(unit.orphan))
        try client.terminate(path, force: true)
        _ = try client.waitForRemoval(of: path)
        #expect(kill(unit.orphan, 0) == 0)

        let other = try UnitWithOrphan()
        let second = try client.register("org.example.Unit", other.main.pid)
        try client.application(second, "Suspend")
        #expect(try other.home.cgroup.isFrozen())
        let handler = try PidFD(pid: other.orphan)
        try client.terminate(second, force: true)
        _ = try client.waitForRemoval(of: second)
        let hasEnded = waitForEnd(of: handler)
        #expect(hasEnded)
    }

    @Test("a daemon that ends in good order thaws what it froze, and nothing else")
    func orderlyEnd() throws {
        let scene = try CgroupScene()
        let other = try TestCgroup("app-other")
        let child = try Child("sleep", ["1000"])
        try other.take(child.pid)
        let foreign = try scene.client.register("org.example.Foreign", child.pid)
        try other.cgroup.freeze()
        try scene.client.wait(for: foreign, toBe: "suspended")
        try scene.client.application(scene.path, "Suspend")
        try scene.client.application(foreign, "Suspend")
        try scene.daemon.end(SIGTERM)
        #expect(try !scene.cgroup.isFrozen())
        #expect(try other.cgroup.isFrozen())
    }
}
