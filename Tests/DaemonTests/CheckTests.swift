import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Checks of an application that has a lot of files open, while others contest locks. No other client waits for these.
@Suite(
    "Checks of processes",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: access(Scripts.python, X_OK) == 0, "needs python3"))
struct CheckTests {
    /// An application with open files, and strangers that wait for each other's file locks.
    private struct Scene {
        let daemon: TestDaemon
        let client: Client
        let strangers: Child
        let app: Child
        let path: String

        init(
            files: Int, processes: Int = 1, contests: Int, configuration: String = "",
            options: [(String, Variant)] = []
        ) throws {
            daemon = try TestDaemon(configuration: configuration)
            client = try daemon.subscriber()
            strangers = try Child(
                Scripts.python,
                [
                    "-c",
                    """
                    import fcntl, sys, threading, time
                    def name(i): return '\(daemon.bus.directory)/contest-%d' % i
                    held = [open(name(i), 'w') for i in range(\(contests))]
                    for f in held: fcntl.flock(f, fcntl.LOCK_EX)
                    for i in range(\(contests)):
                        f = open(name(i), 'w')
                        threading.Thread(target=fcntl.flock, args=(f, fcntl.LOCK_EX), daemon=True).start()
                    while open('/proc/locks').read().count('-> FLOCK') < \(contests): time.sleep(0.01)
                    print('contested', flush=True)
                    while True: time.sleep(1000)
                    """,
                ])
            app = try Child(
                Scripts.python,
                [
                    "-c",
                    """
                    import ctypes, os, signal, time
                    held = [os.open('/dev/null', os.O_RDONLY) for _ in range(\(files))]
                    children = []
                    for _ in range(\(processes - 1)):
                        children.append(os.fork())
                        if children[-1] == 0:
                            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
                            while True: time.sleep(1000)
                    def end(*_):
                        for child in children: os.kill(child, signal.SIGKILL)
                    signal.signal(signal.SIGUSR1, end)
                    print('open', flush=True)
                    while True: time.sleep(1000)
                    """,
                ])
            try strangers.waitForLine(containing: "contested")
            try app.waitForLine(containing: "open")
            path = try client.register("org.example.Hoarder", app.pid, options)
        }

        func replies(to calls: [Client.QueuedCall], _ meanwhile: () -> Void = {}) throws -> [Client.Reply] {
            try client.replies(to: calls, of: path, from: daemon, meanwhile)
        }
    }

    private static let property = ("Get", BusNames.properties, [BusNames.application, "State"])

    @Test(
        "a property that is read after ListObjections and Explain is answered before them",
        arguments: ["ListObjections", "Explain"])
    func order(member: String) throws {
        let scene = try Scene(files: 900, processes: 2, contests: 50)
        let replies = try scene.replies(to: [(member, BusNames.application, []), Self.property])
        #expect(replies.map(\.name) == ["Get", member])
        #expect(replies.map(\.error) == ["", ""])
    }

    @Test("an application that ends during a check gives NoSuchApplication")
    func ended() throws {
        let scene = try Scene(files: 900, contests: 20)
        let replies = try scene.replies(to: [("ListObjections", BusNames.application, [])]) {
            scene.app.kill(SIGKILL)
            // On a busy machine it ends later, when the check may be over.
            var info = siginfo_t()
            waitid(P_PID, id_t(scene.app.pid), &info, WEXITED | WNOWAIT)
        }
        #expect(replies.map(\.error) == [ErrorName.noSuchApplication.rawValue])
    }

    @Test(
        "policy does not suspend an application while a debugger is attached to any of its processes",
        .enabled(if: Programs.inPath("strace") != nil, "needs strace, to be the debugger"))
    func debugger() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=1h\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let child = try app.make("fork")
        let path = try app.register("org.example.Actor", "launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let tracer = try Child("strace", ["-p", "\(child)"])
        try tracer.waitForLine(containing: "attached")
        let why = "a debugger (pid \(tracer.pid)) is attached"
        #expect(try client.listObjections(path) == [why])
        let told = try app.last("DidEnterBackground", of: path)
        app.tell("call \(path) \(BusNames.application) Acknowledge t:\(try #require(told.first))")
        try client.wait("the objection") {
            try client.explain(path)["last-objection"] == .string(why)
        }
        #expect(try client.holds(path) == [])
        #expect(try !isStopped(app.pid))
    }

    @Test("of focus, Resume and Suspend during a check, the last one decides the state")
    func meanwhile() throws {
        let scene = try Scene(
            files: 900, contests: 20, configuration: "[LifeCycle]\nBackgroundGraceSec=0\n",
            options: [("suspension", .string("automatic"))])
        let (client, path, pid) = (scene.client, scene.path, scene.app.pid)
        for _ in 0..<20 {
            try client.setFocus(pid)
            try client.setMinimized(pid, true)
            try client.application(path, "Resume")
            try client.application(path, "Suspend")
            try client.wait("the stop") { try isStopped(pid) }
            try client.application(path, "Resume")
            // A client that only makes calls answers no ping, and is sent no more signals after some hundred.
            try client.settle()
        }
        try client.setFocus(pid)
        #expect(try client.state(path) == "active")
        // The answer came after the signals of everything before it, so none of them is mistaken for a later one.
        try client.settle()
        #expect(try !isStopped(pid))
        #expect(try client.holds(path) == [])
        try client.setMinimized(pid, true)
        try client.wait(for: path, toBe: "suspended")
        #expect(try client.holds(path) == ["policy appstated"])
        #expect(try isStopped(pid))
    }

    @Test("a daemon that ends in good order during a check leaves nothing stopped")
    func end() throws {
        let scene = try Scene(
            files: 900, contests: 20, configuration: "[LifeCycle]\nBackgroundGraceSec=0\n",
            options: [("suspension", .string("automatic"))])
        // The daemon is killed in between. The next one takes over what is stopped, with its hold, and ends in good
        // order.
        for _ in 0..<5 {
            try scene.client.setFocus(scene.app.pid)
            try scene.client.setMinimized(scene.app.pid, true)
            try scene.daemon.end(SIGKILL)
            try scene.daemon.start()
        }
        try scene.daemon.end(SIGTERM)
        #expect(try !isStopped(scene.app.pid))
    }
}
