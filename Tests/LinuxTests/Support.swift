import Foundation
import Glibc
import TestSupport

@testable import Linux

/// A child process of the test with a socket to and from it. When it is released, its process group is ended.
final class Child {
    let pid: Int32
    private let socket: Descriptor
    private var pending: [UInt8] = []
    private var isReaped = false

    init(_ arguments: [String]) throws {
        let ends = try socketPair()
        let its = Descriptor(owning: ends.1)
        socket = Descriptor(owning: ends.0)
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        posix_spawn_file_actions_adddup2(&actions, its.rawValue, 0)
        posix_spawn_file_actions_adddup2(&actions, its.rawValue, 1)
        setDefaultSignals(&attributes)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF))
        posix_spawnattr_setpgroup(&attributes, 0)
        var pointers = arguments.map { strdup($0) }
        pointers.append(nil)
        defer { for pointer in pointers { free(pointer) } }
        var pid: Int32 = 0
        let result = posix_spawnp(&pid, arguments[0], &actions, &attributes, pointers, environ)
        guard result == 0 else { throw Trouble("posix_spawnp \(arguments[0]): \(result)") }
        self.pid = pid
    }

    /// Runs Python; `script` sees os, sys, signal and time, and `say`, which prints a line at once.
    convenience init(python script: String) throws {
        let prelude = """
            import os, sys, signal, time, ctypes
            def say(*words): os.write(1, (" ".join(str(w) for w in words) + "\\n").encode())
            def hold(): sys.stdin.read()

            """
        try self.init(["/usr/bin/python3", "-c", prelude + script])
    }

    /// A process that ends when the test closes its input.
    static func idle() throws -> Child { try Child(["cat"]) }

    deinit {
        kill(-pid, SIGKILL)
        kill(pid, SIGKILL)
        if !isReaped { waitpid(pid, nil, 0) }
    }

    /// The next line that it prints.
    func line() throws -> String {
        while true {
            if let end = pending.firstIndex(of: 10) {
                defer { pending.removeSubrange(...end) }
                return String(decoding: pending[..<end], as: UTF8.self)
            }
            guard try ready(socket.rawValue) else { throw Trouble("no line from \(pid)") }
            var chunk = [UInt8](repeating: 0, count: 4096)
            let count = read(socket.rawValue, &chunk, chunk.count)
            guard count > 0 else { throw Trouble("\(pid) has closed its output") }
            pending += chunk[..<count]
        }
    }

    /// The numbers of the next line.
    func numbers() throws -> [Int32] {
        try line().split(separator: " ").compactMap { Int32($0) }
    }

    func tell(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = send(socket.rawValue, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }

    func closeInput() {
        shutdown(socket.rawValue, Int32(SHUT_WR))
    }

    /// Waits until the child itself has stopped, according to the notification to its parent.
    func waitUntilStopped() throws {
        var info = siginfo_t()
        guard waitid(P_PID, id_t(pid), &info, WSTOPPED | WNOWAIT) == 0 else {
            throw Trouble("waitid: \(errno)")
        }
    }

    /// Waits until it has ended and leaves the zombie.
    func waitUntilZombie() throws {
        var info = siginfo_t()
        guard waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT) == 0 else {
            throw Trouble("waitid: \(errno)")
        }
    }

    @discardableResult
    func reap() throws -> Int32 {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { throw Trouble("waitpid: \(errno)") }
        isReaped = true
        return status
    }
}

struct Trouble: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

/// Two connected sockets, close-on-exec from the start because other tests start processes meanwhile.
func socketPair() throws -> (Int32, Int32) {
    var ends: [Int32] = [0, 0]
    let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw Trouble("socketpair: \(errno)") }
    return (ends[0], ends[1])
}

/// Waits until the descriptor is readable; false after five minutes: a bound for a broken test.
func ready(_ descriptor: Int32) throws -> Bool {
    var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    while true {
        let result = poll(&look, 1, 300_000)
        if result < 0, errno == EINTR { continue }
        return result > 0
    }
}

/// A directory of files that replaces another one.
final class MadeUpTree {
    let root: String

    /// - Parameter isOnDisk: /tmp may be a tmpfs, whose pages the kernel never has to read again.
    init(_ files: [String: String], isOnDisk: Bool = false) throws {
        let place = isOnDisk ? URL(fileURLWithPath: "/var/tmp") : FileManager.default.temporaryDirectory
        root = place.appendingPathComponent("linux-tests-\(UUID().uuidString)").path
        for (name, text) in files {
            let file = URL(fileURLWithPath: root).appendingPathComponent(name)
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }
    }

    deinit {
        try? FileManager.default.removeItem(atPath: root)
    }
}

enum Machine {
    static let hasPython = access("/usr/bin/python3", X_OK) == 0
    static let isRoot = geteuid() == 0

    /// Whether the running kernel is at least this version.
    static func isLinux(_ major: Int, _ minor: Int) -> Bool {
        var name = utsname()
        uname(&name)
        let release = withUnsafeBytes(of: &name.release) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        let numbers = release.split(whereSeparator: { !$0.isNumber }).prefix(2).compactMap { Int($0) }
        guard numbers.count == 2 else { return false }
        return (numbers[0], numbers[1]) >= (major, minor)
    }

    /// Whether the kernel's signals may be traced: requires CAP_PERFMON and CAP_SYS_ADMIN in the first namespace.
    static let canTrace: Bool = {
        guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
            let line = status.split(separator: "\n").first(where: { $0.hasPrefix("CapEff:") }),
            let mask = UInt64(line.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16)
        else { return false }
        return mask & (1 << 38) != 0 && mask & (1 << 21) != 0 && Proc().isInitialPIDNamespace
    }()
}

/// The error that a call throws, or nil.
func failure(of body: () throws -> Void) -> KernelFailure? {
    do {
        try body()
        return nil
    } catch {
        return error as? KernelFailure
    }
}

extension KernelFailure {
    /// The operation is not permitted (`EPERM`, `EACCES`).
    var isPermissionDenied: Bool { errno == EPERM || errno == EACCES }
}
