import AppStateBus
import AppStateContract
import Glibc
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// GNOME Shell's extension and its observer. Tests manipulate windows with the keyboard.
@Suite("GNOME Shell on Wayland", .serialized, .enabled(if: GnomeShell.isAvailable, GnomeShell.whatIsMissing))
struct GnomeTests {
    @Test("windows have their processes, names and focus; they are minimized and restored")
    func focus() throws {
        let shell = try GnomeShell()
        let watch = try shell.watch()
        try watch.wait(for: [])
        let (alpha, beta) = (try shell.app(), try shell.app())
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(try watch.window("Alpha").process == alpha.pid)
        #expect(try watch.window("Alpha").title == "The first")
        #expect(try watch.window("Beta").process == beta.pid)
        try shell.press(.alt, .tab)
        try watch.wait(for: ["Alpha focused", "Beta"])
        try watch.observer.minimize([try watch.window("Alpha").number])
        try watch.wait(for: ["Alpha minimized", "Beta focused"])
        try beta.ask("put-away 1")
        try watch.wait(for: ["Alpha minimized", "Beta minimized"])
        try shell.press(.alt, .tab)
        try watch.wait("one window to be restored") { $0.contains { $0.focused } }
        try watch.observer.activate([try watch.window("Alpha").number], token: nil)
        try watch.wait("the first window to be in front") {
            $0.contains { $0.appID == "Alpha" && $0.focused }
        }
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
        let other = try shell.watch()
        try other.wait("the same windows") { $0 == watch.observer.windows }
    }

    @Test("workspaces and the shown desktop hide windows")
    func workspaces() throws {
        let shell = try GnomeShell()
        let watch = try shell.watch()
        let app = try shell.app()
        _ = try app.open("Alpha", "a")
        try watch.wait(for: ["Alpha focused"])
        _ = try app.open("Beta", "b")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try shell.press(.windows, .pageDown)
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        _ = try app.open("Gamma", "c")
        try watch.wait(for: ["Alpha hidden", "Beta hidden", "Gamma focused"])
        try shell.press(.windows, .pageUp)
        try watch.wait(for: ["Alpha", "Beta focused", "Gamma hidden"])
        try shell.press(.windows, .d)
        try watch.wait(for: ["Alpha hidden", "Beta hidden", "Gamma hidden"])
        try shell.press(.windows, .d)
        try watch.wait("both windows to be visible again") { windows in windows.count { $0.visible } == 2 }
    }

    @Test("windows are closed, crash and change their name; 40 windows open and close")
    func ends() throws {
        let shell = try GnomeShell()
        let watch = try shell.watch()
        let (alpha, beta) = (try shell.app(), try shell.app())
        for (app, name, title) in [(alpha, "Alpha", "a"), (beta, "Gamma", "c"), (alpha, "Alpha", "b")] {
            _ = try app.open(name, title)
            try watch.wait("window \(title)") { $0.first { $0.focused }?.title == title }
        }
        try shell.press(.alt, .f4)
        try watch.wait("one window to be closed") { Set($0.map { $0.title }) == ["a", "c"] }
        try beta.ask("name 1 Delta")
        try watch.wait("another name") { Set($0.map { $0.appID }) == ["Alpha", "Delta"] }
        alpha.process.kill(SIGKILL)
        try watch.wait(for: ["Delta focused"])
        let many = try shell.app()
        try many.ask("open-many 40 Many")
        try watch.wait("41 windows") { $0.count == 41 }
        #expect(watch.observer.windows.allSatisfy { $0.process == ($0.appID == "Many" ? many : beta).pid })
        many.process.kill(SIGKILL)
        try watch.wait(for: ["Delta focused"])
    }

    @Test("Xwayland's windows are included")
    func xwayland() throws {
        let shell = try GnomeShell()
        let watch = try shell.watch()
        let app = try shell.x11App()
        // It has started the X server, which accepts windows before they are managed.
        try app.ask("manager")
        let window = try app.open("Alpha", "The first")
        // Not always with the focus: GNOME Shell 50 does not focus every first window of Xwayland.
        try watch.wait("the window") { $0.map { $0.appID.lowercased() } == ["alpha"] }
        #expect(watch.observer.windows.first?.process == app.pid)
        try app.ask("withdraw \(window)")
        try watch.wait(for: [])
        try app.ask("map \(window)")
        try watch.wait("the window to be back") { $0.map(\.visible) == [true] }
        app.process.kill(SIGKILL)
        try watch.wait(for: [])
    }

