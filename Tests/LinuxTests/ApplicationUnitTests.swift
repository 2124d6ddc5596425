import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What the names of units, and Flatpak's own file, say about which application a process belongs to.
@Suite("Applications' units")
struct ApplicationUnitTests {
    private static let below = "/user.slice/user-1000.slice/user@1000.service/app.slice/"
    private static let uuid = "01234567-89ab-cdef-0123-456789ABCDEF"

    // Not among the arguments of @Test: Swift 6.0.3 crashes on a string with an interpolation there.
    private static let units: [(String, String?)] = [
        ("app-org.example.App-1.scope", "org.example.App"),
        ("app-gnome-org.example.App-1234.scope", "org.example.App"),
        ("app-flatpak-org.a\\x2db-1.scope", "org.a-b"), ("app-a\\x2db-c-1.scope", "c"),
        ("app-org.example.App@1.service", "org.example.App"),
        ("app-org.example.App@a-b@c.service", "org.example.App"),
        ("app-gnome\\x2dkeyring@autostart.service", "gnome-keyring"),
        ("app-a-org.example.App.service", "org.example.App"),
        ("app-org.example.App.service", "org.example.App"),
        ("app-appstate-org.a\\x2db@12.service", "org.a-b"),
        ("app-appstate-org.a-1.service", nil),
        ("app-caf\\xc3\\xa9-1.scope", "café"), ("app-a\\x2-1.scope", "a\\x2"),
        ("app-a\\X2d-1.scope", "a\\X2d"),
        // Launchers give no such names, so the part with the id is not guessed.
        ("app-1.scope", nil), ("app-.service", nil), ("app-.scope", nil), ("app--1.scope", nil),
        ("app--x-1.scope", nil), ("app-x-.scope", nil), ("app-@1.service", nil),
        ("app-x-@1.service", nil),
        ("app-gnome-my-app-12.scope", nil), ("app-a-b-c.service", nil),
        // Not a valid file name.
        ("app-a\\x2fb-1.scope", nil), ("app-\\x2e\\x2e\\x2fetc-1.scope", nil),
        ("app-a\\x00-1.scope", nil),
        ("app-a\\x0ab-1.scope", nil), ("app-a\\xff-1.scope", nil), ("app-a\u{FFFD}-1.scope", nil),
        ("app-\(String(repeating: "x", count: 256))-1.scope", nil),
        // snapd's.
        ("snap.firefox.firefox-\(uuid).scope", "firefox_firefox"),
        ("snap.my-snap.the-app-\(uuid).scope", "my-snap_the-app"),
        ("snap.firefox.firefox.\(uuid).scope", "firefox_firefox"),
        ("snap.lxd.daemon.service", "lxd_daemon"), ("snap.app_key.app-\(uuid).scope", "app+key_app"),
        ("snap.a.b.service", "a_b"), ("snap.a.b-\(uuid)x.scope", "a_b-\(uuid)x"),
        ("snap.a.hook.configure-\(uuid).scope", nil), ("snap.a.scope", nil), ("snap..b.service", nil),
        ("snap.a.-\(uuid).scope", nil), ("snap.a..service", nil), ("snap..service", nil),
    ]

    @Test("an application's unit contains the application's id in its name", arguments: units)
    func names(_ name: String, _ application: String?) throws {
        let unit = try #require(ApplicationUnit(inPath: Self.below + name), "\(name)")
        #expect(unit.application == application)
        #expect(unit.path == Self.below + name)
    }

    @Test(
        "other cgroups are not applications' units",
        arguments: [
            "", "/", "/init.scope", "/foot.service", "/app.slice", "/app-x.slice", "/app", "/app-", "/app-x",
            "/snap.a.b",
            "/xapp-a-1.scope", "/APP-a-1.scope", "/session-1.scope", "/app-a-1.scopes",
            "/user.slice/user@1.service",
        ])
    func others(_ path: String) { #expect(ApplicationUnit(inPath: path) == nil) }

    @Test("the outermost unit counts, whatever the application creates below it")
    func outermost() {
        let unit = ApplicationUnit(inPath: Self.below + "app-a-b-1.scope/app-c-2.scope/x")
        #expect(unit?.application == "b")
        #expect(unit?.path == Self.below + "app-a-b-1.scope")
        // Nor does the application get a name that its own unit does not give it.
        #expect(ApplicationUnit(inPath: "/app-1.scope/app-c-2.scope")?.application == nil)
        #expect(ApplicationUnit(inPath: "/a/_app-x-1.scope")?.application == "x")
    }

    @Test(
        "a unit is named after its oldest process",
        .enabled(if: Machine.canMakeCgroups, "needs root and cgroup2"))
    func oldest() throws {
        let home = try TestCgroup("app-org.example.Terminal-1.scope", below: #require(TestCgroup.base))
        let unit = try #require(ApplicationUnit(inPath: home.cgroup.path))
        let terminal = try Child.idle()
        let start = try Proc().stat(terminal.pid).startTime
        var program = try Child.idle()
        while try Proc().stat(program.pid).startTime == start { program = try Child.idle() }
        try home.take(terminal.pid)
        try home.take(program.pid)
        #expect(unit.isNamed(after: terminal.pid) && !unit.isNamed(after: program.pid))
    }
}
