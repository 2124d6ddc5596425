import Glibc
import Linux
import Testing

/// Notification of the ends of many processes by one descriptor.
@Suite("PollSet, on real processes")
struct PollSetTests {
    @Test("ends are reported one by one, each until it is removed, and live processes are not")
    func oneByOne() throws {
        let watch = try PollSet()
        var processes = try (0..<3).map { _ in try Spawned("sleep", "1000") }
        let living = try Spawned("sleep", "1000")
        for (number, process) in processes.enumerated() {
            try watch.add(process.descriptor.rawValue, as: UInt64(number))
        }
        try watch.add(living.descriptor.rawValue, as: 99)
        #expect(watch.next() == nil)

        for process in processes { process.kill() }
        var seen: Set<UInt64> = []
        while seen.count < processes.count {
            var ready = pollfd(fd: watch.descriptor, events: Int16(POLLIN), revents: 0)
            try #require(poll(&ready, 1, 300_000) == 1)
            let number = try #require(watch.next())
            #expect(seen.insert(number).inserted)
            watch.remove(processes[Int(number)].descriptor.rawValue)
        }
        #expect(seen == [0, 1, 2])
        #expect(watch.next() == nil)
        processes = []
    }

    /// A child with its pidfd.
    private final class Spawned {
        let pid: pid_t
        let descriptor: PidFD

        init(_ program: String, _ argument: String) throws {
            var pid: pid_t = 0
            var arguments = [strdup(program), strdup(argument), nil]
            defer { for argument in arguments { free(argument) } }
            try #require(posix_spawnp(&pid, program, nil, nil, &arguments, environ) == 0)
            self.pid = pid
            descriptor = try PidFD(pid: pid)
        }

        deinit {
            kill()
            waitpid(pid, nil, 0)
        }

        func kill() { Glibc.kill(pid, SIGKILL) }
    }
}
