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
}
