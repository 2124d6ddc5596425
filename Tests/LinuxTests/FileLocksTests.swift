import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("FileLocks, on made-up text")
struct FileLocksTextTests {
    @Test("waiters belong to the lock before them; a line that cannot be parsed does not affect the others")
    func contests() throws {
        let tree = try MadeUpTree([
            "locks": """
            1: POSIX  ADVISORY  WRITE 10 a:b:1 0 EOF
            1: -> POSIX  ADVISORY  WRITE 20 a:b:1 0 EOF
            1:  -> POSIX  ADVISORY  WRITE 21 a:b:1 0 EOF
            2: POSIX  ADVISORY  WRITE 10 a:b:2 0 EOF
            3: NEW    ADVISORY  WRITE x a:b:3 0 EOF
            3: -> POSIX  ADVISORY  WRITE 22 a:b:3 0 EOF
            4: POSIX  ADVISORY  READ 11 a:b:4 0 EOF
            4: -> NEW    ADVISORY  WRITE x a:b:4 0 EOF
            4: -> POSIX  ADVISORY  WRITE 10 a:b:4 0 EOF
            4: -> POSIX  ADVISORY  WRITE 23 a:b:4 0 EOF
            5: FLOCK  ADVISORY  WRITE 99 a:b:5 0 EOF
            5: -> FLOCK  ADVISORY  WRITE 24 a:b:5 0 EOF
            6: OFDLCK ADVISORY  WRITE -1 a:b:6 0 9
            6: -> OFDLCK ADVISORY  WRITE -1 a:b:6 5 7

            """,
            "12/fdinfo/3": "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 99 a:b:5 0 EOF\n",
            "13/fdinfo/4":
                "pos:\t0\nlock:\t1: OFDLCK ADVISORY  WRITE -1 a:b:7 0 9\nlock:\t1: OFDLCK ADVISORY  WRITE -1 a:b:6 0 9\n",
        ])
        let proc = Proc(root: tree.root)
        let locks = try FileLocks(proc: proc)
        #expect(locks.contests.map(\.lock.file) == ["a:b:1", "a:b:4", "a:b:5", "a:b:6"])
        func waiters(_ pids: Set<Int32>) -> [Int32?] {
            locks.waiters(blockedBy: pids, proc: proc).map(\.pid)
        }
        #expect(waiters([10]) == [20, 21])
        #expect(waiters([10, 20]) == [21])
        #expect(waiters([10, 20, 21]) == [])
        #expect(waiters([11]) == [10, 23])
        // Requested by a process that has ended, held by one that has the file open.
        #expect(waiters([12]) == [24])
        #expect(waiters([13]) == [nil])
        #expect(waiters([20, 21, 99]) == [])
        #expect(locks.waiters(blockedBy: [12, 14], proc: proc).map(\.holder) == [12])
    }
}

/// A file that is removed with the test.
final class TestFile {
    let path = FileManager.default.temporaryDirectory
        .appendingPathComponent("linux-tests-\(UUID().uuidString)").path
    init() throws { try Data("x".utf8).write(to: URL(fileURLWithPath: path)) }
    deinit { unlink(path) }

    /// A process that does `action` with the open file `f`, prints a line and keeps running.
    func child(_ action: String) throws -> Child {
        let child = try Child(
            python: """
                import fcntl, struct
                f = open('\(path)', 'r+')
                whole = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
                say('on')
                \(action)
                say('done')
                hold()
                """)
        _ = try child.line()
        return child
    }
}

@Suite("FileLocks, on real processes", .enabled(if: Machine.hasPython, "needs python3"))
struct FileLocksTests {
    private static let flock = "fcntl.flock(f, fcntl.LOCK_EX)"

    @Test(
        "waiters are found, also behind each other, for each kind of lock",
        arguments: [
            (false, flock), (false, "fcntl.lockf(f, fcntl.LOCK_EX)"),
            (true, "fcntl.fcntl(f, 38, whole)"),
        ])
    func kinds(hasNoProcess: Bool, action: String) throws {
        let file = try TestFile()
        let holder = try file.child(action)
        #expect(try holder.line() == "done")
        #expect(try FileLocks().waiters(blockedBy: [holder.pid]) == [])
        let waiters = try (0..<2).map { _ in try file.child(action) }
        #expect(try eventually { try FileLocks().waiters(blockedBy: [holder.pid]).count == 2 })
        let found = try FileLocks().waiters(blockedBy: [holder.pid])
        #expect(found.allSatisfy { $0.holder == holder.pid })
        if hasNoProcess {
            #expect(found.map(\.pid) == [nil, nil])
        } else {
            let pids = Set(waiters.map(\.pid))
            #expect(Set(found.compactMap(\.pid)) == pids)
            #expect(try FileLocks().waiters(blockedBy: pids.union([holder.pid])) == [])
        }
        #expect(try FileLocks().waiters(blockedBy: [getpid()]) == [])
    }
}
