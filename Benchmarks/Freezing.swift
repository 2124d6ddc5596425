import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport

/// Measures the cost of suspension, compared with a bare write to cgroup.freeze, and the time until a resumed
/// application executes its first instruction.
extension Bench {
    /// Measures a bare freeze of 200 processes in one cgroup, and `Suspend` of them until it is announced.
    static func freezing(_ daemon: String) throws {
        let home = try TestCgroup("app-bench")
        let gate = try PipeEnds()
        let shell = try Child(
            "sh", ["-c", "read line; for i in $(seq 199); do sleep 1000 & done; echo made; wait"],
            descriptors: [STDIN_FILENO: gate.read])
        try home.take(shell.pid)
        close(gate.takeWrite())
        try shell.waitForLine(containing: "made")
        let events = try CgroupEvents(home.cgroup)
        func frozen(_ wanted: Bool) throws {
            var look = pollfd(fd: events.descriptor, events: Int16(POLLPRI), revents: 0)
            while try events.read().isFrozen != wanted { poll(&look, 1, 1_000) }
        }
        try withDaemon(daemon) { client in
            let path = try client.register(shell.pid)
            var bare: [UInt64] = []
            var trips: [UInt64] = []
            var ours: [UInt64] = []
            // The measurements alternate, so that all see the same load. Each begins at rest, because the kernel delays
            // notifications that follow each other closely, and the daemon adjusts resources after a change of state.
            for _ in 0..<60 {
                pause()
                var begin = now
                try client.call("/", "org.freedesktop.DBus.Peer", "Ping") { _ in }
                trips.append(now - begin)
                pause()
                begin = now
                try home.cgroup.freeze()
                try frozen(true)
                bare.append(now - begin)
                try client.wait(for: "suspended")
                try home.cgroup.thaw()
                try client.wait(for: "background")
                pause()
                begin = now
                try client.send(suspend: path)
                try client.wait(for: "suspended")
                ours.append(now - begin)
                try client.resume(path)
                try client.wait(for: "background")
            }
            row("baseline: a write to cgroup.freeze of 200 processes to frozen 1", bare, nil)
            row("a round trip on the bus, from rest", trips, bare)
            row("Suspend of the same to the subscriber's StateChanged(suspended)", ours, bare)
        }
    }

    private static func pause() {
        var span = timespec(tv_sec: 0, tv_nsec: 200_000_000)
        nanosleep(&span, nil)
    }

    /// Measures the time from SetFocus until the suspended application executes its next instruction.
    static func waking(_ daemon: String) throws {
        let file = NSTemporaryDirectory() + "appstate-bench-\(getpid())"
        defer { unlink(file) }
        _ = FileManager.default.createFile(atPath: file, contents: Data(count: 4096))
        let clock = try SharedClock(file)
        let home = try TestCgroup("app-bench")
        let spinner = try Child("/proc/self/exe", ["--spinner", file])
        try home.take(spinner.pid)
        try withDaemon(daemon, configuration: "[LifeCycle]\nBackgroundGraceSec=0\n") { client in
            try client.register(spinner.pid, automatic: true)
            var times: [UInt64] = []
            var trips: [UInt64] = []
            for _ in 0..<200 {
                try client.wait(for: "suspended")
                let begin = now
                try client.send(focus: spinner.pid)
                // The function call keeps the compiler from reading the memory only once.
                while clock.value < begin { sched_yield() }
                times.append(clock.value - begin)
                try client.wait(for: "active")
                try client.minimize(spinner.pid)
                try client.wait(for: "suspended")
                let ping = now
                try client.call("/", "org.freedesktop.DBus.Peer", "Ping") { _ in }
                trips.append(now - ping)
            }
            row("baseline: D-Bus round trip in between", trips, nil)
            row("SetFocus to the frozen application's first own instruction", times, trips)
        }
    }

    /// Writes the time to the shared file, until its parent ends.
    static func spin(_ file: String) throws {
        let clock = try SharedClock(file)
        // The parent may be interrupted before it can end this process.
        let parent = getppid()
        var turns = 0
        while turns % 100_000 != 0 || getppid() == parent {
            clock.value = now
            turns &+= 1
        }
    }
}

/// A number in memory that two processes share.
private final class SharedClock {
    private let address: UnsafeMutablePointer<UInt64>

    init(_ file: String) throws {
        let descriptor = open(file, O_RDWR)
        defer { close(descriptor) }
        guard
            let memory = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0),
            memory != MAP_FAILED
        else { throw TestFailure("mmap \(file): \(errno)") }
        address = memory.assumingMemoryBound(to: UInt64.self)
    }

    /// Accessed in functions that are not inlined, so the compiler cannot optimize the accesses away.
    var value: UInt64 {
        @inline(never) get { address.pointee }
        @inline(never) set { address.pointee = newValue }
    }
}
