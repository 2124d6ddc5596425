import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// Somebody connects to a local socket on which a suspended application listens.
@Suite(
    "Connections to suspended applications",
    .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: access(Scripts.python, X_OK) == 0, "needs python3"),
    .enabled(if: getuid() == 0, "needs root, to copy another's descriptors"))
struct ConnectionTests {
    /// Listens on so many sockets, and answers each connection with its number.
    private static let server = """
        import os, select, socket, sys
        ends = []
        for number in range(int(sys.argv[2])):
            end = socket.socket(socket.AF_UNIX)
            end.bind(f"{sys.argv[1]}/{number}")
            end.listen()
            ends.append(end)
        print("listens", flush=True)
        accepting = [ends[int(number)] for number in sys.argv[3:]] or ends
        while True:
            for end in select.select(accepting, [], [])[0]:
                with end.accept()[0] as connection:
                    connection.sendall(str(ends.index(end)).encode())
        """

    private final class Scene {
        let directory = NSTemporaryDirectory() + "connections.\(UUID().uuidString)"
        let daemon: TestDaemon
        let client: Client
        let server: Child
        var path = ""

        /// - Parameter accepting: on which of them; empty: all.
        init(_ sockets: Int, accepting: [Int] = []) throws {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
            daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=0\n")
            client = try daemon.subscriber()
            server = try Child(
                Scripts.python,
                ["-c", ConnectionTests.server, directory, "\(sockets)"] + accepting.map { "\($0)" })
            try server.waitForLine(containing: "listens")
        }

        func suspend() throws {
            path = try client.register(
                "org.example.Server", server.pid, [("suspension", .string("automatic"))])
            try client.wait(for: path, toBe: "suspended")
            try waitUntilWatched()
        }

        /// The look at what it listens on comes after the suspension was told.
        func waitUntilWatched() throws {
            try client.wait("the daemon to hold its sockets") { try held() > 0 }
        }

        /// How many of the server's sockets the daemon has.
        func held() throws -> Int {
            func sockets(_ pid: Int32) throws -> Set<String> {
                Set(
                    try FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd").compactMap {
                        try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/fd/\($0)")
                    }.filter { $0.hasPrefix("socket:") })
            }
            return try sockets(daemon.process.pid).intersection(sockets(server.pid)).count
        }

        /// What the server answers.
        func connect(_ number: Int) throws -> Child {
            try Child(
                Scripts.python,
                [
                    "-c",
                    """
                    import socket, sys
                    end = socket.socket(socket.AF_UNIX)
                    end.connect(sys.argv[1])
                    print("says", end.recv(10).decode())
                    """, "\(directory)/\(number)",
                ])
        }

        deinit { try? FileManager.default.removeItem(atPath: directory) }
    }

    @Test("it runs, answers, and is suspended again, each time; then nothing of it is held")
    func answered() throws {
        let scene = try Scene(3)
        try scene.suspend()
        for number in [0, 2] {
            #expect(try scene.held() == 3)
            let caller = try scene.connect(number)
            #expect(try caller.waitForExit() == .exited(0), "\(caller.errors)")
            #expect(caller.output == "says \(number)\n")
            #expect(try scene.client.explain(scene.path)["last-demand"] == .string("connection"))
            try scene.client.wait(for: scene.path, toBe: "suspended")
            try scene.waitUntilWatched()
        }
        try scene.client.application(scene.path, "Resume")
        #expect(try scene.held() == 0)
    }

    @Test("one that came before the suspension counts; what a person has suspended stays so")
    func requested() throws {
        let scene = try Scene(1)
        try scene.suspend()
        try scene.client.application(scene.path, "Suspend")
        let caller = try scene.connect(0)
        try scene.client.wait("the connection to be seen") { try scene.held() == 0 }
        try scene.client.settle()
        #expect(try scene.client.state(scene.path) == "suspended")
        #expect(try scene.client.holds(scene.path).contains("request uid:0"))
        try scene.client.application(scene.path, "Resume")
        #expect(try caller.waitForExit() == .exited(0))
    }

    @Test("one that is never accepted wakes it once; others that come to other sockets do")
    func leaked() throws {
        let scene = try Scene(2, accepting: [1])
        try scene.suspend()
        let waiting = try scene.connect(0)
        try scene.client.wait(for: scene.path, toBe: "background")
        try scene.client.wait(for: scene.path, toBe: "suspended")
        try scene.client.wait("the other socket alone to be held") { try scene.held() == 1 }
        #expect(try scene.connect(1).waitForExit() == .exited(0))
        try scene.client.wait(for: scene.path, toBe: "suspended")
        #expect(waiting.advance() == nil)
    }

    @Test("of many sockets few are held, and of one that is killed none")
    func many() throws {
        let scene = try Scene(40)
        try scene.suspend()
        #expect(try scene.held() == 16)
        scene.server.kill(SIGKILL)
        try scene.client.wait("its end") { try scene.client.list().isEmpty }
        let caller = try scene.connect(0)
        #expect(try caller.waitForExit() == .exited(1))
        #expect(caller.errors.contains("ConnectionRefused"))
    }
}
