import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// Which process owns the clipboard of a real X server, and what the daemon concludes from it.
@Suite("Selections, X11", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing))
struct SelectionTests {
    private func wait(_ observer: SelectionObserver, for owners: Set<Int32>) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while Set(observer.owners.values) != owners {
            guard ContinuousClock.now < deadline else {
                throw TestFailure("the owners are \(observer.owners), not \(owners)")
            }
            var ready = pollfd(fd: observer.descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, 1_000) == 1 { try observer.dispatch() }
        }
    }

    @Test("an owner is known, also one that was there before, until it disowns, is replaced or ends")
    func owners() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        try alpha.ask("own \(first) CLIPBOARD")
        let observer = try SelectionObserver(display: display.name)
        #expect(observer.owners == [.clipboard: alpha.pid])
        try beta.ask("own \(second) PRIMARY")
        try wait(observer, for: [alpha.pid, beta.pid])
        try beta.ask("own \(second) CLIPBOARD")
        try wait(observer, for: [beta.pid])
        try beta.ask("disown PRIMARY")
        try alpha.ask("own \(first) PRIMARY")
        try wait(observer, for: [alpha.pid, beta.pid])
        // The window of one owner is destroyed, then the client of the other ends.
        try beta.ask("close \(second)")
        try wait(observer, for: [alpha.pid])
        alpha.process.kill(SIGKILL)
        try wait(observer, for: [])
    }

    @Test("of a thousand owners in a burst the last counts")
    func burst() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let observer = try SelectionObserver(display: display.name)
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        try beta.ask("own \(second) PRIMARY")
        for turn in 0..<500 {
            try alpha.ask("own \(first) CLIPBOARD")
            if turn < 499 { try beta.ask("own \(second) CLIPBOARD") }
        }
        try beta.ask("disown PRIMARY")
        try wait(observer, for: [alpha.pid])
    }

    @Test("the end of the X server is reported")
    func end() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let observer = try SelectionObserver(display: display.name)
        try display.end()
        // Earlier events may arrive first.
        #expect(
            eventually {
                do {
                    try observer.dispatch()
                    return false
                } catch {
                    return true
                }
            })
        #expect(throws: ObserverFailure.self) { _ = try SelectionObserver(display: display.name) }
    }

    @Test(
        "policy does not suspend the owner of the clipboard until it gives the clipboard up",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func agent() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let station = try Station(configuration: "BackgroundGraceSec=0\n")
        try station.startAgent(environment: display.environment)
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        let a = try station.register("org.example.Alpha", alpha.pid, suspension: "automatic")
        try alpha.ask("own \(first) CLIPBOARD")
        try station.agent?.waitForLine(containing: "clipboard pid \(alpha.pid)")
        try station.wait("the exemption") { try station.objections(to: a).contains("reported clipboard") }
        try display.run("xdotool", ["windowminimize", "\(first)"])
        try station.wait(for: a, toBe: "background")
        // It is reported again to the next daemon, which may never have received it.
        try station.endDaemon(SIGKILL)
        try station.startDaemon()
        try station.wait("the exemption") { try station.objections(to: a) == ["reported clipboard"] }
        try station.wait(for: a, toBe: "background")
        // The next agent reports it too, before it reports windows.
        station.forget()
        station.agent?.kill(SIGTERM)
        #expect(try station.agent?.waitForExit() == .exited(0))
        try station.startAgent(environment: display.environment)
        try station.wait("the exemption") { try station.objections(to: a) == ["reported clipboard"] }
        try station.wait(for: a, toBe: "background")
        #expect(station.walk(of: a) == [])
        try beta.ask("own \(second) CLIPBOARD")
        try station.wait(for: a, toBe: "suspended")
        #expect(try station.objections(to: a) == [])
    }
}
