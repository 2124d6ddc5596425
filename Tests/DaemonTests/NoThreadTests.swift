import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What the daemon does while the kernel refuses it new threads (`EAGAIN`, see fork(2)).
@Suite(
    "Out of threads", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)),
    .enabled(if: ThreadLimit.isPossible, "needs root and the pids controller"))
struct NoThreadTests {
    @Test("the daemon logs the failure once, retries slowly, and sets the resources once threads are back")
    func resources() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let limit = try ThreadLimit(daemon.process.pid)
        let family = try Family()
        let given = try Niceness.read(family.pid) + 7
        let path = try client.register("org.example.Large", family.pid)
        try client.wait(for: path, toBe: "background")
        try daemon.process.waitForLine(containing: "pthread_create")
        // Attempts without pauses would take a whole processor. That is observed over two seconds.
        let before = ProcessorTime(of: [daemon.process.pid])
        #expect(poll(nil, 0, 2_000) == 0)
        #expect(ProcessorTime(of: [daemon.process.pid]).processors(since: before) < 0.2)
        _ = daemon.process.advance()
        let lines = daemon.process.errors.split(separator: "\n")
        #expect(lines.count { $0.contains("pthread_create") } == 1)
        try limit.lift()
        try family.wait("the resources") { family.count(nice: given) == family.all.count }
    }
}

/// A cgroup in which a process cannot create further threads.
private final class ThreadLimit {
    private let directory: String
    private let pid: Int32

    /// The pids controller's own hierarchy, or the unified one.
    private static let base: String? = {
        let places = ["/sys/fs/cgroup/pids"] + (TestCgroup.base.map { [$0.directory] } ?? [])
        return places.first { place in
            let probe = "\(place)/test-\(UUID().uuidString)"
            guard mkdir(probe, 0o755) == 0 else { return false }
            defer { rmdir(probe) }
            return access(probe + "/pids.max", W_OK) == 0
        }
    }()
    static let isPossible = getuid() == 0 && base != nil

    init(_ pid: Int32) throws {
        guard let base = Self.base else { throw TestFailure("no pids controller") }
        self.pid = pid
        directory = "\(base)/test-\(UUID().uuidString)"
        guard mkdir(directory, 0o755) == 0 else { throw TestFailure("mkdir \(directory): \(errno)") }
        try MemoryLimit.write("1", to: directory + "/pids.max")
        try MemoryLimit.write("\(pid)", to: directory + "/cgroup.procs")
    }

    func lift() throws { try MemoryLimit.write("max", to: directory + "/pids.max") }

    deinit {
        if let base = Self.base { try? MemoryLimit.write("\(pid)", to: base + "/cgroup.procs") }
        rmdir(directory)
    }
}
