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
    @Test("a connection is reported once per suspension; after that no copy of the socket is held")
    func seen() throws {
        let scene = try Scene(3)
        for number in [0, 2] {
            try scene.suspend()
            #expect(try scene.held() == 3)
            let caller = try scene.app.connect(number)
            try scene.wait("the connection") { !scene.seen.isEmpty }
            #expect(scene.seen == [scene.server.pid])
            try scene.resume()
            #expect(try caller.waitForExit() == .exited(0), "\(caller.errors)")
            #expect(caller.output == "connected\nsays \(number)\n")
        }
    }

    @Test("a connection made before the watch counts; sockets of other processes do not")
    func before() throws {
        let scene = try Scene(1)
        try scene.stop()
        let caller = try scene.app.connect(0)
        try caller.waitForLine(containing: "connected")
        let other = try Child("sleep", ["1000"])
        scene.watch([other.pid])
        scene.watch([scene.server.pid])
        try scene.wait("the connection") { !scene.seen.isEmpty }
        #expect(scene.seen == [scene.server.pid])
        try scene.resume()
        #expect(try caller.waitForExit() == .exited(0))
    }

    @Test("a connection that is never accepted counts once; later ones to other sockets count")
    func leaked() throws {
        let scene = try Scene(2, accepting: [1])
        try scene.suspend()
        let waiting = try scene.app.connect(0)
        try scene.wait("the first connection") { scene.seen.count == 1 }
        try scene.resume()
        try scene.suspend(holding: 1)
        let caller = try scene.app.connect(1)
        try scene.wait("the second connection") { scene.seen.count == 1 }
        try scene.resume()
        #expect(try caller.waitForExit() == .exited(0))
        #expect(waiting.advance() == nil)
    }

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
        let roles = try SocketCopy.of([server.pid], atMost: 16) { _ in false }.map { copy in
            copy.close()
            return copy.role
        }
        #expect(roles == [.listening, .accepted])
        let told = Told()
        let loop = try EventLoop()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            told.needs.append("\($0) \($1)")
        }
        watch.watch([server.pid], among: [server.pid])
        client.kill(SIGUSR1)
        try told.wait(for: 1, on: loop)
        #expect(told.needs == ["\(server.pid) connection"])
        server.kill(SIGCONT)
        #expect(try client.waitForExit() == .exited(0), "\(client.errors)")
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
            watch.watch([pid], among: [pid])
            #expect(told.needs.count == round - 1)
            try server.ask()
            let deadline = ContinuousClock.now + .seconds(300)
            while told.needs.count < round {
                guard ContinuousClock.now < deadline else {
                    throw TestFailure("the request was not reported")
                }
                try loop.runOnce(timeout: 10_000)
            }
            watch.watch([], among: [pid])
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
        let deadline = ContinuousClock.now + .seconds(300)
        while needs.count < count {
            guard ContinuousClock.now < deadline else { throw TestFailure("need \(count) was not reported") }
            try loop.runOnce(timeout: 10_000)
        }
    }
}

private final class Scene {
    let loop: EventLoop
    let app: ListeningApp
    var server: Child { app.process }
    private final class Seen { var pids: [Int32] = [] }
    private let told = Seen()
    private let watcher: ConnectionWatch
    var seen: [Int32] { told.pids }

    /// - Parameters:
    ///   - accepting: the sockets on which it accepts; empty: all.
    ///   - other: the scene whose watch to use.
    init(_ sockets: Int, accepting: [Int] = [], sharing other: Scene? = nil) throws {
        let loop = try other?.loop ?? EventLoop()
        self.loop = loop
        watcher =
            try other?.watcher
            ?? ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) { [told] pid, reason in
                if reason == .connection { told.pids.append(pid) }
            }
        app = try ListeningApp(sockets, accepting: accepting)
    }

    func watch(_ pids: Set<Int32>) { watcher.watch(pids, among: pids.union([server.pid])) }

    /// - Parameter count: the number of copies to wait for; nil: all.
    func suspend(holding count: Int? = nil) throws {
        try stop()
        watch([server.pid])
        let count = count ?? app.sockets
        try wait("\(count) copies") { try held() == count }
    }

    func stop() throws {
        server.kill(SIGSTOP)
        let process = try Proc().identity(of: server.pid)
        try wait("the stop") { try Proc().state(of: process) == .stopped }
    }

    func resume() throws {
        watch([])
        try wait("the copies to be closed") { try held() == 0 }
        told.pids = []
        server.kill(SIGCONT)
    }

    func wait(_ what: String, _ isSo: () throws -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while try !isSo() {
            guard ContinuousClock.now < deadline else { throw TestFailure("\(what) did not happen") }
            try loop.runOnce(timeout: 10_000)
        }
    }

    /// How many of the server's sockets this process holds.
    func held() throws -> Int {
        let names = (0..<app.sockets).map { "\(app.directory)/\($0)" }
        // Foundation takes the first page of this file for all of it.
        let table = String(decoding: try WholeFile.read("/proc/net/unix"), as: UTF8.self).split(
            separator: "\n")
        let inodes = Set(
            table.compactMap { line -> String? in
                let words = line.split(separator: " ")
                guard words.count == 8, names.contains(String(words[7])) else { return nil }
                return "socket:[\(words[6])]"
            })
        let own = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        }
        return Set(own).intersection(inodes).count
    }
}
