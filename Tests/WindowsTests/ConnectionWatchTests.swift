import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// A process connects to a local socket on which a suspended application listens.
@Suite(
    "Connections to suspended applications",
    .enabled(if: ListeningApp.mayBeCopied, ListeningApp.whatIsMissing))
struct ConnectionWatchTests {
    @Test(
        "what another process sends over a connection that was accepted before counts, and not what its own does"
    )
    func accepted() throws {
        let directory = try TestDesktop.directory()
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let server = try Child(
            ListeningApp.python,
            [
                "-c",
                """
                import socket, sys, threading
                def serve(end):
                    while asked := end.recv(100): end.sendall(asked)
                listening = socket.socket(socket.AF_UNIX)
                listening.bind(sys.argv[1])
                listening.listen()
                own = socket.socket(socket.AF_UNIX)
                own.connect(sys.argv[1])
                kept = listening.accept()[0]
                own.sendall(b"its own")
                print("listens", flush=True)
                while True: threading.Thread(target=serve, args=[listening.accept()[0]]).start()
                """, directory + "/socket",
            ])
        try server.waitForLine(containing: "listens")
        let client = try Child(
            ListeningApp.python,
            [
                "-c",
                """
                import signal, socket, sys
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                end = socket.socket(socket.AF_UNIX)
                end.connect(sys.argv[1])
                for word in [b"first", b"second"]:
                    end.sendall(word)
                    print(end.recv(100).decode(), flush=True)
                    if word == b"first": signal.sigwait({signal.SIGUSR1})
                """, directory + "/socket",
            ])
        try client.waitForLine(containing: "first")
        server.kill(SIGSTOP)
        let process = try Proc().identity(of: server.pid)
        guard try eventually({ try Proc().state(of: process) == .stopped }) else {
            throw TestFailure("the server did not stop")
        }
        let roles = try SocketCopy.of([server.pid], atMost: 16) { _ in nil }.map { copy in
            copy.close()
            return copy.role
        }
        #expect(roles == [.listening, .accepted])
        let told = Told()
        let loop = try EventLoop()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            told.needs.append("\($0) \($1)")
        }
        watch.follow(.suspended([server.pid]))
        client.kill(SIGUSR1)
        try told.wait(for: 1, on: loop)
        #expect(told.needs == ["\(server.pid) connection"])
        server.kill(SIGCONT)
        #expect(try client.waitForExit() == .exited(0), "\(client.errors)")
    }
}

/// A process connects to a TCP port on which a suspended application listens.
@Suite(
    "TCP ports of suspended applications", .enabled(if: ListeningApp.mayBeCopied, ListeningApp.whatIsMissing))
struct SuspendedServerTests {
    @Test(
        "a connection that waits to be accepted is a need; one that was accepted before is left alone",
        arguments: [4, 6])
    func connects(family: Int) throws {
        let server = try Child(
            ListeningApp.python,
            [
                "-c",
                """
                import signal, socket, sys
                family, host = {"4": (socket.AF_INET, "127.0.0.1"), "6": (socket.AF_INET6, "::1")}[sys.argv[1]]
                listening = socket.create_server((host, 0), family=family)
                client = socket.create_connection(listening.getsockname()[:2])
                accepted = listening.accept()[0]
                print("port", listening.getsockname()[1], flush=True)
                accepted = listening.accept()[0]
                print("answers", flush=True)
                signal.pause()
                """, "\(family)",
            ])
        let line = try server.waitForLine(containing: "port")
        let port = try #require(line.split(separator: " ").last)
        server.kill(SIGSTOP)
        let process = try Proc().identity(of: server.pid)
        guard try eventually({ try Proc().state(of: process) == .stopped }) else {
            throw TestFailure("the server did not stop")
        }
        let told = Told()
        let loop = try EventLoop()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            told.needs.append("\($0) \($1)")
        }
        let roles = try SocketCopy.of([server.pid], atMost: 16) { _ in nil }.map { copy in
            copy.close()
            return copy.role
        }
        #expect(roles == [.listening])
        watch.follow(.suspended([server.pid]))
        let host = family == 4 ? "127.0.0.1" : "::1"
        let script = "import socket; end = socket.create_connection((\"\(host)\", \(port))); end.recv(1)"
        let client = try Child(ListeningApp.python, ["-c", script])
        try told.wait(for: 1, on: loop)
        #expect(told.needs == ["\(server.pid) connection"])
        server.kill(SIGCONT)
        try server.waitForLine(containing: "answers")
        withExtendedLifetime(client) {}
    }
}

@Suite("FUSE servers that are suspended", .enabled(if: FuseServer.isAvailable, FuseServer.whatIsMissing))
struct SuspendedFuseServerTests {
    @Test("a request to the file system is a need, each time; while none waits there is no need")
    func asked() throws {
        let server = try FuseServer()
        let pid = server.process.pid
        let loop = try EventLoop()
        let told = Told()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            told.needs.append("\($0) \($1)")
        }
        for round in 1...2 {
            server.process.kill(SIGSTOP)
            let process = try Proc().identity(of: pid)
            guard try eventually({ try Proc().state(of: process) == .stopped }) else {
                throw TestFailure("the server did not stop")
            }
            watch.follow(.suspended([pid]))
            #expect(told.needs.count == round - 1)
            try server.ask()
            try loop.run("the request") { told.needs.count >= round }
            watch.follow(.suspended([]))
            server.process.kill(SIGCONT)
            try server.process.waitForLine(containing: "answered \(round)")
        }
        #expect(told.needs == ["\(pid) connection", "\(pid) connection"])
    }
}

/// The needs that a watch has reported.
private final class Told {
    var needs: [String] = []

    func wait(for count: Int, on loop: EventLoop) throws {
        try loop.run("need \(count)") { needs.count >= count }
    }
}
