import Foundation
import Glibc
import Testing

@testable import Linux

@Suite("UnixSockets, on real processes", .enabled(if: Machine.hasPython, "needs python3"))
struct UnixSocketsTests {
    let proc = Proc()

    private func haveUnread(_ children: Child...) throws -> Bool {
        try UnixSockets.haveUnread(try children.map { try proc.identity(of: $0.pid) })
    }

    @Test("data sent to a stopped process waits, and is gone once it is read")
    func stopped() throws {
        let child = try Child(python: "for line in sys.stdin: say(line.strip())")
        child.tell("first")
        #expect(try child.line() == "first")
        #expect(try !haveUnread(child))
        kill(child.pid, SIGSTOP)
        try child.waitUntilStopped()
        child.tell("second")
        child.tell("third")
        #expect(try haveUnread(child))
        kill(child.pid, SIGCONT)
        #expect(try child.line() == "second")
        #expect(try child.line() == "third")
        #expect(try !haveUnread(child))
    }

    @Test("what a process has sent to itself does not wait")
    func ownData() throws {
        let child = try Child(
            python: """
                import socket
                pair = socket.socketpair()
                pair[0].send(b'x')
                say('sent')
                sys.stdin.read()
                """)
        #expect(try child.line() == "sent")
        #expect(try !haveUnread(child))
    }

    @Test(
        "sockets in another network namespace make the answer unknown",
        .enabled(if: Machine.canUnshareNetwork, "needs root and unshare"))
    func otherNetwork() throws {
        let child = try Child([
            "unshare", "-n", "/usr/bin/python3", "-c",
            """
            import socket, sys
            a, b = socket.socketpair()
            print('on', flush=True)
            sys.stdin.read()
            """,
        ])
        _ = try child.line()
        #expect(failure { _ = try haveUnread(child) }?.errno == EXDEV)
    }
}

extension Machine {
    static let canUnshareNetwork: Bool =
        isRoot && access("/usr/bin/unshare", X_OK) == 0
        && (try? Child(["unshare", "-n", "true"]).reap()) == 0
}
