import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows

/// KWin, watched by org_kde_plasma_window_management or, where KWin restricts that protocol, by our script. Tests
/// manipulate windows by Plasma's taskbar requests.
@Suite("KWin on Wayland", .serialized, .enabled(if: KWin.isAvailable, KWin.whatIsMissing))
struct PlasmaTests {
    @Test(
        "windows have their processes, names and focus; they are minimized and restored",
        arguments: KWin.Way.allCases)
    func focus(_ way: KWin.Way) throws {
        let kwin = try KWin.letting(way)
        let watch = try kwin.watch(way)
        #expect(!watch.observer.isBlind)
        #expect(watch.observer.windows == [])
        #expect(try kwin.files().allSatisfy { !$0.hasSuffix(".js") })
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(try watch.window("Alpha").process == alpha.pid)
        #expect(try watch.window("Alpha").title == "The first")
        #expect(try watch.window("Beta").process == beta.pid)
        try beta.ask("bar activate The first")
        try watch.wait(for: ["Alpha focused", "Beta"])
        // Windows that are gone are skipped.
        try watch.observer.minimize([1, try watch.window("Alpha").number])
        try watch.wait(for: ["Alpha minimized", "Beta focused"])
        try beta.ask("put-away 1")
        try watch.wait(for: ["Alpha minimized", "Beta minimized"])
        try beta.ask("bar restore The first")
        try watch.wait("the window to be back") { $0.contains { $0.appID == "Alpha" && $0.visible } }
        try beta.ask("bar activate The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        let other = try kwin.watch(way)
        try other.wait(for: ["Alpha", "Beta focused"])
        switch way {
        case .byProtocol:
            #expect(other.observer.windows.map(\.process) == watch.observer.windows.map(\.process))
            let former = watch.observer.windows.map(\.number)
            #expect(Set(other.observer.windows.map(\.number)).isDisjoint(with: former))
        // KWin lists its windows in stacking order. Two observers number them alike and do not replace each other's
        // script.
        case .byScript:
            #expect(Set(other.observer.windows.map(\.number)) == Set(watch.observer.windows.map(\.number)))
        }
        try beta.ask("bar activate The first")
        for one in [watch, other] { try one.wait(for: ["Alpha focused", "Beta"]) }
    }

    @Test(
        "windows that are minimized or on another desktop are brought to the front",
        arguments: KWin.Way.allCases)
    func activate(_ way: KWin.Way) throws {
        let kwin = try KWin.letting(way)
        let watch = try kwin.watch(way)
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.activate([try watch.window("Alpha").number], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
        try beta.ask("bar minimize The second")
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(watch.observer.takeNotices() == [])
        // The script is unloaded before the window is seen in front; its file is removed with the last answer.
        try watch.wait("the script to be gone") { _ in
            (try? kwin.files().allSatisfy { !$0.hasSuffix(".js") }) ?? false
        }
    }

    @Test("virtual desktops and the shown desktop hide windows", arguments: KWin.Way.allCases)
    func desktops(_ way: KWin.Way) throws {
        let kwin = try KWin.letting(way)
        let watch = try kwin.watch(way)
        let app = try kwin.app()
        _ = (try app.open("Alpha", "a"), try app.open("Beta", "b"))
        try watch.wait(for: ["Alpha", "Beta focused"])
        try app.ask("plasma desktop 2")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try app.ask("plasma desktop 1")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try app.ask("plasma move 2 b")
        try watch.wait("one window to be moved") { windows in
            Set(windows.map { $0.visible ? $0.appID : "" }) == ["Alpha", ""]
        }
        try app.ask("bar activate b")
        try watch.wait(for: ["Alpha hidden", "Beta focused"])
        let other = try kwin.watch(way).observer.windows
        #expect(Set(other.map(\.picture)) == Set(watch.observer.windows.map(\.picture)))
        if way == .byProtocol { #expect(other.map(\.visible) == watch.observer.windows.map(\.visible)) }
        try app.ask("plasma show-desktop 1")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        // KWin does not report this state to clients that bind its protocol later.
        if way == .byScript { #expect(try kwin.scriptWatch().observer.windows.allSatisfy { !$0.visible }) }
        try app.ask("plasma show-desktop 0")
        try watch.wait("the window to be back") { $0.contains { $0.appID == "Beta" && $0.visible } }
    }

    @Test(
        "windows close, crash and change their name; 40 windows take the focus in turn",
        arguments: KWin.Way.allCases)
    func ends(_ way: KWin.Way) throws {
        let kwin = try KWin.letting(way)
        let watch = try kwin.watch(way)
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        _ = (try alpha.open("Alpha", "a"), try alpha.open("Alpha", "b"), try beta.open("Gamma", "c"))
        try watch.wait("three windows") { $0.count == 3 }
        try beta.ask("bar close b")
        try watch.wait("one window to be closed") { Set($0.map { $0.title }) == ["a", "c"] }
        try beta.ask("name 1 Delta")
        try watch.wait(for: ["Alpha", "Delta focused"])
        alpha.process.kill(SIGKILL)
        try watch.wait(for: ["Delta focused"])
        // KWin sends much for each window and disconnects a client that does not read: not too many at once.
        let many = try kwin.app()
        try many.ask("open-many 40 Many")
        try watch.wait("41 windows") { $0.count == 41 }
        try beta.ask("bar-each activate window")
        try beta.ask("bar activate c")
        try watch.wait("the last has the focus") { $0.first { $0.focused }?.appID == "Delta" }
        try beta.ask("bar-each minimize window")
        try watch.wait("40 are minimized") { windows in windows.count { $0.minimized } == 40 }
        #expect(watch.observer.windows.allSatisfy { $0.process == ($0.appID == "Many" ? many : beta).pid })
        #expect(Set(watch.observer.windows.map(\.number)).count == 41)
        try beta.ask("bar-each close window")
        try watch.wait(for: ["Delta focused"])
    }

    @Test("Xwayland's windows are included", arguments: KWin.Way.allCases)
    func xwayland(_ way: KWin.Way) throws {
        let kwin = try KWin.letting(way)
        let watch = try kwin.watch(way)
        try watch.expect(x11App: try kwin.x11App())
    }

    @Test("a program whose desktop entry does not request the protocol is refused")
    func forbidden() throws {
        let kwin = try KWin(checksPermissions: true)
        var failure: (any Error)?
        do {
            _ = try Watch.patiently { try PlasmaObserver(display: kwin.display) }
        } catch {
            failure = error
        }
        guard case .unsupported(let why)? = failure as? ObserverFailure else {
            Issue.record("\(String(describing: failure))")
            return
        }
        #expect(why.contains("lacks org_kde_plasma_window_management"))
    }
}

/// From KWin to a subscriber. In the same suite, so that two KWins never run at once.
extension PlasmaTests {
    /// Manipulates windows of two applications and expects the edges that follow. Returns the second application and
    /// its path.
    func walk(_ kwin: KWin, _ station: Station) throws -> (WindowApp, String) {
        let (alpha, beta) = (try kwin.app(), try kwin.app())
        let a = try station.register("org.example.Alpha", alpha.pid)
        let b = try station.register("org.example.Beta", beta.pid)
        _ = try alpha.open("org.example.Alpha", "first")
        try station.wait(for: a, toBe: "active")
        _ = try beta.open("org.example.Beta", "second")
        try station.wait(for: b, toBe: "active")
        try station.wait(for: a, toBe: "inactive")
        station.forget()

        try beta.ask("bar activate first")
        try station.wait(forWalks: [a: ["inactive→active"], b: ["active→inactive"]], "focus")
        try beta.ask("bar minimize first")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "minimize")
        try beta.ask("bar activate first")
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["active→inactive"]], "restore")
        try beta.ask("plasma desktop 2")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→background"]], "desktop")
        try beta.ask("plasma desktop 1")
        try station.wait(
            forWalks: [a: ["background→inactive", "inactive→active"], b: ["background→inactive"]], "back")
        try beta.ask("bar close first")
        try station.wait(
            forWalks: [a: ["active→inactive", "inactive→background"], b: ["inactive→active"]], "close")
        return (beta, b)
    }

    @Test(
        "the installed desktop entry gives the agent access",
        .enabled(if: Station.isAvailable, Station.whatIsMissing))
    func entry() throws {
        let agent = try #require(Programs.built("appstate-session"))
        let path = URL(fileURLWithPath: agent).resolvingSymlinksInPath().path
        let installed = try String(
            contentsOfFile: Programs.root + "/systemd/user/appstate-session.desktop", encoding: .utf8)
        let kwin = try KWin(
            checksPermissions: true,
            entry: installed.replacingOccurrences(of: "/usr/libexec/appstate-session", with: path))
        let station = try Station()
        try station.startAgent(environment: kwin.environment)
        let app = try kwin.app()
        let application = try station.register("org.example.Alpha", app.pid)
        _ = try app.open("org.example.Alpha")
        try station.wait(for: application, toBe: "active")
    }
}
