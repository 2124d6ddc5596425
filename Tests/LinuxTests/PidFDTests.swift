import CLinux
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("PidFD, on real processes")
struct PidFDTests {
    @Test("a pidfd cannot be opened for a process that does not exist")
    func noProcess() throws {
        let child = try Child(["true"])
        try child.reap()
        let thrown = failure { _ = try PidFD(pid: child.pid) }
        #expect(thrown == KernelFailure(operation: "pidfd_open", subject: "pid \(child.pid)", errno: ESRCH))
        #expect(thrown?.description == "pidfd_open pid \(child.pid): No such process")
    }

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

    @Test(
        "the exit of a killed child is seen, and its status after it was waited for",
        .enabled(if: Machine.isLinux(6, 15), "PIDFD_INFO_EXIT needs Linux 6.15"))
    func killedChild() throws {
        let child = try Child.idle()
        let pidfd = try PidFD(pid: child.pid)
        #expect(pidfd.hasExited == false)
        #expect(pidfd.exitStatus() == .unknown)
        try pidfd.send(SIGKILL)
        try child.reap()
        #expect(pidfd.hasExited == true)
        #expect(pidfd.exitStatus() == .signalled(SIGKILL, coreDumped: false))
        #expect(failure { _ = try pidfd.pid() }?.isNoSuchProcess == true)
        #expect(failure { try pidfd.send(0) }?.isNoSuchProcess == true)
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

    @Test("the status of a zombie that ended normally is known too")
    func zombieWithoutFault() throws {
        let child = try Child(["sh", "-c", "read line; exit 0"])
        let pidfd = try PidFD(pid: child.pid)
        child.tell("")
        try child.waitUntilZombie()
        #expect(pidfd.exitStatus() == .exited(0))
    }

    @Test(
        "the exit of an orphaned grandchild is polled, and its status is known",
        .enabled(if: Machine.isLinux(6, 15) && Machine.hasPython, "needs PIDFD_INFO_EXIT and python3"))
    func grandchild() throws {
        let child = try Child(
            python: """
                if os.fork() == 0:
                    if os.fork() == 0:
                        say(os.getpid())
                        sys.stdin.readline()
                        os._exit(9)
                    os._exit(0)
                os.wait()
                signal.pause()
                """)
        let grandchild = try child.numbers()[0]
        let pidfd = try PidFD(pid: grandchild)
        #expect(try eventually { try Proc().stat(grandchild).parent != child.pid })
        #expect(pidfd.hasExited == false)
        child.tell("")
        #expect(try ready(pidfd.rawValue))
        #expect(pidfd.hasExited == true)
        #expect(pidfd.exitStatus() == .exited(9))
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
        "a descriptor that is not a pidfd is refused and closed",
        arguments: ["/dev/null", "/proc/self", "/proc/self/status", "/"])
    func adoptFile(path: String) throws {
        let file = try Descriptor.open(path)
        let number = file.rawValue
        let thrown = failure { _ = try PidFD(adopting: file.duplicate()) }
        #expect(thrown?.errno == EBADF)
        #expect(fcntl(number, F_GETFD) >= 0)
    }

    @Test("a refused descriptor is closed")
    func refusedIsClosed() throws {
        let ends = try socketPair()
        let reader = Descriptor(owning: ends.0)
        let writer = ends.1
        #expect(failure { _ = try PidFD(adopting: Descriptor(owning: writer)) }?.errno == EBADF)
        // A reader sees the end only once the last writer is gone. A child that another test has just forked may hold a
        // copy until it executes its program.
        #expect(try ready(reader.rawValue))
        var look = pollfd(fd: reader.rawValue, events: Int16(POLLIN), revents: 0)
        #expect(poll(&look, 1, 0) == 1)
        #expect(look.revents & Int16(POLLHUP) != 0)
    }

    @Test(
        "a pidfd of a single thread is refused",
        .enabled(if: Machine.isLinux(6, 9), "PIDFD_THREAD needs Linux 6.9"))
    func adoptThread() throws {
        let child = try Child.idle()
        let thread = try Descriptor.taking(
            clinux_pidfd_open(child.pid, UInt32(O_EXCL)), "pidfd_open", "thread")
        #expect(failure { _ = try PidFD(adopting: thread.duplicate()) }?.errno == EINVAL)
    }

    @Test("a pidfd of an ended process is refused")
    func adoptGone() throws {
        let child = try Child.idle()
        let pidfd = try PidFD(pid: child.pid)
        kill(child.pid, SIGKILL)
        try child.reap()
        #expect(failure { _ = try PidFD(adopting: pidfd.duplicate()) }?.isNoSuchProcess == true)
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
    @Test("a descriptor closes when it ends, but not after it was given away")
    func closes() throws {
        let ends = try socketPair()
        let reader = Descriptor(owning: ends.0)
        var look = pollfd(fd: reader.rawValue, events: Int16(POLLIN), revents: 0)
        let number = Descriptor(owning: ends.1).release()
        #expect(poll(&look, 1, 0) == 0)
        do {
            let writer = Descriptor(owning: number)
            let copy = try writer.duplicate()
            #expect(fcntl(copy.rawValue, F_GETFD) == FD_CLOEXEC)
        }
        // A child that another test has just forked may hold a copy for a moment.
        #expect(try ready(reader.rawValue))
    }

    @Test("a number that is not open cannot be duplicated")
    func notOpen() throws {
        // No process has this many descriptors.
        let never = Descriptor(owning: Int32.max)
        #expect(failure { _ = try never.duplicate() }?.errno == EBADF)
    }

    @Test("the clock advances, in microseconds")
    func clock() {
        let before = Clock.monotonicMicroseconds
        poll(nil, 0, 5)
        #expect(Clock.monotonicMicroseconds >= before + 5_000)
    }
}
