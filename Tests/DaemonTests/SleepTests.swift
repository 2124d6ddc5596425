import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// systemd freezes and thaws whole sessions around the machine's sleep.
@Suite(
    "Sleep", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct SleepTests {
    @Test("what we had frozen and the wake-up has thawed is frozen again")
    func reasserted() throws {
        // logind's own name, on a bus of our own.
        let daemon = try TestDaemon(
            policy: "<policy user=\"\(getuid())\"><allow own=\"org.freedesktop.login1\"/></policy>")
        let client = try daemon.subscriber()
        let logind = try daemon.client()
        try logind.bus.requestName("org.freedesktop.login1")
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let home = try TestCgroup("app-sleeper")
        try home.take(children[0].pid)
        let paths = try children.map { try client.register("org.example.App", $0.pid) }
        for path in paths { try client.application(path, "Suspend") }
        #expect(try home.cgroup.isFrozen())

        try logind.emitPrepareForSleep(true)
        try logind.emitPrepareForSleep(false)
        try client.settle()
        #expect(try home.cgroup.isFrozen())
        // Thawed behind the kernel's own notification, as far as anybody can be.
        try home.cgroup.thaw()
        kill(children[1].pid, SIGCONT)
        try logind.emitPrepareForSleep(false)
        try client.wait("both to stand again") { try home.cgroup.isFrozen() && isStopped(children[1].pid) }
        try client.wait("both to be told so") {
            try paths.allSatisfy { try client.state($0) == "suspended" }
        }
        #expect(try paths.allSatisfy { try client.holds($0) == ["request uid:\(getuid())"] })
    }
}

extension Client {
    fileprivate func emitPrepareForSleep(_ begins: Bool) throws {
        let signal = try bus.newSignal(
            path: "/org/freedesktop/login1", interface: "org.freedesktop.login1.Manager",
            member: "PrepareForSleep")
        try signal.append(begins)
        try bus.send(signal)
    }
}
