import Glibc
import Linux
import TestSupport
import Testing
import Windows

/// Which processes observers consider part of the desktop.
@Suite("The desktop's own processes", .serialized)
struct DesktopProcessTests {
    /// Waits until the processes run exactly these programs.
    private func wait(_ watch: Watch, for programs: [String]) throws {
        try watch.wait("\(programs)") { _ in
            names(watch.observer.desktopProcesses) == programs.sorted()
        }
    }

    private func names(_ processes: Set<Int32>) -> [String] {
        processes.map { (try? Proc().stat($0).comm) ?? "?" }.sorted()
    }

    @Test(
        "X11: the server, the window manager, and clients that show a panel or the desktop",
        .enabled(if: Display.isAvailable, Display.whatIsMissing), arguments: WindowManager.present)
    func x11(_ manager: WindowManager) throws {
        let display = try Display(manager)
        let watch = try display.watch()
        #expect(names(watch.observer.desktopProcesses) == ["Xvfb", manager.rawValue].sorted())
        let (app, panel, desktop) = (try display.app(), try display.app(), try display.app())
        _ = try app.open("Alpha")
        try panel.ask("fixture DOCK Panel")
        try desktop.ask("fixture DESKTOP Desktop")
        try wait(watch, for: ["Xvfb", manager.rawValue, "WindowActor", "WindowActor"])
        #expect(watch.observer.desktopProcesses.isSuperset(of: [panel.pid, desktop.pid]))
        panel.process.kill(SIGKILL)
        try wait(watch, for: ["Xvfb", manager.rawValue, "WindowActor"])
        try display.replaceManager(afterKilling: true)
        let successor = try display.app()
        _ = try successor.open("Beta")
        try wait(watch, for: ["Xvfb", manager.rawValue, "WindowActor"])
    }

    @Test(
        "sway, i3 with its X server, and clients that show a panel",
        .enabled(if: Tiler.isAvailable, Tiler.whatIsMissing),
        arguments: Tiler.Kind.present)
    func tiler(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        let own = kind == .i3 ? ["i3", "Xvfb"] : ["sway"]
        #expect(names(watch.observer.desktopProcesses) == own.sorted())
        let (app, panel) = (try tiler.app(), try tiler.app())
        _ = try app.open("Alpha")
        guard kind == .i3 else { return }
        try panel.ask("fixture DOCK Panel")
        try wait(watch, for: own + ["WindowActor"])
        #expect(watch.observer.desktopProcesses.contains(panel.pid))
    }

    @Test(
        "a compositor based on wlroots", .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing),
        arguments: Compositor.Kind.present)
    func compositor(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        #expect(try compositor.watch().observer.desktopProcesses == [compositor.pid])
    }

    @Test("KWin", .enabled(if: KWin.isAvailable, KWin.whatIsMissing))
    func kwin() throws {
        let kwin = try KWin()
        #expect(names(try kwin.watch().observer.desktopProcesses) == ["kwin_wayland"])
    }
}
