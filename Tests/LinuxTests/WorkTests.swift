import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

/// What processes are busy with.
@Suite("Work of processes", .enabled(if: access(python, X_OK) == 0, "needs python3"))
struct WorkTests {
    /// Runs a command as the session leader of a new terminal and types into that terminal.
    private final class Terminal {
        let emulator: TestSupport.Child
        private let proc = Proc()

        init(_ command: [String], typing text: String = "") throws {
            emulator = try TestSupport.Child(
                python,
                [
                    "-c",
                    """
                    import os, pty, sys
                    pid, end = pty.fork()
                    if pid == 0: os.execvp(sys.argv[2], sys.argv[2:])
                    os.write(end, sys.argv[1].encode())
                    while True: os.read(end, 4096)
                    """, text,
                ] + command)
        }

        var pids: [Int32] { Extent.members(of: identity, proc: proc) { _ in false }.map(\.pid) }
        private var identity: ProcessIdentity {
            (try? proc.identity(of: emulator.pid)) ?? ProcessIdentity(pid: 0, startTime: 0)
        }

        /// The names of all its processes.
        var programs: [String] { pids.compactMap { try? proc.stat($0).comm } }

        /// The name of the process that works.
        func job() -> String? {
            guard case .foreground(let pid) = work() else { return nil }
            return try? proc.stat(pid).comm
        }

        /// The process that works in the background.
        func background() -> Int32? {
            guard case .background(let pid) = work(), (try? proc.stat(pid).comm) == "sleep" else {
                return nil
            }
            return pid
        }

        /// The process group that works and has no process among `pids`.
        func group() -> Int32? {
            guard case .group(let group) = work(), !pids.contains(group) else { return nil }
            return group
        }

        func work() -> TerminalJob? { proc.terminalJob(of: pids) }
    }

    @Test("a command that a shell or a script waits for is a job")
    func jobs() throws {
        let script = try Terminal(["sh", "-c", "sleep 1000; true"])
        #expect(eventually { script.job() == "sleep" })
        let shell = try Terminal(["sh", "-i"], typing: "sleep 1000\n")
        #expect(eventually { shell.job() == "sleep" })
    }

    @Test("a command in the background is a job until it is stopped; a waiting session leader is none")
    func idle() throws {
        let editor = try Terminal(["sleep", "1000"])
        #expect(eventually { editor.programs.contains("sleep") })
        // It may not have begun to wait.
        #expect(eventually { editor.job() == nil })
        let shell = try Terminal(["sh", "-i"], typing: "sleep 1000 &\n")
        #expect(eventually { shell.background() != nil })
        let job = try #require(shell.background())
        // Its execve(2) may not be complete.
        #expect(eventually { Proc().commandLine(of: job) == "sleep 1000" })
        kill(job, SIGSTOP)
        #expect(eventually { shell.work() == nil })
    }

    @Test(
        "a shell that waits for its background jobs is a job, but not at its prompt",
        arguments: [["bash", "--norc", "-i"], ["dash", "-i"]])
    func waiting(_ command: [String]) throws {
        let waiting = try Terminal(command, typing: "sleep 1000 & wait\n")
        #expect(eventually { waiting.job() == command[0] })
        let prompt = try Terminal(command, typing: "sleep 1000 &\n")
        #expect(eventually { prompt.programs.contains("sleep") })
        #expect(eventually { prompt.job() == nil })
    }

    @Test(
        "a script that waits for its background jobs is a job, and so is the rest of a pipeline",
        arguments: ["bash", "dash"])
    func pipeline(_ shell: String) throws {
        let script = try Terminal([shell, "-c", "sleep 1000 & wait"])
        #expect(eventually { script.job() == "sleep" })
        let pipeline = try Terminal([shell, "-i"], typing: "true | sleep 1000\n")
        #expect(eventually { pipeline.job() == "sleep" })
    }

    @Test("a foreground process group of orphans is a job")
    func orphans() throws {
        let terminal = try Terminal([
            python, "-c",
            """
            import os, signal
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            go, begin = os.pipe()
            job = os.fork()
            if job == 0:
                os.setpgid(0, 0)
                os.read(go, 1)
                if os.fork() == 0:
                    while True: signal.pause()
                os._exit(0)
            try: os.setpgid(job, job)
            except OSError: pass
            os.tcsetpgrp(0, job)
            os.write(begin, b"x")
            os.waitpid(job, 0)
            while True: signal.pause()
            """,
        ])
        var group: Int32?
        defer { if let group, group > 1 { kill(-group, SIGKILL) } }
        #expect(
            eventually {
                group = terminal.group()
                return group != nil
            })
        if let group, group > 1 { kill(-group, SIGKILL) }
        #expect(eventually { terminal.work() == nil })
    }

    private func look(at pid: Int32, _ owner: UInt32 = getuid()) -> NetworkTraffic {
        NetworkTraffic(of: OpenFiles(of: [pid]), owner: owner)
    }

    @Test("TCP traffic is counted, over IPv4 and IPv6", arguments: ["127.0.0.1", "::1"])
    func traffic(_ address: String) throws {
        let sender = try TestSupport.Child(
            python,
            [
                "-c",
                """
                import socket, sys, time
                family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
                try: end = socket.create_server((sys.argv[1], 0), family=family)
                except OSError: print("none", flush=True); sys.exit()
                out = socket.create_connection(end.getsockname()[:2])
                there = end.accept()[0]
                out.sendall(bytes(10000)); print("sent", flush=True)
                while True:
                    there.recv(10000, socket.MSG_WAITALL)
                    time.sleep(0.01)
                    out.sendall(bytes(10000))
                """, address,
            ])
        guard try sender.waitForLine(containing: "n") != "none" else { return }
        let before = look(at: sender.pid)
        #expect(before.isInUse)
        var rate: UInt64 = 0
        #expect(
            eventually {
                rate = look(at: sender.pid).rate(since: before)
                return rate > 0
            })
        let other = try Child.idle()
        #expect(!look(at: other.pid).isInUse)
        #expect(!look(at: sender.pid, getuid() + 1).isInUse)
        #expect(before.rate(since: before) == 0)
        #expect(before.isWhole)
    }

    @Test("bytes that wait in a TCP connection are found", arguments: ["127.0.0.1", "::1"])
    func unread(_ address: String) throws {
        let reader = try TestSupport.Child(
            python,
            [
                "-c",
                """
                import signal, socket, sys
                family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
                try: end = socket.create_server((sys.argv[1], 0), family=family)
                except OSError: print("none", flush=True); sys.exit()
                out = socket.create_connection(end.getsockname()[:2])
                there = end.accept()[0]
                signal.signal(signal.SIGUSR1, lambda *_: out.sendall(b"x"))
                signal.signal(signal.SIGUSR2, lambda *_: there.recv(1))
                print("on", flush=True)
                while True: signal.pause()
                """, address,
            ])
        guard try reader.waitForLine(containing: "n") != "none" else { return }
        func isUnread() -> Bool { NetworkTraffic.isUnread(by: [reader.pid], owner: getuid()) }
        #expect(!isUnread())
        reader.kill(SIGUSR1)
        #expect(eventually(isUnread))
        let other = try Child.idle()
        #expect(!NetworkTraffic.isUnread(by: [other.pid], owner: getuid()))
        #expect(!NetworkTraffic.isUnread(by: [reader.pid], owner: getuid() + 1))
        reader.kill(SIGUSR2)
        #expect(eventually { !isUnread() })
    }
}

private let python = "/usr/bin/python3"
