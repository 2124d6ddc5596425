import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Suspend, Resume and CanSuspend, as a user calls them.
@Suite("Suspension on request", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct SuspendTests {
    @Test("Suspend answers when the application is suspended, Resume when it runs again")
    func suspendAndResume() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.settle()
        client.forget()

        try client.application(path, "Suspend")
        #expect(try isStopped(child.pid))
        #expect(try client.state(path) == "suspended")
        try client.settle()
        #expect(client.edges(of: path) == ["background→suspended"])
        #expect(client.reasons(of: path) == ["request"])
        #expect(try client.holds(path) == ["request uid:\(getuid())"])

        client.forget()
        try client.application(path, "Resume")
        #expect(try !isStopped(child.pid))
        #expect(try client.state(path) == "background")
        try client.settle()
        #expect(client.edges(of: path) == ["suspended→background"])
        #expect(client.reasons(of: path) == ["request"])
        #expect(try client.holds(path) == [])
    }

    @Test("a walk sends one PropertiesChanged, after its edges, with all that changed")
    func coalesced() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.setFocus(child.pid)
        try client.wait(for: path, toBe: "active")
        try client.settle()
        client.forget()
        // A stop by signal completes a moment later, so only the way back is one walk.
        try client.application(path, "Suspend")
        try client.settle()
        client.forget()
        try client.application(path, "Resume")
        try client.settle()
        #expect(
            client.received.filter { $0.path == path }.map(\.member) == [
                "StateChanged", "WillEnterForeground", "StateChanged", "StateChanged", "DidBecomeActive",
                "PropertiesChanged",
            ])
    }

    @Test("a request suspends a focused application, which has the focus again afterwards")
    func suspendActive() throws {
        let stage = try Stage()
        #expect(try stage.client.canSuspend(stage.path) == ["has the focus"])
        try stage.client.application(stage.path, "Suspend")
        try stage.client.settle()
        #expect(
            stage.client.story(of: stage.path) == [
                "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
                "background→suspended",
            ])
        #expect(try stage.client.property(stage.path, "Focused") == .bool(true))
        stage.client.forget()
        // Focus lifts a hold of policy, never a user's request.
        try stage.client.setFocus(stage.process.pid)
        #expect(try stage.client.state(stage.path) == "suspended")
        try stage.client.application(stage.path, "Resume")
        try stage.client.settle()
        #expect(
            stage.client.story(of: stage.path) == [
                "suspended→background", "WillEnterForeground", "background→inactive", "inactive→active",
                "DidBecomeActive",
            ])
    }

    @Test("a second Suspend changes nothing, and one Resume lifts the hold")
    func suspendTwice() throws {
        let stage = try Stage()
        try stage.client.application(stage.path, "Suspend")
        try stage.client.settle()
        stage.client.forget()
        let before = try stage.client.picture()
        // From another connection, because the hold belongs to the user.
        try stage.daemon.client().application(stage.path, "Suspend")
        try stage.client.settle()
        #expect(stage.client.received == [])
        #expect(try stage.client.picture() == before)
        try stage.daemon.client().application(stage.path, "Resume")
        #expect(try stage.client.state(stage.path) == "active")
    }

    @Test("Resume of a running application changes nothing")
    func resumeRunning() throws {
        let stage = try Stage()
        let before = try stage.client.picture()
        try stage.client.application(stage.path, "Resume")
        try stage.client.settle()
        #expect(stage.client.received == [])
        #expect(try stage.client.picture() == before)
    }

    @Test("Resume continues an application that another process stopped")
    func resumeForeign() throws {
        let stage = try Stage()
        stage.process.kill(SIGSTOP)
        try stage.client.wait(for: stage.path, toBe: "suspended")
        try stage.client.application(stage.path, "Resume")
        #expect(try !isStopped(stage.process.pid))
        #expect(try stage.client.state(stage.path) == "active")
        #expect(try stage.client.holds(stage.path) == [])
    }

    @Test("focus does not continue an application that another process stopped")
    func focusOfForeign() throws {
        let stage = try Stage()
        stage.process.kill(SIGSTOP)
        try stage.client.wait(for: stage.path, toBe: "suspended")
        try stage.client.setFocus(0)
        try stage.client.setFocus(stage.process.pid)
        #expect(try stage.client.state(stage.path) == "suspended")
        #expect(try isStopped(stage.process.pid))
    }

    @Test("a request on top of another process's stop makes two holds, and Resume lifts both")
    func requestOnForeign() throws {
        let stage = try Stage()
        stage.process.kill(SIGSTOP)
        try stage.client.wait(for: stage.path, toBe: "suspended")
        try stage.client.application(stage.path, "Suspend")
        let holds = try stage.client.holds(stage.path)
        #expect(holds.first == "request uid:\(getuid())")
        #expect(holds.last?.hasPrefix("signal ") == true)
        try stage.client.application(stage.path, "Resume")
        #expect(try !isStopped(stage.process.pid))
        #expect(try stage.client.holds(stage.path) == [])
    }

    @Test("another process's stop that was not seen outlasts the daemon's own hold, until a user resumes it")
    func unseen() throws {
        let daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n",
            withoutCapabilities: ["perfmon", "sys_admin"])
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Editor", child.pid,
            [("suspension", .string("automatic")), ("launch-mode", .string("foreground"))])
        try client.updateWindow(1, child.pid, [])
        // No signal is reported to the daemon, which looks at the process too late.
        daemon.process.kill(SIGSTOP)
        daemon.process.waitUntilStopped()
        child.kill(SIGSTOP)
        let report = try client.bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: BusNames.reporter,
            member: "UpdateWindow")
        try report.append(UInt64(1))
        try report.append(UInt32(child.pid))
        try report.appendDictionary([("minimized", .bool(true))])
        try client.bus.send(report)
        daemon.process.kill(SIGCONT)
        try client.wait("the stop") { try client.holds(path).contains { $0.hasPrefix("signal ") } }
        try client.updateWindow(1, child.pid, [("minimized", .bool(false))])
        try client.wait("the policy's hold to end") { try client.holds(path).count == 1 }
        #expect(try client.state(path) == "suspended")
        #expect(try isStopped(child.pid))
        try client.application(path, "Resume")
        #expect(try !isStopped(child.pid))
        #expect(try client.state(path) == "inactive")
    }

    @Test("a foreign SIGCONT does not lift a request: the process is stopped again")
    func foreignContinue() throws {
        let stage = try Stage()
        try stage.client.application(stage.path, "Suspend")
        try stage.client.settle()
        stage.client.forget()
        stage.process.kill(SIGCONT)
        try stage.client.wait(for: stage.path, toBe: "suspended")
        #expect(stage.client.edges(of: stage.path).first == "suspended→background")
        #expect(try isStopped(stage.process.pid))
        #expect(try stage.client.holds(stage.path) == ["request uid:\(getuid())"])
    }

    @Test(
        "the holds of an application that is continued again and again are given up, and that is logged",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func contested() throws {
        let stage = try Stage()
        try stage.client.application(stage.path, "Suspend")
        var attempts = 0
        while try !stage.client.holds(stage.path).isEmpty {
            attempts += 1
            guard attempts < 1_000 else {
                Issue.record("the hold is never given up")
                return
            }
            stage.client.forget()
            stage.process.kill(SIGCONT)
            try stage.client.wait("an answer to SIGCONT") {
                let last = stage.client.edges(of: stage.path).last
                return last == "background→suspended" || last == "inactive→active"
            }
        }
        #expect(attempts > 5)
        try stage.client.wait(for: stage.path, toBe: "active")
        try stage.daemon.process.waitForLine(containing: "holds given up")
    }

    @Test(
        "a stop that does not take effect does not keep the caller waiting, and the hold remains",
        .enabled(if: Programs.inPath("strace") != nil, "needs strace, to keep a stop from coming about"))
    func neverStopped() throws {
        let stage = try Stage()
        let tracer = try Child("strace", ["-p", "\(stage.process.pid)"])
        try tracer.waitForLine(containing: "attached")
        // A tracer has to pass the signals on, and this one cannot now.
        tracer.kill(SIGSTOP)
        tracer.waitUntilStopped()
        try stage.client.call(stage.path, BusNames.application, "Suspend")
        #expect(try stage.client.holds(stage.path) == ["request uid:\(getuid())"])
        #expect(try stage.client.state(stage.path) == "active")
        #expect(try stage.client.explain(stage.path)["enforcement"] == .string("stopping"))
        tracer.kill(SIGKILL)
        try stage.client.wait(for: stage.path, toBe: "suspended")
        #expect(stage.client.reasons(of: stage.path).last == "request")
    }

    @Test("CanSuspend names the objections, and none for an application that rests in the background")
    func canSuspend() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
        #expect(try client.canSuspend(path) == ["has a visible window", "is launching"])
        try app.application(path, "FinishLaunching")
        #expect(try client.canSuspend(path) == ["has a visible window"])
        try client.setMinimized(app.pid, true)
        #expect(try client.canSuspend(path) == [])
        let task = try app.application(path, "BeginBackgroundTask s:upload")
        #expect(try client.canSuspend(path) == ["background task upload"])
        try app.application(path, "EndBackgroundTask t:\(task)")
        #expect(try client.canSuspend(path) == [])
        let child = try Child("sleep", ["1000"])
        let never = try client.register("org.example.Server", child.pid, [("suspension", .string("never"))])
        #expect(try client.canSuspend(never) == ["suspension is never"])
        // `never` binds policy only; a user's request is obeyed.
        try client.application(never, "Suspend")
        #expect(try client.state(never) == "suspended")
    }

    @Test("Unregister continues what the daemon suspended, and leaves what another process stopped")
    func unregister() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let ours = try Child("sleep", ["1000"])
        let theirs = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Ours", ours.pid)
        let other = try client.register("org.example.Theirs", theirs.pid)
        try client.application(path, "Suspend")
        theirs.kill(SIGSTOP)
        try client.wait(for: other, toBe: "suspended")
        try client.application(other, "Suspend")
        client.forget()

        try client.application(path, "Unregister")
        #expect(try !isStopped(ours.pid))
        try client.application(other, "Unregister")
        #expect(try isStopped(theirs.pid))
        try client.settle()
        let removals = client.received.filter { $0.member == "ApplicationRemoved" }
        #expect(removals.compactMap(\.arguments.last) == ["unregistered", "unregistered"])
        // The processes live on, so no edge is announced.
        #expect(client.edges(of: path) + client.edges(of: other) == [])
        #expect(try client.list() == [])
    }

    @Test(
        "an application whose process has changed its user is NotSuspendable and left alone",
        .enabled(if: TestDaemon.canBeOthers, "needs root and setpriv"))
    func changedUser() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let script = daemon.bus.directory + "/changed"
        try "echo changed; exec sleep 1000\n".write(toFile: script, atomically: true, encoding: .utf8)
        app.tell("exec setpriv --reuid=\(App.nobody) --clear-groups -- sh \(script)")
        try app.process.waitForLine(containing: "changed")
        #expect(client.error { try client.application(path, "Suspend") } == ErrorName.notSuspendable.rawValue)
        #expect(try !isStopped(app.pid))
        #expect(try client.holds(path) == [])
        #expect(try client.explain(path)["stop-failures"] != nil)
        #expect(try client.state(path) == "inactive")
    }
}
