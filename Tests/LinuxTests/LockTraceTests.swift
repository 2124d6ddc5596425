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

}

@Suite("LockTrace, where it cannot be opened")
struct LockTraceRefusalTests {
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
