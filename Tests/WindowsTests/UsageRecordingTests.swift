import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing
import Usage

/// What the agent records of real windows, and what appstatectl makes of it.
@Suite(
    "Recorded usage", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct UsageRecordingTests {
    @Test(
        "nothing is recorded before Usage=yes; then states are, and usage adds them up, until it is told to forget"
    )
    func recording() throws {
        let display = try Display(#require(WindowManager.present.first))
        let station = try Station()
        let home = station.bus.directory + "/state"
        let file = try station.configureAgent("[Session]\nAdopt=*\n")
        try station.startAgent(
            ["--verbose", "--config", file],
            environment: display.environment.merging(["XDG_STATE_HOME": home]) { $1 })
        let app = try display.app()
        _ = try app.open("Alpha")
        let path = try station.wait(forApplication: "Alpha", app.pid)
        #expect(!FileManager.default.fileExists(atPath: home))

        func recorded() -> UsageLog {
            UsageLog(Array((try? Data(contentsOf: URL(fileURLWithPath: usage))) ?? Data()))
        }
        let usage = home + "/appstate/usage"
        try station.reloadAgent("[Session]\nAdopt=*\nUsage=yes\n")
        try station.wait("the application in the file") { recorded().runs.first?.events.isEmpty == false }
        var status = stat()
        #expect(stat(usage, &status) == 0 && status.st_mode & 0o777 == 0o600)
        try station.suspend(path)
        try station.wait("the suspension in the file") {
            recorded().runs.first?.events.last?.state == .suspended
        }
        app.process.kill(SIGKILL)
        try app.process.waitForExit()
        try station.wait("the end in the file") { recorded().runs.first?.events.last?.state == .notRunning }

        func appstatectl(_ arguments: String...) throws -> String {
            let child = try Child(
                Programs.built("appstatectl") ?? "appstatectl", arguments,
                environment: ["XDG_STATE_HOME": home])
            guard try child.waitForExit() == .exited(0) else { throw TestFailure(child.errors) }
            return child.output
        }
        let sums = try #require(
            JSONSerialization.jsonObject(with: Data(appstatectl("usage", "--json").utf8)) as? [[String: Any]])
        #expect(sums.count == 1 && sums.first?["app_id"] as? String == "Alpha")
        #expect(sums.first?["freezes"] as? Int == 1)
        #expect(try appstatectl("timeline", "--svg", "-").contains(">Alpha</text>"))
        _ = try appstatectl("usage", "--forget")
        #expect(!FileManager.default.fileExists(atPath: usage))
    }
}
