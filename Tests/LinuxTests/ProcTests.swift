import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Proc, on real processes")
struct ProcTests {
    let proc = Proc()

    @Test(
        "stat is parsed for a name with blanks and parentheses",
        .enabled(if: Machine.hasPython, "needs python3"))
    func awkwardName() throws {
        let child = try Child(python: "open('/proc/self/comm','w').write('x) R 1 (y z'); say('on'); hold()")
        _ = try child.line()
        let stat = try proc.stat(child.pid)
        #expect(stat.comm == "x) R 1 (y z")
        #expect(stat.pid == child.pid)
        #expect(stat.parent == getpid())
        #expect(stat.session == getsid(0))
        #expect(!stat.isKernelThread)
    }

    @Test("a name that is not UTF-8 is repaired", .enabled(if: Machine.hasPython, "needs python3"))
    func brokenName() throws {
        let child = try Child(
            python: "open('/proc/self/comm','wb').write(b'a\\xff)\\nb'); say('on'); hold()")
        _ = try child.line()
        #expect(try proc.stat(child.pid).comm == "a\u{FFFD})\nb")
        // The status file escapes the name, so that it cannot imitate a line.
        #expect(try proc.status(child.pid).owner.isWholly(getuid()))
    }

    @Test("an identity is stable, and another process has another identity")
    func identity() throws {
        let one = try Child.idle()
        let other = try Child.idle()
        let identity = try proc.identity(of: one.pid)
        #expect(try identity == proc.identity(of: one.pid))
        #expect(try identity != proc.identity(of: other.pid))
        #expect(identity.description == "\(one.pid)@\(identity.startTime)")
        #expect(try identity.startTime >= proc.identity(of: getpid()).startTime)
    }

    @Test("every query about an ended process gives ESRCH")
    func gone() throws {
        let child = try Child.idle()
        let identity = try proc.identity(of: child.pid)
        kill(child.pid, SIGKILL)
        try child.reap()
        let pid = child.pid
        #expect(failure { _ = try proc.stat(pid) }?.isNoSuchProcess == true)
        #expect(failure { _ = try proc.status(pid) }?.isNoSuchProcess == true)
        #expect(failure { _ = try proc.identity(of: pid) }?.isNoSuchProcess == true)
        #expect(failure { _ = try proc.isStopped(identity) }?.isNoSuchProcess == true)
        #expect(try proc.isDying(identity))
        #expect(failure { _ = try proc.residentBytes(pid) }?.isNoSuchProcess == true)
        #expect(failure { _ = try proc.unifiedCgroup(of: pid) }?.isNoSuchProcess == true)
        #expect(proc.lineage(of: pid) == [])
    }

    @Test("a stopped process has state T until SIGCONT")
    func stopped() throws {
        let child = try Child.idle()
        let identity = try proc.identity(of: child.pid)
        #expect(try !proc.isStopped(identity) && !proc.isDying(identity))
        kill(child.pid, SIGSTOP)
        try child.waitUntilStopped()
        #expect(try proc.isStopped(identity))
        kill(child.pid, SIGCONT)
        #expect(try eventually { try !proc.isStopped(identity) })
        let impostor = ProcessIdentity(pid: child.pid, startTime: identity.startTime + 1)
        #expect(failure { _ = try proc.isStopped(impostor) }?.isNoSuchProcess == true)
    }

    @Test(
        "a process that a tracer has stopped does not count as stopped",
        .enabled(if: Machine.hasPython, "needs python3"))
    func traced() throws {
        let tracer = try Child(
            python: """
                child = os.fork()
                if child == 0:
                    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
                    os.kill(os.getpid(), signal.SIGSTOP)
                    os._exit(0)
                os.waitpid(child, os.WUNTRACED)
                say(child)
                hold()
                """)
        let traced = try tracer.numbers()[0]
        #expect(try proc.stat(traced).state == .tracingStop)
        #expect(try !proc.isStopped(proc.identity(of: traced)))
        #expect(try proc.status(traced).tracer == tracer.pid)
    }

    @Test("a zombie is recognised and does not count as stopped")
    func zombie() throws {
        let child = try Child(["true"])
        try child.waitUntilZombie()
        #expect(try proc.stat(child.pid).state == .zombie)
        let identity = try proc.identity(of: child.pid)
        #expect(try !proc.isStopped(identity) && proc.isDying(identity))
    }

