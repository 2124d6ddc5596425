import Glibc
import TestSupport
import Testing

@testable import Linux

extension SignalTests {
    @Suite(
        "StopTrace, on the running kernel",
        .enabled(if: Machine.canTrace, "needs CAP_PERFMON and CAP_SYS_ADMIN in the first PID namespace"))
    struct StopTraceTests {
        static let python = Machine.hasPython

        /// Drains until `isDone`, waiting for the descriptors; false after five minutes of silence.
        private func watch(
            _ trace: StopTrace, until isDone: (StopTrace.Hint?) -> Bool
        ) throws -> Bool {
            var looks = trace.descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            var done = false
            while !done {
                guard poll(&looks, nfds_t(looks.count), 300_000) > 0 else { return false }
                for descriptor in trace.descriptors {
                    let drained = trace.drain(descriptor) { if isDone($0) { done = true } }
                    if drained == .lost, isDone(nil) { done = true }
                }
            }
            return true
        }

        /// Sends until the hint arrives: one that is lost in the flood of another test is caused again.
        ///
        /// - Parameter other: gets every other hint.
        private func expect(
            _ expected: StopTrace.Hint, from trace: StopTrace, other: (StopTrace.Hint) -> Void = { _ in },
            at location: SourceLocation = #_sourceLocation, _ send: () -> Void
        ) throws {
            var isHinted = false
            let deadline = ContinuousClock.now + .seconds(300)
            while !isHinted, ContinuousClock.now < deadline {
                send()
                let isOver = try watch(trace) { hint in
                    if let hint, hint != expected { other(hint) }
                    if hint == expected { isHinted = true }
                    return hint == nil || isHinted
                }
                try #require(isOver, sourceLocation: location)
            }
            #expect(isHinted, sourceLocation: location)
        }

        @Test("a stop and a continue by another process cause hints, with the sender")
        func stopAndContinue() throws {
            let target = try Child.idle()
            let trace = try StopTrace.open()
            let sender = try Child(["sh", "-c", "while read s; do kill -$s \(target.pid); done"])
            for (name, signal) in [
                ("STOP", SIGSTOP), ("CONT", SIGCONT), ("TSTP", SIGTSTP), ("CONT", SIGCONT), ("TTIN", SIGTTIN),
                ("TTOU", SIGTTOU), ("CONT", SIGCONT),
            ] {
                let expected = StopTrace.Hint(target: target.pid, signal: signal, sender: sender.pid)
                try expect(expected, from: trace) { sender.tell(name) }
            }
        }

        @Test(
            "a stop that is ignored or handled still causes a hint", .enabled(if: python, "needs python3"))
        func ignored() throws {
            let trace = try StopTrace.open()
            for handler in ["signal.SIG_IGN", "lambda *a: say('handled')"] {
                let target = try Child(python: "signal.signal(signal.SIGTSTP, \(handler)); say('on'); hold()")
                _ = try target.line()
                let expected = StopTrace.Hint(target: target.pid, signal: SIGTSTP, sender: getpid())
                try expect(expected, from: trace) { kill(target.pid, SIGTSTP) }
                #expect(try !Proc().isStopped(Proc().identity(of: target.pid)))
            }
        }
    }
}

@Suite("StopTrace, where it cannot be opened")
struct StopTraceRefusalTests {
    @Test(
        "StopTrace is refused without privileges, with a readable error",
        .enabled(if: !Machine.isRoot, "needs not to be root"))
    func unprivileged() throws {
        let thrown = failure { _ = try StopTrace.open() }
        #expect(thrown?.isPermissionDenied == true)
        #expect(thrown?.description == "fsopen tracefs: Operation not permitted")
    }

    @Test("another PID namespace is refused")
    func otherNamespace() throws {
        let tree = try MadeUpTree(["self/ns/pid": ""])
        let thrown = failure { _ = try StopTrace.open(proc: Proc(root: tree.root)) }
        #expect(thrown?.errno == EXDEV)
    }
}

/// From Linux 6.18.
let signalGenerateFormat = """
    name: signal_generate
    ID: 212
    format:
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

    \tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;
    \tfield:int errno;\toffset:12;\tsize:4;\tsigned:1;
    \tfield:int code;\toffset:16;\tsize:4;\tsigned:1;
    \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;
    \tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;
    \tfield:int group;\toffset:40;\tsize:4;\tsigned:1;
    \tfield:int result;\toffset:44;\tsize:4;\tsigned:1;

    print fmt: "sig=%d errno=%d code=%d comm=%s pid=%d grp=%d res=%d", REC->sig, REC->errno
    """
