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

}
