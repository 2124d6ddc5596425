import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// `Toggle` and `ToggleFocused`, with holds of other users, errors and a restart of the daemon.
@Suite("Toggle", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ToggleTests {
    private let daemon: TestDaemon
    private let client: Client
    private let child: Child
    private let path: String

    init() throws {
        daemon = try TestDaemon()
        client = try daemon.subscriber()
        child = try Child("sleep", ["1000"])
        path = try client.register("org.example.App", child.pid)
    }

    private func toggle(_ path: String, by client: Client) throws -> Bool {
        try client.call(path, BusNames.application, "Toggle") { try $0.appendDictionary([]) }.readBool()
    }

    @Test("an application toggled in front stays suspended for the next daemon until it is focused anew")
    func restarted() throws {
        try client.setFocus(child.pid)
        #expect(try toggle(path, by: client))
        try client.wait("the stop") { try client.state(path) == "suspended" }
        try daemon.end(SIGKILL)
        try daemon.start()
        try client.wait("the stop") { try client.state(path) == "suspended" }
        #expect(try client.holds(path) == ["toggle uid:\(getuid())"])
        try client.setFocus(0)
        try client.setFocus(child.pid)
        try client.wait(for: path, toBe: "active")
    }

    @Test(
        "the terminal in front stays if a multiplexer within it shows the caller",
        .enabled(if: Programs.inPath("tmux") != nil && Programs.inPath("script") != nil, "needs tmux"))
    func multiplexed() throws {
        let go = daemon.bus.directory + "/go"
        let result = daemon.bus.directory + "/result"
        for fifo in [go, result] { mkfifo(fifo, 0o600) }
        let call =
            "busctl call \(BusNames.service) \(BusNames.root) \(BusNames.manager) ToggleFocused a{sv} 0"
        // It stays until it is told a second time: with its shell, tmux would end, and the terminal with it.
        let shell = "read line <\(go); \(call) >\(result) 2>&1; read line <\(go)"
        let tmux = "tmux -f /dev/null new-session '\(shell)'"
        let terminal = try Child(
            "script", ["--quiet", "--command", tmux, "/dev/null"],
            environment: [
                "DBUS_SYSTEM_BUS_ADDRESS": daemon.bus.address, "TMUX_TMPDIR": daemon.bus.directory,
                "TERM": "xterm", "TMUX": nil,
            ])
        let front = try client.register("org.example.Terminal", terminal.pid)
        try client.setFocus(terminal.pid)
        let answer = try Child("cat", [result])
        let start = try Child("sh", ["-c", "echo >\(go)"])
        while answer.advance() == nil { try client.settle() }
        try start.waitForExit()
        #expect(answer.output.contains("shows the caller's terminal"), "\(answer.output)")
        #expect(try client.holds(front) == [])
        try Child("sh", ["-c", "echo >\(go)"]).waitForExit()
    }
}
