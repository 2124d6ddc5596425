import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// dbus-broker differs from dbus-daemon in its credentials, its statistics and the order in which it forwards messages.
@Suite(
    "The daemon on dbus-broker", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: BusProgram.broker.isPresent, Comment(rawValue: BusProgram.whatBrokerNeeds)))
struct BrokerTests {
    private let daemon: TestDaemon

    init() throws { daemon = try TestDaemon(on: .broker, keeps: true) }

    private func launchedApplication() throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        return (app, path)
    }

    @Test("an application registers itself, hears of its states, is suspended and resumed, and is removed")
    func life() throws {
        let subscriber = try daemon.subscriber()
        let (app, path) = try launchedApplication()
        try subscriber.setFocus(app.pid)
        try subscriber.wait(for: path, toBe: "active")
        try subscriber.setFocus(0)
        try subscriber.setMinimized(app.pid, true)
        try subscriber.wait(for: path, toBe: "background")
        try subscriber.application(path, "Suspend")
        try subscriber.wait(for: path, toBe: "suspended")
        #expect(try isStopped(app.pid))
        try subscriber.application(path, "Resume")
        try subscriber.wait(for: path, toBe: "background")
        try app.settle()
        let story = app.story(of: path)
        for signal in ["DidBecomeActive", "WillResignActive", "DidEnterBackground"] {
            #expect(story.contains(signal), "\(story)")
        }
        app.process.kill(SIGKILL)
        #expect(try subscriber.waitForRemoval(of: path) == "killed")
    }
}
