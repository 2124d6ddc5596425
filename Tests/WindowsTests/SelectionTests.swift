import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// Which process owns the clipboard of a real X server, and what the daemon concludes from it.
@Suite("Selections, X11", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing))
struct SelectionTests {
    private func wait(_ observer: some SelectionObserver, for owners: Set<Int32>) throws {
        try observer.wait("the owners \(owners)") {
            observer.owners.values.reduce([], { $0.union($1) }) == owners
        }
    }

    @Test(
        "policy does not suspend the clipboard manager, no matter who owns the clipboard",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func manager() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let station = try Station()
        try station.startAgent(environment: display.environment)
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        let a = try station.register("org.example.Alpha", alpha.pid, suspension: "automatic")
        let word = "reported clipboard"
        try alpha.ask("own \(first) CLIPBOARD_MANAGER")
        try station.wait("the objection") { try station.objections(to: a).contains(word) }
        try beta.ask("own \(second) CLIPBOARD")
        try station.agent?.waitForLine(containing: "clipboard pid \(beta.pid)")
        #expect(try station.objections(to: a).contains(word))
        try alpha.ask("disown CLIPBOARD_MANAGER")
        try station.wait("its end") { try !station.objections(to: a).contains(word) }
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
        try station.wait("the objection") { try station.objections(to: a).contains("reported clipboard") }
        try display.run("xdotool", ["windowminimize", "\(first)"])
        try station.wait(for: a, toBe: "background")
        // It is reported again to the next daemon, which may never have received it.
        try station.endDaemon(SIGKILL)
        try station.startDaemon()
        try station.wait("the objection") { try station.objections(to: a) == ["reported clipboard"] }
        try station.wait(for: a, toBe: "background")
        // The next agent reports it too, before it reports windows.
        station.forget()
        station.agent?.kill(SIGTERM)
        #expect(try station.agent?.waitForExit() == .exited(0))
        try station.startAgent(environment: display.environment)
        try station.wait("the objection") { try station.objections(to: a) == ["reported clipboard"] }
        try station.wait(for: a, toBe: "background")
        #expect(station.walk(of: a) == [])
        try beta.ask("own \(second) CLIPBOARD")
        try station.wait(for: a, toBe: "suspended")
        #expect(try station.objections(to: a) == [])
    }
}

/// To which process a copy on a real Wayland compositor is attributed, and what the daemon concludes from it.
@Suite(
    "Selections, Wayland", .serialized, .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing))
struct WaylandSelectionTests {
    @Test(
        "KWin lets us see copies, although it reserves its windows for others",
        .enabled(if: KWin.isAvailable, KWin.whatIsMissing))
    func kwin() throws {
        let kwin = try KWin(checksPermissions: true)
        try check(kwin.app(), on: kwin.display) { try kwin.end() }
    }

    private func check(_ app: WindowApp, on display: String, end: () throws -> Void) throws {
        // What was copied before has an unknown owner.
        try app.ask("copy CLIPBOARD")
        var front: Set<Int32> = [1]
        let observer = try DataControlObserver(display: display) { front }
        #expect(observer.owners == [:])
        #expect(observer.changes == [:])
        func take(_ command: String) throws {
            let before = observer.changes
            try app.ask(command)
            try observer.wait("the effect of \(command)") { observer.changes != before }
        }
        try take("copy CLIPBOARD")
        #expect(observer.owners == [.clipboard: [1]])
        front = [2]
        try take("copy PRIMARY")
        #expect(observer.owners == [.clipboard: [1], .primary: [2]])
        try take("copy CLIPBOARD")
        #expect(observer.owners == [.clipboard: [2], .primary: [2]])
        try take("uncopy PRIMARY")
        #expect(observer.owners == [.clipboard: [2]])
        // What a client has copied ends with it.
        app.process.kill(SIGKILL)
        try observer.wait("the end of the owner") { observer.owners == [:] }
        try end()
        #expect(observer.reportsItsEnd())
    }

    @Test(
        "policy does not suspend an application from which something was copied, until something else is copied",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func agent() throws {
        let compositor = try Compositor(try #require(Compositor.Kind.present.first))
        let station = try Station(configuration: "BackgroundGraceSec=0\n")
        try station.startAgent(environment: compositor.environment, uid: compositor.uid)
        let (alpha, beta) = (try compositor.app("Alpha"), try compositor.app("Beta"))
        let a = try station.register("org.example.Alpha", alpha.pid, suspension: "automatic")
        let b = try station.register("org.example.Beta", beta.pid)
        let window = try alpha.open("org.example.Alpha", "first")
        try station.wait(for: a, toBe: "active")
        try alpha.ask("copy CLIPBOARD")
        try station.agent?.waitForLine(containing: "clipboard pid \(alpha.pid)")
        _ = try beta.open("org.example.Beta", "second")
        try station.wait(for: b, toBe: "active")
        // Without a window, nothing but the objection prevents its suspension.
        try alpha.ask("close \(window)")
        try station.wait(for: a, toBe: "background")
        #expect(try station.objections(to: a) == ["reported clipboard"])
        // By then Alpha lost the focus long enough ago.
        try station.wait("a copy of Beta's alone") {
            try beta.ask("copy CLIPBOARD")
            return try station.objections(to: a) == []
        }
        try station.wait(for: a, toBe: "suspended")
    }
}

extension SelectionObserver {
    /// Dispatches until the condition holds.
    fileprivate func wait(_ what: String, until isDone: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !isDone() {
            guard ContinuousClock.now < deadline else {
                throw TestFailure("\(what) did not come; the owners are \(owners)")
            }
            var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            if poll(&ready, 1, 1_000) == 1 { try dispatch() }
        }
    }

    /// Whether the end of the display server is reported. Earlier events may arrive first.
    fileprivate func reportsItsEnd() -> Bool {
        eventually {
            do {
                try dispatch()
                return false
            } catch {
                return true
            }
        }
    }
}
