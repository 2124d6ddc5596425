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

/// Memory really runs short, in a cgroup with a limit.
@Suite(
    "Short memory with the library", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing),
    .enabled(if: MemoryLimit.isAvailable, Comment(rawValue: MemoryLimit.whatIsMissing)),
    .enabled(if: access("/proc/pressure/memory", W_OK) == 0, "needs PSI"))
struct MemoryTests {
    @Test("a running application is warned; a suspended one is reclaimed and restored at its next launch")
    func reclaimed() throws {
        let limit = try MemoryLimit(bytes: 200 << 20)
        // Every warning is critical: no amount of available memory is enough.
        let theatre = try Theatre(
            pressure: """
                Source=\(limit.own.cgroup.directory)/memory.pressure
                Warning=some 2ms 2s
                Critical=full 2s 2s
                CriticalAvailable=200M
                """)
        let awake = try Player(theatre)
        let asleep = try Player(theatre)
        for player in [awake, asleep] {
            try limit.take(player.pid)
            try player.wait(for: "willEnterForeground")
        }
        let path = try #require(try theatre.path(of: asleep.pid))
        try asleep.ask("text milk")
        try asleep.ask("allocate 30")
        try theatre.setFocus(awake.pid)
        try theatre.setMinimized(asleep.pid, true)
        try theatre.wait(for: path, toBe: "suspended")

        try awake.ask("allocate 110")
        let file = theatre.bus.directory + "/large"
        let reader = try Child(
            "sh", ["-c", "kill -STOP $$; while cat \(file) >/dev/null; do :; done"])
        try Self.write(mebibytes: 200, to: file)
        var info = siginfo_t()
        while waitid(P_PID, id_t(reader.pid), &info, WSTOPPED | WNOWAIT) < 0, errno == EINTR {}
        try limit.take(reader.pid)
        reader.kill(SIGCONT)
        try awake.wait(for: "didReceiveMemoryWarning")
        #expect(try asleep.process.waitForExit() == .signalled(SIGKILL))
        reader.kill(SIGKILL)
        try theatre.waitForRemoval(of: path)
        #expect(asleep.names.suffix(1) == ["didEnterBackground"])

        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(
            next.story.prefix(2) == [
                "willFinishLaunching not-running first:false exit:reclaimed restorable:true",
                "didDecode not-running milk 7:-1,-1:3 0",
            ])
    }

    private static func write(mebibytes: Int, to file: String) throws {
        let descriptor = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(descriptor) }
        let block = [UInt8](repeating: 7, count: 1 << 20)
        for _ in 0..<mebibytes { _ = Glibc.write(descriptor, block, block.count) }
        fsync(descriptor)
        posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
    }
}
