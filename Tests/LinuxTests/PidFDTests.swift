import CLinux
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("PidFD, on real processes")
struct PidFDTests {
    @Test(
        "a thread that is not its process's leader is refused",
        .enabled(if: Machine.hasPython, "needs python3"))
    func thread() throws {
        let child = try Child(
            python: """
                import threading
                threading.Thread(target=lambda: (say(threading.get_native_id()), hold())).start()
                """)
        let thread = try child.numbers()[0]
        let thrown = failure { _ = try PidFD(pid: thread) }
        #expect(thrown?.errno == EINVAL || thrown?.errno == ENOENT)
    }

    @Test("a zombie's status is known before it is waited for")
    func zombie() throws {
        let child = try Child(["sh", "-c", "read line; exit 3"])
        let pidfd = try PidFD(pid: child.pid)
        child.tell("")
        try child.waitUntilZombie()
        #expect(pidfd.hasExited == true)
        #expect(pidfd.exitStatus() == .exited(3))
        #expect(failure { _ = try pidfd.pid() }?.isNoSuchProcess == true)
    }

    @Test(
        "the exit of a zombie leader is reported with its last thread",
        .enabled(if: Machine.hasPython, "needs python3"))
    func zombieLeader() throws {
        let child = try zombieLeaderChild()
        let pidfd = try PidFD(pid: child.pid)
        child.closeInput()
        #expect(try ready(pidfd.rawValue))
        #expect(pidfd.exitStatus() == .exited(7))
    }

    @Test("a descriptor that is passed on names the same process")
    func adopt() throws {
        let child = try Child.idle()
        let first = try PidFD(pid: child.pid)
        let second = try PidFD(adopting: first.duplicate())
        #expect(try second.pid() == child.pid)
        #expect(second.rawValue != first.rawValue)
        try second.send(SIGKILL)
        #expect(try ready(first.rawValue))
    }

    @Test(
        "status words are decoded as wait(2) defines them",
        arguments: [
            (Int32(0), Linux.ExitStatus.exited(0)), (0x0100, .exited(1)), (0xFF00, .exited(255)),
            (9, .signalled(9, coreDumped: false)), (0x8B, .signalled(11, coreDumped: true)),
            (0x137F, .unknown),
        ])
    func waitStatus(word: Int32, status: Linux.ExitStatus) {
        #expect(Linux.ExitStatus(waitStatus: word) == status)
    }
}

extension PidFD {
    /// Another descriptor of the same process.
    fileprivate func duplicate() throws -> Descriptor {
        let copy = fcntl(rawValue, F_DUPFD_CLOEXEC, 3)
        guard copy >= 0 else { throw Trouble("dup: \(errno)") }
        return Descriptor(owning: copy)
    }
}

@Suite("Descriptor")
struct DescriptorTests {
}
