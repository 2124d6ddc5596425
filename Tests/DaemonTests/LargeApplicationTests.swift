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
    .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct LargeApplicationTests {
    private let proc = Proc()
    private let daemon: TestDaemon
    private let client: Client
    private let family: Family
    private let path: String
    private static let count = 400

    init() throws {
        daemon = try TestDaemon()
        client = try daemon.subscriber()
        family = try Family(Self.count)
        path = try client.register("org.example.Large", family.pid)
        try client.wait(for: path, toBe: "background")
    }

    private var all: [ProcessIdentity] { family.all }
    private var stopped: Int { family.stopped }

    private func wait(_ what: String, until done: () throws -> Bool) throws {
        try family.wait(what, until: done)
    }

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

    @Test("others are answered while it is being stopped, and all of it stands in the end")
    func others() throws {
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
        for _ in 0..<3 {
            for process in all.reversed() { kill(process.pid, SIGSTOP) }
            try client.wait(for: path, toBe: "suspended")
            // It says so when the main process stands.
            try wait("everybody's stop") { stopped == all.count }
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

    @Test(
        "the main process stays as somebody else wants it when the application leaves us",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func unregisteredUnderAnothersStop() throws {
        try client.application(path, "Suspend")
        kill(family.pid, SIGSTOP)
        try wait("the other stop") { try client.holds(path).count == 2 }
        try client.application(path, "Unregister")
        try wait("the release") {
            TextFile.names(inDirectory: daemon.runtimeDirectory + "/holds").isEmpty
        }
        #expect(stopped == 1)
        #expect(try isStopped(family.pid))
        kill(family.pid, SIGCONT)
        try wait("the end of the other stop") { stopped == 0 }
    }
}
