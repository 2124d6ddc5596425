import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Long files of processes")
struct LongFilesTests {
    @Test("a subject is remembered for a minute, and no other one")
    func span() {
        let files = LongFiles()
        #expect(!files.contains({ .user(5) }, at: 0))
        files.insert(.user(5), at: 1_000_000)
        #expect(files.contains({ .user(5) }, at: 60_000_000))
        #expect(!files.contains({ .user(5) }, at: 61_000_000))
        for other in [LongFiles.Subject.user(6), .process(5)] {
            #expect(!files.contains({ other }, at: 1_000_000))
        }
    }

    @Test("any number of subjects takes a limited amount of memory")
    func limit() {
        let files = LongFiles()
        for pid in 0..<5_000 { files.insert(.process(Int32(pid)), at: 0) }
        let count = (0..<5_000).count { pid in files.contains({ .process(Int32(pid)) }, at: 1) }
        #expect((1...1_024).contains(count))
    }

    @Test(
        "the status of a process with 65,536 groups is not read again, and that of others is",
        .enabled(if: getuid() == 0 && Machine.hasPython, "needs root and python3"))
    func groups() throws {
        let proc = Proc()
        let child = try Child(
            python: "os.setgroups(list(range(100000, 165536))); say('on'); hold()")
        _ = try child.line()
        let other = try Child.idle()
        let failure = KernelFailure(
            operation: "read", subject: "/proc/\(child.pid)/status", errno: EFBIG)
        for _ in 0..<2 {
            #expect(throws: failure) { try proc.status(child.pid) }
            #expect(throws: KernelFailure.self) { try proc.hasPendingStop(child.pid) }
            #expect(try proc.status(other.pid).owner.isWholly(0))
        }
        #expect(try proc.status(child.pid, evenIfLong: true).owner.isWholly(0))
    }

    @Test(
        "a process with 65,536 groups can be measured and killed",
        .enabled(if: getuid() == 0 && Machine.hasPython, "needs root and python3"),
        arguments: [true, false])
    func killed(afterStop: Bool) throws {
        let proc = Proc()
        let child = try Child(
            python: """
                held = bytearray(b"x" * (20 << 20))
                os.setgroups(list(range(100000, 165536))); say('on'); hold()
                """)
        _ = try child.line()
        #expect(throws: KernelFailure.self) { try proc.status(child.pid) }
        #expect(try proc.releasableMemory(of: child.pid) >= 20 << 20)
        let main = try proc.identity(of: child.pid)
        if afterStop {
            let extent = StoppedExtent(proc: proc, main: main, owner: getuid(), evenIfLong: true)
            _ = extent.stop(within: .unlimited, isForeign: { _ in false })
            #expect(extent.members == [main])
            _ = extent.kill(within: .unlimited, isForeign: { _ in false })
        } else {
            let extent = SignalledExtent(SIGKILL, to: main, owner: getuid(), proc: proc)
            _ = extent.proceed(.unlimited, isForeign: { _ in false })
            #expect(extent.members == [main])
        }
        #expect(try child.reap() & 0x7F == SIGKILL)
    }
}