    @Test("the extension is disabled and enabled; announcements of other connections are ignored")
    func trust() throws {
        let shell = try GnomeShell(isEnabled: false)
        let watch = try shell.watch()
        #expect(watch.observer.isBlind)
        #expect(watch.observer.takeNotices().contains { $0.contains("gnome-extensions enable") })
        let impostor = try Bus.open(address: shell.bus.address)
        try impostor.requestName(BusNames.shell)
        try impostor.releaseName(BusNames.shell)
        try watch.wait("the other connection's announcement") { _ in watch.history.count >= 1 }
        #expect(watch.observer.isBlind)
        let app = try shell.app()
        _ = try app.open("Alpha")
        try shell.enableExtension(true)
        try watch.wait(for: ["Alpha focused"])
        #expect(!watch.observer.isBlind)
        try shell.enableExtension(false)
        try watch.wait("the extension to be gone") { _ in watch.observer.isBlind }
        #expect(watch.observer.windows.map(\.picture) == ["Alpha focused"])
    }

    @Test("without GNOME Shell on the bus, or without a bus, the observer fails")
    func absent() throws {
        let bus = try PrivateBus()
        let loop = try EventLoop()
        func session(_ address: String) -> appstate_session.SessionBus {
            appstate_session.SessionBus(address: address, loop: loop, journal: Journal(identifier: "test"))
        }
        #expect(throws: ObserverFailure.unsupported("GNOME Shell is not on the session bus")) {
            _ = try GnomeObserver(session: session(bus.address))
        }
        var failure: ObserverFailure?
        do throws(ObserverFailure) {
            _ = try GnomeObserver(session: session("unix:path=\(bus.directory)/nobody"))
        } catch {
            failure = error
        }
        guard case .unreachable? = failure else {
            Issue.record("\(String(describing: failure))")
            return
        }
    }
}

/// From GNOME Shell to a subscriber. In the same suite, so that two of them never run at once.
extension GnomeTests {
    @Test(
        "without the extension there is no reporter and no policy suspends; once it is back, all is reported",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func replay() throws {
        let gone = "the window reporter of its session is gone"
        let shell = try GnomeShell(isEnabled: false)
        let station = try Station(configuration: "BackgroundGraceSec=0\n")
        try station.startAgent(environment: shell.environment)
        try station.agent?.waitForLine(containing: "gnome-extensions enable")
        let (alpha, beta) = (try shell.app(), try shell.app())
        try shell.enableExtension(true)
        _ = try alpha.open("org.example.Alpha", "first")
        // Before its window is known it would be suspended.
        try station.agent?.waitForLine(containing: "pid \(alpha.pid) focused")
        _ = try beta.open("org.example.Beta", "second")
        try station.agent?.waitForLine(containing: "pid \(beta.pid) focused")
        let b = try station.register("org.example.Beta", beta.pid)
        try station.wait(for: b, toBe: "active")
        let a = try station.register("org.example.Alpha", alpha.pid, suspension: "automatic")
        try station.wait(for: a, toBe: "inactive")
        station.forget()

        try shell.enableExtension(false)
        try station.wait("the reporter to be gone") { try station.objections(to: a).contains(gone) }
        // What happens now is neither seen nor guessed.
        try alpha.ask("put-away 1")
        try shell.enableExtension(true)
        try station.wait(for: a, toBe: "suspended")
        try station.wait(for: b, toBe: "active")
        #expect(try !station.objections(to: a).contains(gone))
        #expect(station.walk(of: b) == [])

        // A suspended application is resumed when it is no longer known whether it is visible.
        try shell.enableExtension(false)
        try station.wait(for: a, toBe: "background")
        try station.endDaemon(SIGKILL)
        try station.startDaemon()
        try shell.enableExtension(true)
        try station.wait(for: a, toBe: "suspended")
        try station.wait(for: b, toBe: "active")
    }
}
