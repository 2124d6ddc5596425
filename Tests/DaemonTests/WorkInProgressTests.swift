import AppStateBus
import AppStateContract
import Foundation
import Glibc
import LifeCycle
import Linux
import TestSupport
import Testing

/// Policy does not suspend an application that works, as far as the daemon can see it and the user's rule counts it.
@Suite(
    "Work in progress", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: access(Scripts.python, X_OK) == 0, "needs python3"))
struct WorkInProgressTests {
    private let daemon: TestDaemon
    private let client: Client

    init() throws {
        daemon = try TestDaemon(
            configuration: "[LifeCycle]\nBackgroundGraceSec=0\n", policy: LoginStandIn.policy)
        client = try daemon.subscriber()
    }

    /// A transfer that pauses and goes on with SIGUSR1.
    private static let transfer = """
        goes = True
        def pause(*_):
            global goes
            goes = not goes
        signal.signal(signal.SIGUSR1, pause)
        end = socket.create_server(("127.0.0.1", 0))
        out = socket.create_connection(end.getsockname())
        there = end.accept()[0]
        print("on", flush=True)
        while True:
            if not goes: signal.pause(); continue
            out.sendall(bytes(20000)); there.recv(20000, socket.MSG_WAITALL)
            time.sleep(0.02)
        """

    private func register(_ child: Child) throws -> String {
        try client.register("org.example.Busy", child.pid, [("suspension", .string("automatic"))])
    }

    /// Waits until policy has tried to suspend, and this objection has prevented it.
    private func wait(for reason: ObjectionReason, at path: String) throws {
        // If the machine pauses it while its work is measured, it is suspended.
        var resumes = 0
        try client.wait("the objection of \(reason)") {
            let facts = try client.explain(path)
            if facts["state"] == .string("suspended") {
                resumes += 1
                guard resumes <= 5 else { throw TestFailure("it is suspended again and again") }
                try client.application(path, "Resume")
            }
            guard facts["state"] == .string("background"), case .string(let why)? = facts["last-objection"]
            else { return false }
            return why.hasPrefix(reason.rawValue + ": ")
        }
        // Else an edge that is not read yet would be taken for a later one.
        try client.settle()
    }

    /// Sets what the user's rule counts as work.
    private func count(_ reasons: [ObjectionReason], at path: String) throws {
        try client.call(path, BusNames.application, "Configure") {
            try $0.appendDictionary([("keep-while", .strings(reasons.map(\.rawValue)))])
        }
    }

