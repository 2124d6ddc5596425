import Glibc
import Linux
import TestSupport
import Testing
import Windows

/// zwlr_foreign_toplevel_manager_v1. Tests manipulate windows by requests to the compositor, like taskbars.
@Suite("Wayland", .serialized, .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing))
struct WaylandTests {
    @Test("windows have their processes, names and focus", arguments: Compositor.Kind.present)
    func focus(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        #expect(watch.observer.windows == [])
        let (alpha, beta) = (try compositor.app("Alpha"), try compositor.app("Beta"))
        _ = try alpha.open("Alpha", "The first")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "The second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(try watch.window("Alpha").process == alpha.pid)
        #expect(try watch.window("Alpha").title == "The first")
        #expect(try watch.window("Beta").process == beta.pid)
        try beta.ask("bar activate The first")
        try watch.wait(for: ["Alpha focused", "Beta"])
        // An observer that starts later learns the same, although the compositor repeats everything to all observers.
        let other = try compositor.watch()
        try other.wait(for: ["Alpha focused", "Beta"])
        #expect(try other.window("Alpha").process == alpha.pid)
        // It may be the same agent's, which has connected again: no number becomes another window's.
        let former = watch.observer.windows.map(\.number)
        #expect(Set(other.observer.windows.map(\.number)).isDisjoint(with: former))
        try beta.ask("title 1 The last")
        try watch.wait("the title") { $0.contains { $0.title == "The last" } }
        #expect(watch.history.allSatisfy { windows in windows.count { $0.focused } <= 1 })
        #expect(watch.observer.takeNotices() == [])
    }

    @Test(
        "windows are minimized and restored",
        .enabled(if: Compositor.Kind.labwc.isPresent, "needs labwc: the others minimize nothing"))
    func minimize() throws {
        let compositor = try Compositor(.labwc)
        let watch = try compositor.watch()
        let app = try compositor.app()
        _ = (try app.open("Alpha", "first"), try app.open("Beta", "second"))
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.minimize([try watch.window("Beta").number])
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try app.ask("put-away 1")
        try watch.wait(for: ["Alpha minimized", "Beta minimized"])
        try app.ask("bar restore first")
        try watch.wait(for: ["Alpha focused", "Beta minimized"])
        try app.ask("bar activate second")
        try watch.wait(for: ["Alpha", "Beta focused"])
        #expect(watch.observer.windows.allSatisfy { $0.process == app.pid })
    }

    @Test("windows are brought to the front", arguments: Compositor.Kind.present)
    func activate(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        let (alpha, beta) = (try compositor.app("Alpha"), try compositor.app("Beta"))
        _ = try alpha.open("Alpha", "a")
        try watch.wait(for: ["Alpha focused"])
        _ = try beta.open("Beta", "b")
        try watch.wait(for: ["Alpha", "Beta focused"])
        try watch.observer.activate([try watch.window("Alpha").number, 1 << 40], token: nil)
        try watch.wait(for: ["Alpha focused", "Beta"])
        if kind == .labwc {
            try watch.observer.minimize([try watch.window("Beta").number])
            try watch.wait(for: ["Alpha focused", "Beta minimized"])
        }
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.wait(for: ["Alpha", "Beta focused"])
    }

    @Test("windows that are closed, or whose client crashes, are gone", arguments: Compositor.Kind.present)
    func ends(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        let (alpha, beta) = (try compositor.app("Alpha"), try compositor.app("Gamma"))
        _ = (try alpha.open("Alpha", "a"), try alpha.open("Alpha", "b"), try beta.open("Gamma", "c"))
        try watch.wait("three windows") { $0.count == 3 }
        #expect(watch.observer.windows.map(\.process) == [alpha.pid, alpha.pid, beta.pid])
        try beta.ask("bar close b")
        try watch.wait("one window to be closed") { Set($0.map { $0.title }) == ["a", "c"] }
        alpha.process.kill(SIGKILL)
        try watch.wait(for: ["Gamma focused"])
    }

    @Test("Xwayland's windows are included", arguments: Compositor.Kind.present)
    func xwayland(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        try watch.expect(x11App: try compositor.x11App())
    }
}

/// Which process a window belongs to: the protocol does not say.
@Suite("Wayland, processes", .serialized, .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing))
struct WaylandProcessTests {
    @Test(
        "a window of a terminal belongs to the terminal's process",
        .enabled(if: Programs.inPath("foot") != nil, "needs foot"), arguments: Compositor.Kind.present)
    func terminal(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        let other = try compositor.app("Other")
        _ = try other.open("Other")
        let app = try Child(
            "foot", ["--title=A terminal", "sleep", "1000"], environment: compositor.environment,
            uid: compositor.uid)
        try watch.wait(for: ["Other", "foot focused"])
        #expect(try watch.window("foot").process == app.pid)
        app.kill(SIGKILL)
        try watch.wait(for: ["Other focused"])
    }
}
