import Glibc
import Linux
import TestSupport
import Testing

/// A process in an application's unit of its own, and another one in that unit whose parents have ended.
final class UnitWithOrphan {
    let home: TestCgroup
    let main: Child
    let orphan: Int32

    static let isAvailable = TestCgroup.isAvailable && access(Scripts.python, X_OK) == 0
    static let whatIsMissing = "needs root, a writable cgroup2 and python3"

    /// - Parameter work: what the orphan does once it has said its number, in Python.
    init(_ work: String = "while True: signal.pause()") throws {
        let base = try #require(TestCgroup.base)
        home = try TestCgroup("app-org.example.Unit-\(UInt32.random(in: 1...(.max))).scope", below: base)
        main = try Child(
            Scripts.python,
            [
                "-c",
                """
                import os, signal, socket, sys, time
                if os.fork() != 0:
                    os.wait()
                    while True: signal.pause()
                parent = os.getpid()
                if os.fork() != 0: os._exit(0)
                while os.getppid() == parent: os.sched_yield()
                print("pid", os.getpid(), flush=True)
                \(work)
                """,
            ])
        let line = try main.waitForLine(containing: "pid ")
        orphan = try #require(Int32(line.drop { !$0.isNumber }.prefix { $0.isNumber }))
        for pid in [main.pid, orphan] { try home.take(pid) }
    }
}
