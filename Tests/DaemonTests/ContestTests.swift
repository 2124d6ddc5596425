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
    /// A program that continues its child each time the child is stopped, up to a number of times, as a terminal
    /// multiplexer does with the programs in it.
    private final class Multiplexer {
        private let process: Child
        let pid: Int32
        /// The child and its own child.
        let extent: [ProcessIdentity]

        init(times: Int) throws {
            process = try Child(
                "/usr/bin/python3",
                [
                    "-c",
                    """
                    import os, signal
                    child = os.fork()
                    if child == 0:
                        if os.fork() == 0:
                            while True: signal.pause()
                        print('child', os.getpid(), flush=True)
                        while True: signal.pause()
                    for i in range(\(times)):
                        os.waitpid(child, os.WUNTRACED)
                        os.kill(child, signal.SIGCONT)
                    print('done', flush=True)
                    while True: signal.pause()
                    """,
                ])
            let line = try process.waitForLine(containing: "child")
            guard let pid = line.split(separator: " ").last.flatMap({ Int32($0) }) else {
                throw TestFailure("no child: \(line)")
            }
            self.pid = pid
            extent = Extent.members(of: try Proc().identity(of: pid), proc: Proc()) { _ in false }
        }

        /// Waits until it has continued its child for the last time.
        func waitForLast() throws { try process.waitForLine(containing: "done") }

        deinit {
            for process in extent { signal(SIGKILL, to: process) }
        }
    }

    @Test("an application that is continued before its stop was seen is stopped again", arguments: [1, 3])
    func again(_ times: Int) throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let multiplexer = try Multiplexer(times: times)
        #expect(multiplexer.extent.count == 2)
        let path = try client.register("org.example.Shell", multiplexer.pid)
        try client.application(path, "Suspend")
        try multiplexer.waitForLast()
        try client.wait("the last stop") {
            try client.state(path) == "suspended" && multiplexer.extent.allSatisfy { try isStopped($0.pid) }
        }
        #expect(try client.holds(path) == ["request uid:\(getuid())"])
        try client.application(path, "Resume")
        try client.wait(for: path, toBe: "background")
        #expect(try multiplexer.extent.allSatisfy { try !isStopped($0.pid) })
    }

    @Test(
        "if an application is continued as fast as it is stopped, its holds are given up and all of it runs")
    func givenUp() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let multiplexer = try Multiplexer(times: 1_000_000)
        let path = try client.register("org.example.Shell", multiplexer.pid)
        _ = client.error { try client.application(path, "Suspend") }
        try client.wait("the hold to be given up") { try client.holds(path) == [] }
        try daemon.process.waitForLine(containing: "holds given up")
        try client.wait("all to run") {
            try client.state(path) == "background" && multiplexer.extent.allSatisfy { try !isStopped($0.pid) }
        }
    }

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
