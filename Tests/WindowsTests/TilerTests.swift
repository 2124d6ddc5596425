import Glibc
import Linux
import TestSupport
import Testing
import Windows

/// sway and i3 over their IPC: a window in the scratchpad counts as minimized.
@Suite("sway and i3", .serialized, .enabled(if: Tiler.isAvailable, Tiler.whatIsMissing))
struct TilerTests {
    @Test("windows have their processes, names and focus", arguments: Tiler.Kind.present)
    func focus(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        #expect(watch.observer.windows == [])
        let (alpha, beta) = (try tiler.app(), try tiler.app())
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(try watch.window("Alpha").process == alpha.pid)
        #expect(try watch.window("Alpha").title == "The first")
        #expect(try watch.window("Beta").process == beta.pid)
        try tiler.command("[class=Alpha] focus")
        try watch.wait(for: ["Alpha focused", "Beta"])
        #expect(try tiler.watch().observer.windows == watch.observer.windows)
    }

    @Test(
        "a native Wayland client is seen",
        .enabled(if: Tiler.Kind.sway.isPresent && Programs.inPath("foot") != nil, "needs sway and foot"))
    func native() throws {
        let tiler = try Tiler(.sway)
        let watch = try tiler.watch()
        let app = try Child(
            "foot", ["--app-id=org.example.Native", "--title=A terminal", "sleep", "1000"],
            environment: tiler.environment, uid: tiler.uid)
        try watch.wait(for: ["org.example.Native focused"])
        #expect(try watch.window("org.example.Native").process == app.pid)
        try tiler.command("workspace other")
        try watch.wait(for: ["org.example.Native hidden"])
        app.kill(SIGKILL)
        try watch.wait(for: [])
    }

    @Test(
        "what another output shows is visible",
        .enabled(if: Tiler.Kind.sway.isPresent && Programs.inPath("foot") != nil, "needs sway and foot"))
    func outputs() throws {
        let tiler = try Tiler(.sway)
        let watch = try tiler.watch()
        try tiler.command("create_output")
        let (alpha, beta) = (try tiler.app(), try tiler.app())
        _ = try alpha.open("Alpha")
        try watch.wait(for: ["Alpha focused"])
        try tiler.command("focus output HEADLESS-2")
        _ = try beta.open("Beta")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try tiler.command("workspace another")
        try watch.wait(for: ["Alpha", "Beta hidden"])
    }

    @Test("windows in the scratchpad are minimized", arguments: Tiler.Kind.present)
    func scratchpad(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        let app = try tiler.app()
        _ = (try app.open("Alpha"), try app.open("Beta"))
        try watch.wait("two windows") { $0.count == 2 }
        try tiler.command("[class=Beta] move scratchpad")
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try tiler.command("scratchpad show")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.minimize([try watch.window("Beta").number])
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
    }

    @Test(
        "i3 is followed when it restarts in place; a window in the scratchpad stays minimized",
        .enabled(if: Tiler.Kind.i3.isPresent, "needs i3 and Xvfb"))
    func restart() throws {
        let tiler = try Tiler(.i3)
        let watch = try tiler.watch()
        let app = try tiler.app()
        _ = (try app.open("Alpha"), try app.open("Beta"))
        try watch.wait("two windows") { $0.count == 2 }
        try tiler.command("[class=Beta] move scratchpad")
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        let before = watch.observer.windows.map(\.number)
        for _ in 0..<2 {
            watch.forget()
            try tiler.command("restart")
            var isSeen = false
            try watch.wait("the restart") { _ in
                isSeen = isSeen || watch.observer.isBlind
                return isSeen && !watch.observer.isBlind
            }
            try watch.wait(for: ["Alpha focused", "Beta minimized"])
            #expect(Set(watch.observer.windows.map(\.number)) == Set(before))
            #expect(watch.history.allSatisfy { $0.count == 2 && $0.contains(where: \.minimized) })
        }
        try tiler.command("scratchpad show")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try tiler.end()
        try watch.waitForEnd()
    }

    @Test("windows are brought to the front, also from another workspace", arguments: Tiler.Kind.present)
    func activate(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        let app = try tiler.app()
        _ = (try app.open("Alpha"), try app.open("Beta"))
        try watch.wait("two windows") { $0.count == 2 }
        try watch.observer.activate([try watch.window("Alpha").number], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
        try tiler.command("workspace other")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try watch.observer.activate([try watch.window("Alpha").number], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
    }

    @Test("hidden workspaces and tabs hide their windows", arguments: Tiler.Kind.present)
    func workspaces(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        let app = try tiler.app()
        _ = (try app.open("Alpha"), try app.open("Beta"))
        try watch.wait("two windows") { $0.count == 2 }
        try tiler.command("[class=Alpha] focus")
        try tiler.command("workspace other")
        try watch.wait(for: ["Alpha hidden", "Beta hidden"])
        try tiler.command("workspace back_and_forth")
        try watch.wait(for: ["Alpha focused", "Beta"])
        try tiler.command("[class=Beta] move to workspace other")
        try watch.wait(for: ["Alpha focused", "Beta hidden"])
        try tiler.command("[class=Beta] focus")
        try watch.wait(for: ["Alpha hidden", "Beta focused"])
        try tiler.command("[class=Alpha] move to workspace other")
        try watch.wait(for: ["Alpha", "Beta focused"])
        // A change of the layout itself is not announced.
        try tiler.command("layout tabbed; [class=Alpha] focus")
        try watch.wait(for: ["Alpha focused", "Beta hidden"])
    }

    @Test("windows that are closed, or whose client crashes, are gone", arguments: Tiler.Kind.present)
    func ends(_ kind: Tiler.Kind) throws {
        let tiler = try Tiler(kind)
        let watch = try tiler.watch()
        let (alpha, beta) = (try tiler.app(), try tiler.app())
        _ = (try alpha.open("Alpha"), try alpha.open("Beta"), try beta.open("Gamma"))
        try watch.wait("three windows") { $0.count == 3 }
        try tiler.command("[class=Beta] kill")
        try watch.wait("one window to be closed") { Set($0.map { $0.appID }) == ["Alpha", "Gamma"] }
        alpha.process.kill(SIGKILL)
        try watch.wait(for: ["Gamma focused"])
    }
}
