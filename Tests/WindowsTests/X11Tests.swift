import Glibc
import TestSupport
import Testing
import Windows

/// What real window managers report about real windows, as the X11 observer sees it.
@Suite("X11", .serialized, .enabled(if: Display.isAvailable, Display.whatIsMissing))
struct X11Tests {
    @Test("windows have their processes, names and focus", arguments: WindowManager.present)
    func focus(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        #expect(watch.observer.windows == [])
        let (alpha, beta) = (try display.app(), try display.app())
        let first = try alpha.open("Alpha", "The first")
        let second = try beta.open("Beta", "The second")
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        let window = try watch.window("Alpha")
        #expect(window.process == alpha.pid)
        #expect(window.title == "The first")
        #expect(window.number == UInt64(first))
        #expect(try watch.window("Beta").process == beta.pid)

        try display.run("xdotool", ["windowactivate", "\(first)"])
        try watch.wait(for: ["Alpha focused", "Beta"])
        try display.run("xdotool", ["windowactivate", "\(second)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
    }

    @Test("windows are minimized and restored", arguments: WindowManager.present)
    func minimize(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        try display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.minimize([UInt64(second), 1 << 40])
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try display.run("xdotool", ["windowminimize", "\(first)"])
        try watch.wait(for: ["Alpha minimized", "Beta minimized"])
        try display.run("xdotool", ["windowactivate", "\(second)"])
        try watch.wait(for: ["Alpha minimized", "Beta focused"])
    }

    @Test(
        "windows that are minimized or on another desktop are brought to the front",
        arguments: WindowManager.present)
    func activate(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try beta.open("Beta"))
        try display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.activate([UInt64(first), 1 << 40], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
        try watch.observer.minimize([UInt64(second)])
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try watch.observer.activate([UInt64(second)], token: "example-1-host-2_TIME0")
        try watch.wait(for: ["Alpha", "Beta focused"])
        // The last window counts.
        try watch.observer.activate([UInt64(second), UInt64(first)], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
        try display.run("xdotool", ["set_desktop", "1"])
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try watch.observer.activate([UInt64(second)], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
    }

    @Test("another workspace, and a move to it, hide windows", arguments: WindowManager.present)
    func workspaces(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let window = try app.open("Alpha")
        let other = try app.open("Beta")
        // The window manager focuses a new window, possibly late, or on a busy machine not at all.
        try display.run("xdotool", ["windowactivate", "--sync", "\(other)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try watch.wait(for: ["Alpha focused", "Beta"])
        try display.run("xdotool", ["set_desktop", "1"])
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try display.run("xdotool", ["set_desktop", "0"])
        try watch.wait("both windows to be back") {
            $0.allSatisfy { $0.visible } && $0.contains { $0.focused }
        }
        try app.ask("desktop \(other) 2")
        try watch.wait(for: ["Alpha focused", "Beta hidden"])
        // On all workspaces.
        try app.ask("desktop \(other) \(UInt32.max)")
        try watch.wait(for: ["Alpha focused", "Beta"])
        try display.run("xdotool", ["set_desktop", "3"])
        try watch.wait("one window to have stayed") { windows in
            windows.contains { $0.appID == "Alpha" && !$0.visible }
                && windows.contains { $0.appID == "Beta" && $0.visible }
        }
    }

    @Test(
        "what the X server shows is visible, whatever desktop it is said to be on",
        arguments: WindowManager.present)
    func viewable(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let window = try app.open("Alpha")
        try watch.wait("the window") { $0.count == 1 }
        // As with a window manager that shows a desktop on each monitor: its property alone does not move the window.
        try app.ask("property \(window) _NET_WM_DESKTOP CARDINAL 3")
        _ = try app.open("Beta")
        try watch.wait("another window") { $0.count == 2 }
        #expect(try watch.window("Alpha").visible)
        try app.ask("desktop \(window) 2")
        try watch.wait("a window that has moved") { windows in
            windows.contains { $0.appID == "Alpha" && !$0.visible }
        }
    }

    @Test(
        "a window that nobody manages counts while it covers a quarter of the monitor, or has the focus",
        arguments: WindowManager.present)
    func override(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let app = try display.app()
        _ = try app.ask("override 640 400")
        let watch = try display.watch()
        func wait(for processes: [Int32]) throws {
            try watch.wait("the windows of \(processes)") { windows in
                windows.filter { $0.isShared && $0.visible }.compactMap(\.process).sorted()
                    == processes.sorted()
            }
        }
        try wait(for: [app.pid])
        let (other, menu) = (try display.app(), try display.app())
        let large = try other.ask("override 1280 800")
        let small = try menu.ask("override 600 400")
        try wait(for: [app.pid, other.pid])
        let window = try app.open("Alpha")
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try watch.wait("the focus") { $0.contains { $0.focused } }
        try menu.ask("focus \(small)")
        try wait(for: [app.pid, other.pid, menu.pid])
        try menu.ask("withdraw \(small)")
        try other.ask("close \(large)")
        try wait(for: [app.pid])
    }

    @Test("the shown desktop hides all windows but a panel", arguments: WindowManager.present)
    func showDesktop(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        try app.ask("fixture DOCK Panel")
        let window = try app.open("Alpha")
        try watch.wait("two windows") { $0.count == 2 }
        try display.run("xdotool", ["windowactivate", "--sync", "\(window)"])
        try watch.wait(for: ["Alpha focused", "Panel"])
        try display.run("wmctrl", ["-k", "on"])
        try watch.wait("nothing but the panel is visible") { windows in
            windows.allSatisfy { $0.visible == ($0.appID == "Panel") }
        }
        try display.run("wmctrl", ["-k", "off"])
        try watch.wait(for: ["Alpha focused", "Panel"])
    }

    @Test(
        "windows that close, are withdrawn or crash are gone; a window mapped again is back",
        arguments: WindowManager.present)
    func ends(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let (alpha, beta) = (try display.app(), try display.app())
        let (first, second) = (try alpha.open("Alpha"), try alpha.open("Beta"))
        _ = try beta.open("Gamma")
        try watch.wait("three windows") { $0.count == 3 }
        try display.run("wmctrl", ["-i", "-c", "\(first)"])
        try watch.wait("one window to be closed") { Set($0.map(\.appID)) == ["Beta", "Gamma"] }
        try alpha.ask("withdraw \(second)")
        try watch.wait("one window to be withdrawn") { $0.map(\.appID) == ["Gamma"] }
        try alpha.ask("map \(second)")
        try watch.wait("the window to be back") { Set($0.map(\.appID)) == ["Beta", "Gamma"] }
        alpha.process.kill(SIGKILL)
        try watch.wait("the end of its windows") { $0.map(\.appID) == ["Gamma"] }
    }

    @Test(
        "a client in its own PID namespace is known by its pid in ours",
        .enabled(if: getuid() == 0 && Programs.inPath("unshare") != nil, "needs root and unshare"),
        arguments: WindowManager.present)
    func namespace(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app(prefix: ["unshare", "--pid", "--fork", "--kill-child", "--"])
        let window = try app.open("Alpha")
        try watch.wait("a window") { $0.count == 1 }
        #expect(try watch.window("Alpha").process == app.child())
        let said = try display.run("xdotool", ["getwindowpid", "\(window)"])
        #expect(said == "1\n", "_NET_WM_PID is of no use")
    }

    @Test("a window's own claim about its process is not believed", arguments: WindowManager.present)
    func lie(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        let app = try display.app()
        let window = try app.open("Alpha")
        try app.ask("lie \(window) 1")
        try watch.wait("a window") { $0.count == 1 }
        #expect(try watch.window("Alpha").process == app.pid)
    }
}
