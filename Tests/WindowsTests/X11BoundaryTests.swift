import Glibc
import TestSupport
import Testing
import Windows

/// Many windows, fast changes, and the ends of other programs, as the X11 observer sees them.
@Suite("X11, at its boundaries", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing))
struct X11BoundaryTests {
    @Test(
        "an application that switches between its own windows never loses the focus",
        arguments: WindowManager.present)
    func siblings(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let windows = [try app.open("Alpha"), try app.open("Beta")]
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[1])"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[0])"])
        try watch.wait(for: ["Alpha focused", "Beta"])
        watch.forget()
        for turn in 1...20 {
            try display.run("xdotool", ["windowactivate", "\(windows[turn % 2])"])
            try watch.wait("turn \(turn)") { $0.first { $0.focused }?.number == UInt64(windows[turn % 2]) }
        }
        let without = watch.history.filter { picture in !picture.contains { $0.focused } }
        #expect(without == [])
    }

    @Test("changes that come while a request is sent are reported", arguments: WindowManager.present)
    func whileSending(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let (watch, other) = (try display.watch(), try display.watch())
        let app = try display.app()
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try watch.wait(for: ["Alpha minimized"])
        let next = try app.open("Beta")
        try display.run("xdotool", ["windowactivate", "--sync", "\(next)"])
        try other.wait(for: ["Alpha minimized", "Beta focused"])
        // It is minimized already: this changes nothing. libxcb reads while it sends the request.
        try watch.observer.minimize([UInt64(window)])
        try watch.wait(for: ["Alpha minimized", "Beta focused"])
    }

    @Test(
        "window managers are replaced, and the windows stay", arguments: WindowManager.present, [true, false])
    func restart(_ manager: WindowManager, afterKilling: Bool) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let windows = [try app.open("Alpha"), try app.open("Beta")]
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[1])"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[0])"])
        try watch.wait(for: ["Alpha focused", "Beta"])
        watch.forget()
        try display.replaceManager(afterKilling: afterKilling)
        _ = try app.open("Gamma")
        try watch.wait("a third window") { $0.count == 3 }
        try display.run("xdotool", ["windowactivate", "--sync", "\(windows[1])"])
        try watch.wait(for: ["Alpha", "Beta focused", "Gamma"])
        for picture in watch.history {
            // Those of the next window manager itself, before it says what it is, do not matter.
            let seen = picture.filter { $0.visible && $0.appID != "Gamma" && !$0.isShared }.map { $0.appID }
            #expect(seen.sorted() == ["Alpha", "Beta"], "\(picture.map { $0.picture })")
        }
        // A window that is closed while no window manager runs is gone all the same.
        try app.ask("close \(windows[1])")
        try watch.wait("one window to be closed") { Set($0.map(\.appID)) == ["Alpha", "Gamma"] }
    }

    @Test("what a former window manager left on the root window counts only if the next one supports it")
    func leftovers() throws {
        let (server, name) = try Display.startServer()
        defer { try? server.end() }
        let app = try WindowApp(environment: ["DISPLAY": name, "WAYLAND_DISPLAY": nil])
        let window = try app.open("Alpha")
        try app.ask("property 0 _NET_CLIENT_LIST WINDOW \(window)")
        try app.ask("property 0 _NET_SHOWING_DESKTOP CARDINAL 1")
        let watch = Watch(try X11Observer(display: name))
        // What the X server shows is visible, unless the window manager is one that leaves hidden windows mapped.
        try watch.wait(for: ["Alpha"])
        try app.ask("title \(window) KWin")
        try app.ask("property 0 _NET_SUPPORTING_WM_CHECK WINDOW \(window)")
        try watch.wait(for: ["Alpha hidden"])
        try app.ask("property 0 _NET_SUPPORTED ATOM _NET_CLIENT_LIST")
        try watch.wait(for: ["Alpha"])
        try app.ask("property 0 _NET_SUPPORTED ATOM _NET_CLIENT_LIST _NET_SHOWING_DESKTOP")
        try watch.wait(for: ["Alpha hidden"])
        try app.ask("property 0 _NET_SHOWING_DESKTOP CARDINAL 0")
        try watch.wait(for: ["Alpha"])

        try app.ask("property \(window) _NET_WM_DESKTOP CARDINAL 1")
        try app.ask("property 0 _NET_CURRENT_DESKTOP CARDINAL 0")
        try app.ask("property 0 _NET_SUPPORTED ATOM _NET_CLIENT_LIST _NET_CURRENT_DESKTOP")
        try watch.wait(for: ["Alpha hidden"])
        try app.ask("property 0 _NET_SUPPORTED ATOM _NET_CLIENT_LIST")
        try watch.wait(for: ["Alpha"])
    }

    @Test("long, broken and truncated titles are read safely", arguments: WindowManager.present)
    func titles(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let window = try app.open("Alpha", "short")
        try watch.wait("a window") { $0.first?.title == "short" }
        // Two bytes each, and the limit is odd.
        try app.ask("title \(window) " + String(repeating: "ä", count: 1_500))
        try watch.wait("a long title") { $0.first?.title != "short" }
        #expect(try watch.window("Alpha").title == String(repeating: "ä", count: 127))
        try app.ask("title \(window) Grüße – 你好 👋")
        try watch.wait("another title") { $0.first?.title == "Grüße – 你好 👋" }
        try app.ask("title \(window)")
        try watch.wait("no title") { $0.first?.title == "" }
    }

    @Test("the observer reports the end of the X server", arguments: WindowManager.present)
    func end(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        _ = try display.app().open("Alpha")
        try display.end()
        #expect(throws: ObserverFailure.ended("the X server at display \(display.name) has ended")) {
            try watch.wait("the end") { _ in false }
        }
    }
}
