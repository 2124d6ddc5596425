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

}
