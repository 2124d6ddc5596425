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
                let isWhole = trace.drain { if isDone($0) { done = true } }
                if !isWhole, isDone(nil) { done = true }
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

        @Test("other signals cause no hints")
        func otherSignals() throws {
            let target = try Child.idle()
            let trace = try StopTrace.open()
            var others: [Int32] = []
            let expected = StopTrace.Hint(target: target.pid, signal: SIGCONT, sender: getpid())
            try expect(expected, from: trace) {
                if $0.target == target.pid { others.append($0.signal) }
            } _: {
                for signal in [SIGWINCH, SIGURG, SIGCHLD, SIGCONT] { kill(target.pid, signal) }
            }
            #expect(others == [])
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

        @Test("a signal to one thread names that thread", .enabled(if: python, "needs python3"))
        func thread() throws {
            let target = try Child(
                python: """
                    import threading
                    def other():
                        say(threading.get_native_id())
                        for line in sys.stdin: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                    threading.Thread(target=other).start()
                    """)
            let thread = try target.numbers()[0]
            let trace = try StopTrace.open()
            let expected = StopTrace.Hint(target: thread, signal: SIGSTOP, sender: target.pid)
            try expect(expected, from: trace) {
                kill(target.pid, SIGCONT)
                target.tell("")
            }
            try target.waitUntilStopped()
            #expect(try Proc().status(thread).threadGroup == target.pid)
        }

        @Test(
            "a flood that is not drained loses hints, and later signals cause hints again",
            .enabled(if: python, "needs python3"))
        func flood() throws {
            let target = try Child.idle()
            let trace = try StopTrace.open()
            let sender = try Child(
                python: "say('on')\nfor line in sys.stdin:\n"
                    + "    for i in range(20000): os.kill(\(target.pid), signal.SIGCONT)\n    say('end')")
            _ = try sender.line()
            var count = 0
            var wrong = 0
            var isLost = false
            // Another test's flood may fill the rings before this one begins.
            for _ in 0..<100 where count == 0 {
                _ = trace.drain { _ in }
                sender.tell("")
                _ = try sender.line()
                let isWhole = trace.drain { hint in
                    guard hint.sender == sender.pid else { return }
                    count += 1
                    if hint.target != target.pid || hint.signal != SIGCONT { wrong += 1 }
                }
                if !isWhole { isLost = true }
            }
            #expect(isLost)
            #expect(wrong == 0)
            // As many as the rings can hold.
            #expect(count > 0 && count < 20_000)
            let expected = StopTrace.Hint(target: target.pid, signal: SIGSTOP, sender: getpid())
            try expect(expected, from: trace) { kill(target.pid, SIGSTOP) }
        }

        @Test("a release continues processes in reverse order", .enabled(if: python, "needs python3"))
        func releaseOrder() throws {
            let child = try Child(python: treeScript)
            _ = try child.numbers()
            let proc = Proc()
            let stop = SignalStop(proc: proc, main: try proc.identity(of: child.pid), owner: getuid())
            let trace = try StopTrace.open()
            // With one CPU and one ring, the order of the ring is the order of the signals.
            let cpus = try CPUList.online()
            try bindThread(to: cpus.prefix(1))
            defer { try? bindThread(to: cpus[...]) }
            var isWhole = false
            // What is lost in the flood of another test says nothing about the order.
            let deadline = ContinuousClock.now + .seconds(300)
            while !isWhole, ContinuousClock.now < deadline {
                #expect(complete(stop))
                let all = stop.stoppedByUs.map(\.pid)
                stop.release()
                var order: [Int32] = []
                isWhole = trace.drain { hint in
                    if hint.sender == getpid(), hint.signal == SIGCONT, all.contains(hint.target) {
                        order.append(hint.target)
                    }
                }
                if isWhole { #expect(order == all.reversed()) }
            }
            #expect(isWhole)
        }

        /// Binds this thread to these CPUs, with util-linux's program: Swift's Glibc lacks the system call.
        private func bindThread(to cpus: ArraySlice<Int32>) throws {
            var path = [CChar](repeating: 0, count: 64)
            let count = readlink("/proc/thread-self", &path, 63)
            let link = String(decoding: path.prefix(max(0, count)).map { UInt8($0) }, as: UTF8.self)
            let thread = try #require(link.split(separator: "/").last)
            let list = cpus.map { "\($0)" }.joined(separator: ",")
            let taskset = try Child(["taskset", "-cp", list, String(thread)])
            #expect(try taskset.reap() == 0)
        }

        @Test("nothing stays mounted, and no descriptor is leaked")
        func leavesNothing() throws {
            let mounts = try mountedTracefs()
            var numbers: [Int32] = []
            do {
                let trace = try StopTrace.open()
                numbers = trace.descriptors
                #expect(try numbers.count == CPUList.online().count)
                for number in numbers { #expect(fcntl(number, F_GETFD) == FD_CLOEXEC) }
            }
            for number in numbers {
                // Another test may have received the number for an event of its own, until that test ends.
                #expect(
                    eventually {
                        var path = [CChar](repeating: 0, count: 64)
                        let count = max(0, readlink("/proc/self/fd/\(number)", &path, 63))
                        let name = String(decoding: path[..<count].map { UInt8($0) }, as: UTF8.self)
                        return !name.contains("perf_event")
                    })
            }
            #expect(try mountedTracefs() == mounts)
        }

        /// Where tracefs is mounted; other tests mount other file systems.
        private func mountedTracefs() throws -> [Substring] {
            try Files.text(in: Descriptor.open("/proc/self/mounts"), named: "mounts", limit: 1 << 20)
                .split(separator: "\n").filter { $0.split(separator: " ").dropFirst(2).first == "tracefs" }
        }

        @Test("another tracepoint does not pass the self-test")
        func wrongTracepoint() throws {
            let real = try Tracepoint.find(["signal:signal_generate"], root: nil)[0]
            // signal_deliver is the tracepoint after it: it has a sig field but no pid.
            let tree = try MadeUpTree([
                "events/signal/signal_generate/id": "\(real.id - 1)\n",
                "events/signal/signal_generate/format": signalGenerateFormat,
            ])
            let thrown = failure { _ = try StopTrace.open(tracefs: tree.root) }
            #expect(thrown != nil)
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
