import Foundation
import Glibc
import TestSupport
import Testing

/// A process that listens on local sockets and answers each connection with the socket's number.
final class ListeningApp {
    static let python = "/usr/bin/python3"
    /// Whether its sockets can be copied: pidfd_getfd(2).
    static let mayBeCopied: Bool = {
        guard access(python, X_OK) == 0 else { return false }
        let scope = try? String(contentsOfFile: "/proc/sys/kernel/yama/ptrace_scope", encoding: .utf8)
        return geteuid() == 0 || scope == nil || scope == "0\n"
    }()
    static let whatIsMissing: Comment = "needs python3, and kernel.yama.ptrace_scope=0 or root"

    private static let program = """
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

    let directory = NSTemporaryDirectory() + "connections.\(UUID().uuidString)"
    let sockets: Int
    let process: Child

    /// - Parameter accepting: the sockets on which it accepts; empty: all.
    init(_ sockets: Int, accepting: [Int] = []) throws {
        self.sockets = sockets
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        process = try Child(
            Self.python, ["-c", Self.program, directory, "\(sockets)"] + accepting.map { "\($0)" })
        try process.waitForLine(containing: "listens")
    }

    /// A client that prints when it is connected and what it receives.
    func connect(_ number: Int) throws -> Child {
        try Child(
            Self.python,
            [
                "-c",
                """
                import socket, sys
                end = socket.socket(socket.AF_UNIX)
                end.connect(sys.argv[1])
                print("connected", flush=True)
                print("says", end.recv(10).decode())
                """, "\(directory)/\(number)",
            ])
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }
}
