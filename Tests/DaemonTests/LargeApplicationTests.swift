import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application of hundreds of processes is stopped and continued. Whatever happens meanwhile, no process stays stopped
/// without a known reason.
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

    /// Makes a call without waiting for the answer.
    private func begin(_ member: String) throws -> Child {
        try Child(
            "busctl",
            [
                "--address=\(daemon.bus.address)", "call", BusNames.service, path, BusNames.application,
                member,
            ],
            environment: daemon.bus.environment)
    }

    @Test("all of it is stopped and continued")
    func whole() throws {
        #expect(all.count == Self.count + 1)
        try client.application(path, "Suspend")
        try client.wait(for: path, toBe: "suspended")
        #expect(stopped == all.count)
        try client.application(path, "Resume")
        try wait("the release") { stopped == 0 }
        #expect(try client.state(path) == "background")
    }

    @Test("Resume in the middle of a stop leaves no process stopped")
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

    @Test("a Suspend while another process's stop is being lifted forgets no process")
    func lifted() throws {
        for _ in 0..<3 {
            for process in all.reversed() { kill(process.pid, SIGSTOP) }
            try client.wait(for: path, toBe: "suspended")
            // The state changes when the main process is stopped.
            try wait("all stops") { stopped == all.count }
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
        "a child registered while its parent is being stopped runs, and outlives its parent's end by force"
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
        // They are applications of their own, and outlive the one that they were part of.
        try client.terminate(path, force: true)
        try client.waitForRemoval(of: path)
        for process in all.suffix(3) { #expect(try !proc.isStopped(process)) }
    }

    @Test("if a daemon is killed in the middle of a stop or of a release, the next one completes it")
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

    @Test("appstated --release continues more processes than it may have open when it starts")
    func released() throws {
        try client.application(path, "Suspend")
        try wait("the stop") { stopped == all.count }
        try client.wait(for: path, toBe: "suspended")
        try daemon.end(SIGKILL)
        let release = try daemon.release(descriptors: 100)
        #expect(try release.waitForExit() == .exited(0), "\(release.errors)")
        #expect(stopped == 0)
    }

    @Test("a daemon that ends in good order during a stop continues all, and an end by force then ends all")
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
        "Unregister continues all but a main process that another process has stopped",
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
