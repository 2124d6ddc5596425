import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application of hundreds of processes is stopped and continued piece by piece: whatever comes between two pieces,
/// nobody stays stopped for a reason that nobody knows.
@Suite(
    "Applications of many processes",
    .enabled(
        if: App.isAvailable && access("/usr/bin/python3", X_OK) == 0,
        Comment(rawValue: TestDaemon.whatIsMissing + ", and python3")))
struct LargeApplicationTests {
    private let proc = Proc()
    private let daemon: TestDaemon
    private let client: Client
    private let child: Child
    private let all: [ProcessIdentity]
    private let path: String
    private static let count = 400

    init() throws {
        daemon = try TestDaemon()
        client = try daemon.subscriber()
        child = try Child(
            "/usr/bin/python3",
            [
                "-c",
                """
                import os, signal, sys
                for i in range(\(Self.count)):
                    if os.fork() == 0:
                        while True: signal.pause()
                print('on', flush=True)
                while True: signal.pause()
                """,
            ])
        _ = try child.waitForLine(containing: "on")
        let main = try proc.identity(of: child.pid)
        all = Extent.members(of: main, proc: proc) { _ in false }
        path = try client.register("org.example.Large", child.pid)
        try client.wait(for: path, toBe: "background")
    }

    private func end() {
        // Those who are stopped die, too.
        for process in all { kill(process.pid, SIGKILL) }
    }

    private var stopped: Int { all.count { (try? proc.isStopped($0)) == true } }

    /// Calls, and does not wait for the answer.
    private func begin(_ member: String) throws -> Child {
        try Child(
            "busctl",
            [
                "--address=\(daemon.bus.address)", "call", BusNames.service, path, BusNames.application,
                member,
            ],
            environment: daemon.bus.environment)
    }

    private func wait(_ what: String, until done: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(120)
        while try !done() {
            guard ContinuousClock.now < deadline else { throw TestFailure("\(what) did not come") }
            poll(nil, 0, 1)
        }
    }

    @Test("others are answered while it is being stopped, and all of it stands in the end")
    func others() throws {
        defer { end() }
        #expect(all.count == Self.count + 1)
        let call = try begin("Suspend")
        try wait("the first stop") { stopped > 0 }
        // The state changes when all stand: until then, each answer comes between two pieces.
        var answers = 0
        while try client.state(path) == "background" { answers += 1 }
        #expect(answers > 1)
        #expect(stopped == all.count)
        _ = try call.waitForExit()
        try client.application(path, "Resume")
        try wait("the release") { stopped == 0 }
        #expect(try client.state(path) == "background")
    }

    @Test("Resume in the middle of a stop leaves nobody stopped")
    func resumed() throws {
        defer { end() }
        for _ in 0..<3 {
            let call = try begin("Suspend")
            try wait("the first stop") { stopped > 0 }
            try client.application(path, "Resume")
            _ = try call.waitForExit()
            try wait("the release") { stopped == 0 }
            #expect(try client.holds(path) == [])
        }
    }

    @Test("a Suspend while somebody else's stop is being lifted lets nobody be forgotten")
    func lifted() throws {
        defer { end() }
        for _ in 0..<3 {
            for process in all.reversed() { kill(process.pid, SIGSTOP) }
            try client.wait(for: path, toBe: "suspended")
            let resume = try begin("Resume")
            try wait("the first continuation") { stopped < all.count }
            try client.application(path, "Suspend")
            _ = try resume.waitForExit()
            try wait("the stop") { stopped == all.count }
            try client.application(path, "Resume")
            try wait("the release") { stopped == 0 }
            #expect(try client.holds(path) == [])
        }
    }

    @Test(
        "one that is registered while what it is part of is being stopped runs, and so does its own end by force"
    )
    func registered() throws {
        defer { end() }
        for process in all.suffix(3) {
            let call = try begin("Suspend")
            try wait("the first stop") { stopped > 0 }
            let inner = try client.register("org.example.Inner", process.pid)
            _ = try call.waitForExit()
            try client.wait(for: path, toBe: "suspended")
            try wait("its own life") { try !proc.isStopped(process) }
            #expect(try client.state(inner) == "background")
            try client.application(path, "Resume")
            try wait("the release") { stopped == 0 }
        }
        // They are applications of their own, and outlive what they were part of.
        try client.terminate(path, force: true)
        try client.waitForRemoval(of: path)
        for process in all.suffix(3) { #expect(try !proc.isStopped(process)) }
    }

    @Test("killed in the middle of a stop, or of a release: the next daemon continues everybody")
    func killed() throws {
        defer { end() }
        let call = try begin("Suspend")
        try wait("the first stop") { stopped > 0 }
        try daemon.end(SIGKILL)
        _ = try call.waitForExit()
        try daemon.start()
        try wait("the stop") { stopped == all.count }
        try wait("the state") { try client.state(path) == "suspended" }
        let release = try begin("Resume")
        try wait("the first release") { stopped < all.count }
        try daemon.end(SIGKILL)
        _ = try release.waitForExit()
        try daemon.start()
        try wait("the release") { stopped == 0 }
        #expect(try client.holds(path) == [])
    }

    @Test("an end by force, and an end in good order, in the middle of a stop")
    func ended() throws {
        defer { end() }
        let call = try begin("Suspend")
        try wait("the first stop") { stopped > 0 }
        try daemon.end(SIGTERM)
        _ = try call.waitForExit()
        #expect(stopped == 0)
        try daemon.start()
        try client.terminate(path, force: true)
        try wait("the end of all") {
            all.allSatisfy { process in
                guard let stat = try? proc.stat(process.pid), stat.startTime == process.startTime else {
                    return true
                }
                return stat.state == .zombie
            }
        }
    }
}
