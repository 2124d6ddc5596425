import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Another process continues what the daemon stops: the daemon stops it again, or lets all of it go, and never
/// anything in between.
@Suite(
    "Continued by another process", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct ContestTests {
    @Test(
        "when a hold is given up, the children run as well",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func children() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let family = try Family(20)
        let path = try client.register("org.example.Family", family.pid)
        try client.application(path, "Suspend")
        while try !client.holds(path).isEmpty {
            client.forget()
            kill(family.pid, SIGCONT)
            try client.wait("an answer to SIGCONT") {
                let last = client.edges(of: path).last
                return last == "background→suspended" || last == "suspended→background"
            }
        }
        try client.wait("all to run") { family.stopped == 0 }
        #expect(try client.state(path) == "background")
    }
}
