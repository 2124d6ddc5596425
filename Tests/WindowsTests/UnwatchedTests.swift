import Foundation
import Glibc
import Linux
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// Programs whose sockets the agent may not inspect.
@Suite(
    "Programs that refuse inspection", .enabled(if: Station.isAvailable, Station.whatIsMissing),
    .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: Station.othersCanRun, Station.whatOthersNeed),
    .enabled(if: Proc().usersMayInspect, "needs kernel.yama.ptrace_scope=0"))
struct UnwatchedTests {
    @Test("an application that the agent may not inspect is exempt, and another one of the same user is not")
    func agent() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let station = try Station()
        try station.startAgent(environment: display.environment, uid: TestDesktop.nobody)
        let program = station.bus.directory + "/actor"
        try Programs.copy(#require(Programs.built("WindowActor")), to: program)
        // A process is not dumpable if its user may not read the program's file: execve(2).
        try #require(chmod(program, 0o711) == 0)
        let closed = try WindowApp(
            environment: display.environment, uid: TestDesktop.nobody, program: program)
        let open = try WindowApp(environment: display.environment, uid: TestDesktop.nobody)
        var paths: [String] = []
        for (id, app) in [("org.example.Closed", closed), ("org.example.Open", open)] {
            _ = try app.open("Alpha")
            paths.append(try station.register(id, app.pid, suspension: "automatic"))
        }
        let word = "reported unwatched"
        try station.wait("the objection") { try station.objections(to: paths[0]).contains(word) }
        #expect(try !station.objections(to: paths[1]).contains(word))
    }
}
