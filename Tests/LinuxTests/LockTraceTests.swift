import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite(
    "LockTrace, on the running kernel", .serialized,
    .enabled(if: Machine.whyNoLockTrace == nil, Comment(rawValue: Machine.whyNoLockTrace ?? "")),
    .enabled(if: Machine.hasPython, "needs python3"))
struct LockTraceTests {
    /// Waits for a hint, then checks, and repeats this when hints of other processes arrive. False after five minutes
    /// of silence.
    private func hinted(_ trace: LockTrace, until isDone: () throws -> Bool) throws -> Bool {
        var looks = trace.descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while poll(&looks, nfds_t(looks.count), 300_000) > 0 {
            if trace.drain(), try isDone() { return true }
        }
        return false
    }

    /// Whether no hint arrives while `body` runs, once in five minutes: other processes on the machine wait too.
    private func isSilent(_ trace: LockTrace, _ body: () throws -> Void) rethrows -> Bool {
        try eventually {
            _ = trace.drain()
            try body()
            return !trace.drain()
        }
    }

    static let flock = "fcntl.flock(f, fcntl.LOCK_EX)"
    static let posix = "fcntl.lockf(f, fcntl.LOCK_EX)"
    static let ofd = "fcntl.fcntl(f, 38, whole)"

    @Test(
        "a process that waits for a lock causes a hint and is in the list by then",
        arguments: [flock, posix, ofd])
    func waiter(action: String) throws {
        let file = try TestFile()
        let holder = try file.child(action)
        #expect(try holder.line() == "done")
        let trace = try LockTrace()
        for count in 1...2 {
            // The child prints a line before it requests the lock.
            let waiter = try file.child(action)
            #expect(
                try hinted(trace) { try FileLocks().waiters(blockedBy: [holder.pid]).count >= 1 })
            // A shared request waits behind the first.
            let second = try file.child(action.replacingOccurrences(of: "LOCK_EX", with: "LOCK_SH"))
            #expect(
                try hinted(trace) { try FileLocks().waiters(blockedBy: [holder.pid]).count == 2 },
                "round \(count)")
            withExtendedLifetime((waiter, second)) {}
        }
    }

    @Test("a process that breaks a lease causes a hint")
    func lease() throws {
        let file = try TestFile()
        let holder = try file.leaseholder()
        let trace = try LockTrace()
        let breaker = try Child(python: "open('\(file.path)', 'r+')")
        #expect(
            try hinted(trace) {
                try FileLocks().waiters(blockedBy: [holder.pid]).map(\.pid) == [breaker.pid]
            })
    }

    @Test(
        "a process that continues to wait after it was stopped causes another hint",
        arguments: [flock, posix])
    func again(action: String) throws {
        let file = try TestFile()
        let holder = try file.child(action)
        #expect(try holder.line() == "done")
        let trace = try LockTrace()
        let waiter = try file.child(action)
        func waits() throws -> Bool {
            try FileLocks().waiters(blockedBy: [holder.pid]).map(\.pid) == [waiter.pid]
        }
        #expect(try hinted(trace, until: waits))
        kill(waiter.pid, SIGSTOP)
        try waiter.waitUntilStopped()
        #expect(try FileLocks().waiters(blockedBy: [holder.pid]) == [])
        kill(waiter.pid, SIGCONT)
        #expect(try hinted(trace, until: waits))
    }

    @Test("free locks, and requests that do not wait, cause no wakeup", arguments: [false, true])
    func silence(isHeld: Bool) throws {
        let file = try TestFile()
        let holder = try file.child(isHeld ? "\(Self.flock); \(Self.posix)" : "")
        #expect(try holder.line() == "done")
        let own = try Child(
            python: """
                import fcntl
                f = open('\(file.path)', 'r+')
                def attempt(call, how):
                    try: call(f, how)
                    except OSError: pass
                for line in sys.stdin:
                    for i in range(1000):
                        for call in (fcntl.flock, fcntl.lockf):
                            attempt(call, fcntl.LOCK_EX | (\(isHeld ? "fcntl.LOCK_NB" : "0")))
                            attempt(call, fcntl.LOCK_UN)
                    say('done')
                """)
        let trace = try LockTrace()
        #expect(
            try isSilent(trace) {
                own.tell("")
                _ = try own.line()
            })
    }

    @Test("no hints arrive while the trace is paused, and they do again afterwards")
    func paused() throws {
        let file = try TestFile()
        let holder = try file.child(Self.flock)
        #expect(try holder.line() == "done")
        let trace = try LockTrace()
        try trace.turn(on: false)
        try trace.turn(on: false)
        _ = trace.drain()
        let first = try file.child(Self.flock)
        func count() throws -> Int { try FileLocks().waiters(blockedBy: [holder.pid]).count }
        #expect(try eventually { try count() == 1 })
        // No process's at all.
        #expect(!trace.drain())
        try trace.turn(on: true)
        let second = try file.child(Self.flock)
        #expect(try hinted(trace) { try count() == 2 })
        withExtendedLifetime((first, second)) {}
    }
}

@Suite("LockTrace, where it cannot be opened")
struct LockTraceRefusalTests {
    @Test("a kernel without the tracepoint gives a readable error")
    func missing() throws {
        let missing = failure { _ = try LockTrace(tracefs: "/nonexistent") }
        #expect(missing?.description == "open /nonexistent: No such file or directory")
        let empty = try MadeUpTree(["nothing": ""])
        let thrown = failure { _ = try LockTrace(tracefs: empty.root) }
        #expect(
            thrown?.description
                == "open \(empty.root)/events/filelock/posix_lock_inode/id: No such file or directory")
        #expect(thrown?.isNoSuchFile == true)
    }

    @Test(
        "LockTrace is refused without privileges, with a readable error",
        .enabled(if: !Machine.isRoot, "needs not to be root"))
    func unprivileged() throws {
        #expect(failure { _ = try LockTrace() }?.isPermissionDenied == true)
    }
}

extension Machine {
    /// Why waits for file locks cannot be traced here; nil where they can be.
    static let whyNoLockTrace: String? = failure { _ = try LockTrace() }.map {
        "needs the tracepoints filelock:* and CAP_PERFMON: \($0)"
    }
}
