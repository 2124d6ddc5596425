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
        let daemon = try TestDaemon(policy: LoginStandIn.policy)
        let client = try daemon.subscriber()
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let home = try TestCgroup("app-sleeper")
        try home.take(children[0].pid)
        let paths = try children.map { try client.register("org.example.App", $0.pid) }
        for path in paths { try client.application(path, "Suspend") }
        #expect(try home.cgroup.isFrozen())

        try logind.prepareForSleep(true)
        try logind.prepareForSleep(false)
        try client.settle()
        #expect(try home.cgroup.isFrozen())
        // Thawed behind the kernel's own notification, as far as anybody can be.
        try home.cgroup.thaw()
        kill(children[1].pid, SIGCONT)
        try logind.prepareForSleep(false)
        try client.wait("both to stand again") { try home.cgroup.isFrozen() && isStopped(children[1].pid) }
        try client.wait("both to be told so") {
            try paths.allSatisfy { try client.state($0) == "suspended" }
        }
        #expect(try paths.allSatisfy { try client.holds($0) == ["request uid:\(getuid())"] })
    }
}
