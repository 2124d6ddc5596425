import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The same with real windows: openbox manages them, and the session agent reports them.
@Suite(
    "A window with the library", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing),
    .enabled(if: Screen.isAvailable, Screen.whatIsMissing))
struct WindowTests {
    @Test("an application with a window goes through its whole life, from its launch to an orderly end")
    func life() throws {
        let theatre = try Theatre()
        let screen = try Screen(theatre)
        // Another test that starts the same file would count as a demand for the suspended application and resume it.
        let program = theatre.bus.directory + "/LibraryActor"
        try Programs.copy(#require(Programs.built("LibraryActor")), to: program)
        let player = try Player(theatre, ["--window"], environment: screen.environment, program: program)
        try player.wait(for: "didBecomeActive")
        let path = try #require(try theatre.path(of: player.pid))
        // The window draws nothing, so the program prints its number.
        let line = try #require(player.lines.first { $0.hasPrefix("window ") })
        let window = String(line.dropFirst("window ".count))
        let other = try screen.other()
        try player.wait(for: "willResignActive")
        _ = try screen.run("xdotool", ["windowactivate", window])
        try player.wait(for: "didBecomeActive", times: 2)
        _ = try screen.run("xdotool", ["windowminimize", window])
        try theatre.wait(for: path, toBe: "suspended")
        _ = try screen.run("xdotool", ["windowactivate", window])
        try player.wait(for: "didBecomeActive", times: 3)
        try player.ask("text milk")
        try theatre.terminate(path, force: false)
        #expect(try player.process.waitForExit() == .signalled(SIGTERM))
        #expect(
            player.names == [
                "willFinishLaunching", "didFinishLaunching", "willEnterForeground", "didBecomeActive",
                "willResignActive", "didBecomeActive", "willResignActive", "didEnterBackground",
                "willEnterForeground", "didBecomeActive", "willTerminate",
            ])
        withExtendedLifetime(other) {}
    }
}
