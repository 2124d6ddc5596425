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
