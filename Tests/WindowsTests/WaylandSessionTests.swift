import Glibc
import TestSupport
import Testing

/// From a Wayland compositor to a subscriber.
@Suite(
    "Session agent, Wayland", .serialized, .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing),
    .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct WaylandSessionTests {
    @Test(
        "of two processes with the same name both are visible, and neither has the focus",
        arguments: Compositor.Kind.present)
    func twins(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let station = try Station()
        let (first, second) = (try compositor.app("Alpha"), try compositor.app("Alpha"))
        let paths = try [first, second].map { try station.register("org.example.Alpha", $0.pid) }
        _ = (try first.open("org.example.Alpha", "a"), try second.open("org.example.Alpha", "b"))
        try station.startAgent(environment: compositor.environment, uid: compositor.uid)
        try station.agent?.waitForLine(
            containing: "may belong to any of the processes \(first.pid), \(second.pid)")
        for path in paths { try station.wait(for: path, toBe: "inactive") }
        first.process.kill(SIGKILL)
        try station.wait(for: paths[1], toBe: "active")
    }

    @Test(
        "of several candidates the registered process owns a window, whichever came first",
        arguments: Compositor.Kind.present, [false, true])
    func registered(_ kind: Compositor.Kind, _ isRegisteredBefore: Bool) throws {
        let compositor = try Compositor(kind)
        let station = try Station()
        try station.startAgent(environment: compositor.environment, uid: compositor.uid)
        let (alpha, beta) = (try compositor.app("Alpha"), try compositor.app("Beta"))
        let id = "org.example.Strange"
        let early = isRegisteredBefore ? try station.register(id, alpha.pid) : nil
        _ = try alpha.open(id, "first")
        // The agent knows which processes are registered.
        if !isRegisteredBefore {
            try station.agent?.waitForLine(
                containing: "may belong to any of the processes \(alpha.pid), \(beta.pid)")
        }
        let a = try early ?? station.register(id, alpha.pid)
        try station.wait(for: a, toBe: "active")
        // Then there is no doubt left, and another process may register.
        let b = try station.register("org.example.Odd", beta.pid)
        _ = try beta.open("org.example.Odd", "second")
        try station.wait(for: b, toBe: "active")
        try station.wait(for: a, toBe: "inactive")
    }
}