    @Test("a job in the terminal prevents suspension until it ends, unless the user's rule ignores it")
    func terminalJob() throws {
        let terminal = try Child(
            Scripts.python,
            [
                "-c",
                """
                import os, pty, signal, sys
                pid, end = pty.fork()
                if pid == 0: os.execvp("sh", ["sh", "-c", "echo job; read line; read line"])
                print(os.read(end, 100).decode(), flush=True)
                job, there = pty.fork()
                if job == 0: os.execvp("sh", ["sh", "-c", "sleep 1000 & echo pid $!; wait"])
                print(os.read(there, 100).decode(), flush=True)
                try:
                    while True: os.read(there, 100)
                except OSError:
                    # The shell has ended.
                    while True: signal.pause()
                """,
            ])
        let pid = try #require(
            Int32(terminal.waitForLine(containing: "pid ").drop { !$0.isNumber }.prefix { $0.isNumber }))
        let path = try register(terminal)
        try wait(for: .terminalJob, at: path)
        let found = "terminal-job: sleep 1000 (pid \(pid)) works in a terminal"
        try client.wait("the job's command line") { try client.listObjections(path).contains(found) }
        try count([.network, .inhibitor], at: path)
        try client.wait(for: path, toBe: "suspended")
        try count([.terminalJob], at: path)
        try client.application(path, "Resume")
        try wait(for: .terminalJob, at: path)
        kill(pid, SIGKILL)
        try client.wait(for: path, toBe: "suspended")
    }

    @Test("a transfer above the configured rate prevents suspension until it ends")
    func network() throws {
        let transfer = try Child(
            Scripts.python,
            ["-c", "import signal, socket, time\n" + Self.transfer])
        try transfer.waitForLine(containing: "on")
        let path = try register(transfer)
        try wait(for: .network, at: path)
        try daemon.reconfigure("[LifeCycle]\nBackgroundGraceSec=0\nNetworkRate=100M\n")
        try client.wait(for: path, toBe: "suspended")
    }

    @Test(
        "slow but steady writing prevents suspension until it ends",
        .enabled(if: Storage.isAvailable, Comment(rawValue: Storage.whatIsMissing)))
    func disk() throws {
        let file = try Storage.newFile()
        defer { unlink(file) }
        let copy = try Child(
            Scripts.python,
            [
                "-c",
                """
                import os, signal, sys, time
                goes = True
                def pause(*_):
                    global goes
                    goes = not goes
                signal.signal(signal.SIGUSR1, pause)
                file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
                def write(count):
                    os.ftruncate(file, 0)
                    os.pwrite(file, bytes(count), 0)
                write(65536)
                print("on", flush=True)
                while True:
                    if not goes: signal.pause(); continue
                    write(50000)
                    time.sleep(0.25)
                """, file,
            ])
        try copy.waitForLine(containing: "on")
        let path = try register(copy)
        try wait(for: .disk, at: path)
        copy.kill(SIGUSR1)
        try client.wait(for: path, toBe: "suspended")
    }

    @Test("an open line to another program prevents suspension until it is closed, a terminal's end does not")
    func device() throws {
        let printer = try Child(
            Scripts.python,
            [
                "-c",
                """
                import os, pty, signal
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                here, there = pty.openpty()
                print(os.ttyname(there), flush=True)
                signal.sigwait({signal.SIGUSR1})
                os.close(there)
                print("closed", flush=True)
                while True: signal.pause()
                """,
            ])
        let line = try printer.waitForLine(containing: "/dev/pts/")
        let host = try Child(
            Scripts.python,
            [
                "-c",
                """
                import os, signal, sys
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
                print("open", flush=True)
                signal.sigwait({signal.SIGUSR1})
                os.dup2(line, 0)
                os.close(line)
                while True: signal.pause()
                """, line,
            ])
        try host.waitForLine(containing: "open")
        printer.kill(SIGUSR1)
        try printer.waitForLine(containing: "closed")
        // It has only the master end, and counts as well, unlike a terminal.
        let other = try register(printer)
        try wait(for: .device, at: other)
        let path = try register(host)
        try wait(for: .device, at: path)
        #expect(try client.listObjections(path).contains("device: it has \(line) open"))
        try count([.network, .terminalJob], at: path)
        try client.wait(for: path, toBe: "suspended")
        try count([.device], at: path)
        try client.application(path, "Resume")
        try wait(for: .device, at: path)
        host.kill(SIGUSR1)
        try client.wait(for: path, toBe: "suspended")
        try client.wait(for: other, toBe: "suspended")
    }

    @Test("a process that must say that it is alive is not suspended, unless another one must say so")
    func watchdog() throws {
        let script = """
            import os, signal, sys
            if len(sys.argv) < 3: os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:], "x"],
                                            {"WATCHDOG_USEC": "6000000", "WATCHDOG_PID": sys.argv[1] or str(os.getpid())})
            print("on", flush=True)
            while True: signal.pause()
            """
        let watched = try Child(Scripts.python, ["-c", script, ""])
        try watched.waitForLine(containing: "on")
        let path = try register(watched)
        try wait(for: .watchdog, at: path)
        try count([.network], at: path)
        try client.wait(for: path, toBe: "suspended")
        let other = try Child(Scripts.python, ["-c", script, "1"])
        try other.waitForLine(containing: "on")
        try client.wait(for: try register(other), toBe: "suspended")
    }

    @Test(
        "what an orphan in the application's unit does counts, because it would be frozen with the unit",
        .enabled(if: UnitWithOrphan.isAvailable, Comment(rawValue: UnitWithOrphan.whatIsMissing)))
    func orphan() throws {
        let unit = try UnitWithOrphan(Self.transfer)
        try unit.main.waitForLine(containing: "on")
        let path = try register(unit.main)
        try wait(for: .network, at: path)
        kill(unit.orphan, SIGUSR1)
        try client.wait(for: path, toBe: "suspended")
        #expect(try unit.home.cgroup.isFrozen())
    }

    @Test(
        "computing prevents suspension only if the application was needed, and until it rests"
    )
    func answering() throws {
        let busy = try Child(
            Scripts.python,
            [
                "-c",
                """
                import signal
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                print("on", flush=True)
                while True:
                    while not signal.sigpending(): pass
                    signal.sigwait({signal.SIGUSR1})
                    signal.sigwait({signal.SIGUSR1})
                """,
            ])
        try busy.waitForLine(containing: "on")
        let path = try register(busy)
        try client.wait(for: path, toBe: "suspended")
        // On a loaded machine it may get less than a tenth of a processor. It is then suspended, and needed again.
        try client.wait("the objection") {
            if try client.state(path) == "suspended" {
                try client.reporter("ReportDemand") { message in
                    try message.append(UInt32(busy.pid))
                    try message.append("start")
                    try message.append(UInt32(0))
                }
            }
            return try client.explain(path)["last-objection"]
                == .string("demand: it was needed, and still computes")
                && client.state(path) == "background"
        }
        busy.kill(SIGUSR1)
        try client.wait(for: path, toBe: "suspended")
    }

    /// Calls a method while the loop runs: the stand-in for logind answers on this loop, and the daemon waits only for
    /// a second for it.
    private func answer<Value>(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in },
        read: @escaping (borrowing Message) throws -> Value
    ) throws -> Value {
        let call = try client.bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(call)
        var value: Result<Value, any Error>?
        let slot = try client.bus.callAsync(call, timeout: 300_000_000) { reply in
            do { value = .success(try read(reply)) } catch { value = .failure(error) }
        }
        try client.wait("the answer to \(member)") { value != nil }
        _ = slot
        return try #require(value).get()
    }

    @Test("a block on sleep, shutdown or idle prevents suspension, but no delay and no lid switch block")
    func inhibitor() throws {
        let logind = try LoginStandIn(daemon, client)
        let children = try (0..<4).map { _ in try Child("sleep", ["1000"]) }
        logind.inhibitors = [
            ("idle:sleep", "block", children[0].pid), ("sleep", "delay", children[1].pid),
            ("handle-lid-switch", "block", children[2].pid),
        ]
        let paths = try children.map { child in
            try answer(BusNames.root, BusNames.manager, "Register") { message in
                try message.append("org.example.Busy")
                try message.append(UInt32(child.pid))
                try message.appendDictionary([("suspension", .string("automatic"))])
            } read: {
                try $0.readObjectPath()
            }
        }
        for path in paths.dropFirst() { try client.wait(for: path, toBe: "suspended") }
        let found = "inhibitor: pid \(children[0].pid) inhibits idle:sleep"
        // A logind that answers after a second counts as one without inhibitors.
        try client.wait("the objection") {
            let entries = try answer(paths[0], BusNames.application, "Explain") { try $0.readDictionary() }
            let facts = Dictionary(entries.map { ($0.key, $0.value) }) { $1 }
            if facts["state"] == .string("suspended") {
                try answer(paths[0], BusNames.application, "Resume", read: { _ in })
            }
            return facts["state"] == .string("background") && facts["last-objection"] == .string(found)
        }
        try client.wait("the same answer to ListObjections") {
            let reasons = try answer(paths[0], BusNames.application, "ListObjections") {
                try $0.readStrings()
            }
            return reasons.contains(found)
        }
        logind.inhibitors = []
        try client.wait(for: paths[0], toBe: "suspended")
        // A logind that does not answer prevents no suspension.
        logind.isSilent = true
        try client.catchUp()
        try client.application(paths[0], "Resume")
        try client.wait(for: paths[0], toBe: "suspended")
    }
}
