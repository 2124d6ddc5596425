import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// An adopted application, which another process registered unasked, gives way to its process's own registration.
@Suite("Adopted", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct AdoptedTests {
    private let adopted: [(String, Variant)] = [
        ("reclaimable", .bool(false)), ("adopted", .bool(true)),
    ]

    @Test(
        "a process's own registration replaces the adopted one and keeps what is known of its windows",
        arguments: [
            "Register s:org.example.Own u:0 {}", "Register s:org.example.Own u:PID {}",
            "RegisterProcess s:org.example.Own h:PID {}", "Register s:org.example.Actor u:0 {}",
        ])
    func replaced(_ how: String) throws {
        let daemon = try TestDaemon(configuration: "[Limits]\nApplicationsPerUser=1\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let former = try client.register("org.example.Actor", app.pid, adopted)
        try client.setFocus(app.pid)
        try client.wait(for: former, toBe: "active")
        try client.catchUp()

        let path = try app.manager(how.replacing("PID", with: "\(app.pid)"))
        #expect(path != former)
        #expect(try client.waitForRemoval(of: former) == "unregistered")
        try client.settle()
        let changes = client.received.filter { $0.member.hasPrefix("Application") }
        #expect(changes.map(\.member) == ["ApplicationRemoved", "ApplicationAdded"])
        #expect(changes.map(\.arguments.first) == [former, path])
        #expect(client.edges(of: former) == [])
        #expect(client.error { _ = try client.state(former) } == ErrorName.noSuchApplication.rawValue)
        #expect(try client.list().count == 1)
        #expect(try client.application(ofPID: app.pid) == path)
        #expect(try client.state(path) == "not-running")
        #expect(try client.property(path, "Reclaimable") == .bool(true))
        #expect(try client.property(path, "Suspension") == .string("automatic"))
        #expect(
            try client.property(BusNames.root, BusNames.manager, "FocusedApplication") == .objectPath(path))

        try app.application(path, "FinishLaunching")
        try client.wait(for: path, toBe: "active")
        #expect(try app.last("DidBecomeActive", of: path) == [])
        // Its end is still detected.
        app.process.kill(SIGKILL)
        #expect(try client.waitForRemoval(of: path) == "killed")
    }

    /// Makes the daemon find `Suspend` and then the application's own registration in its queue; returns the new path.
    private func suspend(
        _ path: String, thenRegister app: App, _ daemon: TestDaemon, _ client: Client
    ) throws -> String {
        daemon.process.kill(SIGSTOP)
        let message = try client.bus.newCall(
            destination: BusNames.service, path: path, interface: BusNames.application, member: "Suspend")
        let slot = try client.bus.callAsync(message) { _ in }
        defer { slot.cancel() }
        // The bus handles our messages in order.
        #expect(try client.bus.hasOwner(BusNames.service))
        let call = try app.begin(
            "\(BusNames.root) \(BusNames.manager) Register s:org.example.Own u:0 {delegate=b:false}")
        daemon.process.kill(SIGCONT)
        try client.wait("the registration") { app.answer(to: call) != nil }
        let answer = try #require(app.answer(to: call))
        #expect(answer.hasPrefix("ok "), "\(answer)")
        return String(answer.dropFirst(3))
    }

    @Test(
        "an application frozen just before its own registration is thawed, and has no holds",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func frozen() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let home = try TestCgroup("app-test")
        let app = try App(daemon.bus)
        try home.take(app.pid)
        let former = try client.register("org.example.Actor", app.pid, adopted)
        let path = try suspend(former, thenRegister: app, daemon, client)
        #expect(try !home.cgroup.wantsFrozen())
        #expect(try client.holds(path) == [])
        #expect(try client.state(path) == "inactive")
        try client.settle()
        #expect(client.edges(of: path) == ["not-running→inactive"])
        try client.application(path, "Suspend")
        #expect(try home.cgroup.isFrozen())
        try client.application(path, "Resume")
        try app.settle()
    }

    // MARK: The next daemon
}
