import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// libsystemd closes the descriptors of every message, and close(2) may wait for as long as their sender likes.
@Suite(
    "Descriptors that are slow to close",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"))
struct LingeringTests {
    private static let canServeFiles: Bool = {
        guard getuid() == 0, access("/dev/fuse", R_OK | W_OK) == 0,
            let probe = try? Child("unshare", ["--mount", "--", "mount", "--bind", "/tmp", "/tmp"])
        else { return false }
        return (try? probe.waitForExit()) == .exited(0)
    }()

    @Test("a lingering socket is closed without waiting")
    func socket() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        daemon.process.kill(SIGSTOP)
        let sender = try Child(
            Scripts.python, [Programs.root + "/Tests/Support/Scripts/lingering.py"],
            environment: daemon.bus.environment)
        try sender.waitForLine(containing: "sent")
        daemon.process.kill(SIGCONT)
        // Arrives after the socket. A call that is not answered fails long before the socket would be closed.
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.After", app.pid)
        #expect(try client.state(path) == "background")
    }

    @Test(
        "a file whose server does not answer is closed without waiting",
        .enabled(if: Self.canServeFiles, "needs /dev/fuse, and root that may mount"))
    func file() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let sender = try Scripts.start("fuse_file.py", ["\(daemon.process.pid)"], on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.After", app.pid)
        #expect(try client.state(path) == "background")
        // Before the daemon is ended: the kernel waits for the server's answer or its end.
        sender.kill(SIGKILL)
        #expect(try sender.waitForExit() == .signalled(SIGKILL))
    }

    @Test(
        "thousands of such files neither end the daemon nor use up its descriptors",
        .enabled(if: Self.canServeFiles, "needs /dev/fuse, and root that may mount"),
        .enabled(if: Programs.inPath("prlimit") != nil, "needs prlimit"))
    func manyFiles() throws {
        let daemon = try TestDaemon()
        try daemon.end(SIGTERM)
        try daemon.start(descriptors: 2_048)
        let client = try daemon.client()
        let owner = try client.bus.owner(of: BusNames.service)
        let sender = try Scripts.start("fuse_file.py", ["\(daemon.process.pid)", "250"], on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.After", app.pid)
        #expect(try client.state(path) == "background")
        #expect(try client.bus.owner(of: BusNames.service) == owner)
        #expect(daemon.process.advance() == nil)
        sender.kill(SIGKILL)
        #expect(try sender.waitForExit() == .signalled(SIGKILL))
        // The files are closed after that. A call with a descriptor would get no answer before.
        let open = "/proc/\(daemon.process.pid)/fd"
        #expect(eventually { (try? FileManager.default.contentsOfDirectory(atPath: open).count) ?? 0 < 500 })
        let process = try PidFD(pid: getpid())
        try client.registerProcess("org.example.Own", process.rawValue)
    }

    @Test(
        "a daemon that is killed while such a file is closed is replaced, and its applications are taken over",
        .enabled(if: Self.canServeFiles, "needs /dev/fuse, and root that may mount"))
    func replaced() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let app = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Before", app.pid)
        let sender = try Scripts.start("fuse_file.py", ["\(daemon.process.pid)"], on: daemon.bus)
        try sender.waitForLine(containing: "sent")
        let killed = daemon.process
        killed.kill(SIGKILL)
        try client.wait("the end of its first thread") {
            try String(contentsOfFile: "/proc/\(killed.pid)/stat", encoding: .utf8).contains(") Z ")
        }
        try daemon.start()
        #expect(try client.state(path) == "background")
        sender.kill(SIGKILL)
        #expect(try killed.waitForExit() == .signalled(SIGKILL))
    }
}

/// Everybody may fill the journal's socket.
@Suite("A full journal", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct FullJournalTests {
    @Test(
        "a journal that reads nothing holds nothing up",
        .enabled(if: TestDaemon.canHaveSessions, Comment(rawValue: TestDaemon.whatSessionsNeed)))
    func full() throws {
        let daemon = try TestDaemon(hasSessions: true)
        let client = try daemon.subscriber()
        mkdir(daemon.loginDirectory + "/journal", 0o755)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = daemon.loginDirectory + "/journal/socket"
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let journal = Self.socket()
        var senders: [Int32] = []
        defer { for socket in [journal] + senders { close(socket) } }
        let count = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                let length = socklen_t(MemoryLayout<sockaddr_un>.size)
                guard bind(journal, address, length) == 0 else { return 0 }
                // Each sender has a limit of its own.
                while true {
                    let sender = Self.socket()
                    senders.append(sender)
                    guard sendto(sender, "x", 1, Int32(MSG_DONTWAIT), address, length) == 1 else { break }
                    while sendto(sender, "x", 1, Int32(MSG_DONTWAIT), address, length) == 1 {}
                }
                return senders.count
            }
        }
        try #require(count > 1)
        // The journal gets a line about each.
        for number in 0..<3 {
            let app = try Child("sleep", ["1000"])
            let path = try client.register("org.example.Logged\(number)", app.pid)
            app.kill(SIGKILL)
            try client.waitForRemoval(of: path)
        }
        let app = try Child("sleep", ["1000"])
        #expect(try client.state(try client.register("org.example.Last", app.pid)) == "background")
    }

    private static func socket() -> Int32 {
        Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    }
}
