import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("FileLocks, on made-up text")
struct FileLocksTextTests {
    @Test("every kind of line is parsed")
    func kinds() throws {
        let lines: [(String, Int32?, ofProcess: Bool, isWaiter: Bool)] = [
            ("1: POSIX  ADVISORY  READ  5433 08:01:7864448 128 128", 5433, true, false),
            ("2: FLOCK  ADVISORY  WRITE 2001 08:01:7864554 0 EOF", 2001, false, false),
            ("2:  -> FLOCK  ADVISORY  WRITE 12 fe:00:1 0 EOF", 12, false, true),
            ("3: OFDLCK ADVISORY  WRITE -1 08:01:8713209 128 191", nil, false, false),
            ("3: -> OFDLCK ADVISORY  WRITE -1 08:01:8713209 128 191", nil, false, true),
            ("4: LEASE  BREAKING  UNLCK 9 fe:00:1 0 EOF", 9, false, false),
            ("4: -> LEASE  BREAKER   WRITE 10 <none>:0 0 EOF", 10, false, true),
            ("5: DELEG  ACTIVE    READ 0 fe:00:1 0 EOF", nil, false, false),
            ("6: ACCESS *NOINODE* READ 7 <none>:0 0 EOF", 7, true, false),
        ]
        for (line, pid, isOfProcess, isWaiter) in lines {
            let found = FileLocks.parse(line)
            let lock = try #require(found.lock, "\(line)")
            #expect(lock.isOfProcess == isOfProcess)
            #expect(lock.pid == pid)
            #expect(found.isWaiter == isWaiter)
        }
        let bad = ["", "1:", "1: -> ", "POSIX ADVISORY READ 1 a 0 EOF"]
        for line in bad + ["1: POSIX ADVISORY READ x a 0 EOF", "1: FLOCK ADVISORY WRITE 1 a:b:c 0"] {
            #expect(FileLocks.parse(line).lock == nil, "\(line)")
        }
    }

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

    /// A process that holds a lease on it and does not give it up.
    func leaseholder() throws -> Child {
        let holder = try Child(
            python: """
                import fcntl
                signal.signal(signal.SIGIO, signal.SIG_IGN)
                f = open('\(path)')
                # EAGAIN: a child that another test starts has the file open for writing until it runs its program.
                while True:
                    try: fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                    except BlockingIOError: time.sleep(0.01)
                    else: break
                say('on')
                hold()
                """)
        _ = try holder.line()
        return holder
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

    @Test("a flock that a child inherited belongs to the child")
    func inherited() throws {
        let file = try TestFile()
        let holder = try file.child(
            """
            \(Self.flock)
            child = os.fork()
            if child == 0: signal.pause()
            f.close()
            say(child)
            """)
        let heir = try holder.numbers()[0]
        let waiter = try file.child(Self.flock)
        #expect(
            try eventually { try FileLocks().waiters(blockedBy: [heir]).map(\.pid) == [waiter.pid] })
        #expect(try FileLocks().waiters(blockedBy: [holder.pid]) == [])
    }

    @Test("the process that breaks a lease counts as its waiter")
    func lease() throws {
        let file = try TestFile()
        let holder = try file.leaseholder()
        let breaker = try Child(python: "say('on'); open('\(file.path)', 'r+')")
        _ = try breaker.line()
        #expect(
            try eventually {
                try FileLocks().waiters(blockedBy: [holder.pid]).map(\.pid) == [breaker.pid]
            })
    }

    @Test(
        "a frozen process does not count as a waiter until it is thawed; its own locks block others",
        .enabled(if: Machine.canMakeCgroups, "needs root and a writable cgroup2"))
    func frozen() throws {
        let file = try TestFile()
        let own = try TestCgroup()
        let holder = try file.child(Self.flock)
        _ = try holder.line()
        let waiter = try file.child(Self.flock)
        #expect(try eventually { try FileLocks().waiters(blockedBy: [holder.pid]).count == 1 })
        try own.take(waiter.pid)
        let events = try CgroupEvents(own.cgroup)
        try own.cgroup.freeze()
        #expect(try awaited(events) { $0.isFrozen })
        #expect(try FileLocks().waiters(blockedBy: [holder.pid]) == [])
        try own.cgroup.thaw()
        #expect(try eventually { try FileLocks().waiters(blockedBy: [holder.pid]).count == 1 })

        let other = try TestCgroup()
        try other.take(holder.pid)
        let its = try CgroupEvents(other.cgroup)
        try other.cgroup.freeze()
        #expect(try awaited(its) { $0.isFrozen })
        #expect(try FileLocks().waiters(blockedBy: [holder.pid]).map(\.pid) == [waiter.pid])
    }

    @Test(
        "the tracer of a thread is found",
        .enabled(if: Machine.isRoot, "needs root: Yama keeps siblings from tracing each other"))
    func tracer() throws {
        let child = try Child(
            python: """
                import threading
                threading.Thread(target=lambda: (say(threading.get_native_id()), hold())).start()
                """)
        let thread = try child.numbers()[0]
        #expect(Proc().tracer(ofAny: [child.pid]) == nil)
        // PTRACE_SEIZE, so that nothing stops.
        let tracer = try Child(
            python: "say(ctypes.CDLL(None).ptrace(0x4206, \(thread), None, None)); hold()")
        try #require(try tracer.line() == "0")
        #expect(try Proc().status(child.pid).tracer == 0)
        #expect(Proc().tracer(ofAny: [child.pid]) == tracer.pid)
    }
}
