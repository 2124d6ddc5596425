import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// A suspended client is sent nothing, and one Resync when it can read again.
@Suite("Flow", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct FlowTests {
    @Test(
        "a suspended subscriber is sent nothing; when it resumes it gets one Resync, and then everything",
        arguments: ["Suspend", "SIGSTOP"])
    func suspended(by means: String) throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let (app, path) = try subscribedApplication(daemon)
        if means == "Suspend" {
            try burst.live.application(path, means)
        } else {
            app.process.kill(SIGSTOP)
            try burst.live.wait(for: path, toBe: "suspended")
        }
        try burst.live.catchUp()
        let before = app.lines.count
        try burst.happen(200)
        if means == "Suspend" {
            try burst.live.application(path, "Resume")
        } else {
            app.process.kill(SIGCONT)
        }
        try burst.live.wait(for: path, toBe: "inactive")
        try app.settle()
        let heard = signals(app, from: before)
        #expect(heard.filter { $0.hasSuffix(" Resync") }.count == 1, "\(heard)")
        // Everything else that it is sent is about itself: what it missed as a delegate, and its return.
        #expect(heard.allSatisfy { $0.hasSuffix(" Resync") || $0.contains(path) }, "\(heard)")
        try expectTruth(app, burst)

        try burst.live.catchUp()
        let mark = (app: app.lines.count, live: burst.heard.count)
        try burst.happen(8)
        try app.settle()
        let now = signals(app, from: mark.app).filter { $0.contains(" StateChanged ") }
        #expect(now.count == 2 * 8)
        #expect(now == lines(burst.heard[mark.live...].filter { $0.member == "StateChanged" }))
        #expect(!signals(app, from: mark.app).contains { $0.hasSuffix(" Resync") })
    }

    private func subscribedApplication(_ daemon: TestDaemon) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.manager("Subscribe")
        try app.application(path, "FinishLaunching")
        try app.settle()
        return (app, path)
    }

    /// The signals among the application's lines, as it wrote them.
    private func signals(_ app: App, from first: Int) -> [String] {
        app.lines.dropFirst(first).filter { $0.hasPrefix("signal ") }
    }

    /// Signals as an application of Tests/Actor writes them.
    private func lines(_ signals: some Sequence<Client.Received>) -> [String] {
        signals.map { (["signal", $0.path, $0.interface, $0.member] + $0.arguments).joined(separator: " ") }
    }

    /// Checks that what it reads after Resync is what other clients read.
    private func expectTruth(_ app: App, _ burst: Burst) throws {
        for (path, _) in burst.applications {
            let answer = try app.ask(
                "call \(path) \(BusNames.properties) Get s:\(BusNames.application) s:State")
            #expect(try answer == "\(burst.live.property(path, "State"))")
        }
    }
}