    @Test(
        "a zombie leader with a live thread is alive, and is stopped when that thread is",
        .enabled(if: Machine.hasPython, "needs python3"))
    func zombieLeader() throws {
        let child = try zombieLeaderChild()
        let identity = try proc.identity(of: child.pid)
        #expect(try eventually { try proc.stat(child.pid).state == .zombie })
        let pidfd = try PidFD(pid: child.pid)
        #expect(pidfd.hasExited == false)
        #expect(try pidfd.pid() == child.pid)
        #expect(pidfd.exitStatus() == .unknown)
        #expect(try !proc.isStopped(identity) && !proc.isDying(identity))
        try pidfd.send(SIGSTOP)
        #expect(try eventually { try proc.isStopped(identity) })
        try pidfd.send(SIGCONT)
        #expect(try eventually { try !proc.isStopped(identity) })
    }

    @Test("owners, parent and thread group are read")
    func status() throws {
        let child = try Child.idle()
        let status = try proc.status(child.pid)
        #expect(
            status.owner
                == Proc.Owner(
                    real: getuid(), effective: geteuid(), saved: geteuid(), filesystem: geteuid()))
        #expect(status.threadGroup == child.pid)
        #expect(status.parent == getpid())
        #expect(status.tracer == 0)
        #expect(status.namespaceDepth == 1)
    }

    @Test(
        "a set-user-ID process does not wholly belong to its user",
        .enabled(if: Machine.isRoot && Machine.hasPython, "needs root and python3"))
    func partOwner() throws {
        let child = try Child(python: "os.seteuid(65534); say('on'); hold()")
        _ = try child.line()
        let owner = try proc.status(child.pid).owner
        #expect(owner == Proc.Owner(real: 0, effective: 65534, saved: 0, filesystem: 65534))
        #expect(!owner.isWholly(0))
        #expect(!owner.isWholly(65534))
    }

    @Test("the process of a thread's id is found", .enabled(if: Machine.hasPython, "needs python3"))
    func thread() throws {
        let child = try Child(
            python: """
                import threading
                threading.Thread(target=lambda: (say(threading.get_native_id()), hold())).start()
                """)
        let thread = try child.numbers()[0]
        #expect(thread != child.pid)
        #expect(try proc.status(thread).threadGroup == child.pid)
    }

    @Test(
        "a process in its own PID namespace is one level deeper",
        .enabled(if: Machine.isRoot && Machine.hasPython, "needs root and python3"))
    func namespaceDepth() throws {
        let child = try Child(["unshare", "--pid", "--fork", "sh", "-c", "echo on; cat"])
        _ = try child.line()
        let inner = try proc.children(of: child.pid)
        #expect(inner.count == 1)
        #expect(try proc.status(inner[0]).namespaceDepth == 2)
    }

    @Test(
        "kernel threads are recognised",
        .enabled(if: Proc().isInitialPIDNamespace, "needs the first PID namespace"))
    func kernelThread() throws {
        // Process 2 has been kthreadd in every kernel since 2.4.
        #expect(try proc.stat(2).isKernelThread)
        #expect(proc.lineage(of: 2) == [])
        let pidfd = try PidFD(pid: 2)
        #expect(try pidfd.pid() == 2)
    }

    @Test("resident memory grows with touched pages", .enabled(if: Machine.hasPython, "needs python3"))
    func resident() throws {
        let child = try Child(
            python: "say('on'); sys.stdin.readline(); b = bytearray(b'x') * (32 << 20); say('on'); hold()")
        _ = try child.line()
        let before = try proc.residentBytes(child.pid)
        child.tell("")
        _ = try child.line()
        #expect(try proc.residentBytes(child.pid) >= before + (30 << 20))
    }

    @Test("the cgroup is the one that the file names")
    func cgroup() throws {
        let child = try Child.idle()
        let text = try String(contentsOfFile: "/proc/\(child.pid)/cgroup", encoding: .utf8)
        let line = text.split(separator: "\n").first { $0.hasPrefix("0::") }
        #expect(try proc.unifiedCgroup(of: child.pid) == line.map { String($0.dropFirst(3)) })
    }

    @Test("all processes are listed, including this one and a child, but no threads")
    func processes() throws {
        let child = try Child.idle()
        let all = try proc.processes()
        #expect(all.contains(child.pid))
        #expect(all.contains(getpid()))
        #expect(Set(all).count == all.count)
    }
}

/// A process whose leading thread has exited while another thread waits for the end of its input.
func zombieLeaderChild() throws -> Child {
    let child = try Child(
        python: """
            import threading
            threading.Thread(target=lambda: (say('on'), hold(), os._exit(7))).start()
            libc = ctypes.CDLL(None)
            libc.syscall({'x86_64': 60}.get(os.uname().machine, 93), 0)
            """)
    _ = try child.line()
    return child
}
