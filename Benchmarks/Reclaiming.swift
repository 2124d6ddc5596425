import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport

/// Measures how long bus calls wait while memory is short.
extension Bench {
    /// In mebibytes.
    private static let limit = 900
    private static let each = 40

    /// Reads a property while applications are being ended, one after the other.
    static func reclaiming(_ daemon: String) throws {
        let home = try MemoryLimit(bytes: limit << 20)
        let configuration = """
            [Pressure]
            Source=\(home.own.cgroup.directory)/memory.pressure
            Warning=some 1ms 2s
            Critical=full 2s 2s
            CriticalAvailable=100M
            KillsPerEvent=100
            """
        try withDaemon(daemon, configuration: configuration) { client in
            func read() throws -> UInt64 {
                let begin = now
                try client.call(BusNames.root, BusNames.properties, "Get") {
                    try $0.append(BusNames.manager)
                    try $0.append("MemoryPressure")
                }
                return now - begin
            }
            let quiet = try (0..<1_000).map { _ in try read() }
            var sleepers: [(Child, TestCgroup)] = []
            for number in 0..<15 {
                // Each has its own cgroup, as on a desktop, so that the daemon freezes it.
                let own = try TestCgroup("app-\(number)", below: home.own.cgroup)
                let sleeper = try hog(home, [each], own)
                try client.suspend(client.register(sleeper.pid))
                try client.wait(for: "suspended")
                sleepers.append((sleeper, own))
            }
            // Allocates 4 MiB at a time, and 800 MiB in all, however long the kernel takes.
            let front = try hog(home, Array(repeating: 4, count: 200))
            try client.send(focus: front.pid)
            var times: [UInt64] = []
            while client.reclaimed < 10, times.count < 1_000_000 {
                times.append(try read())
                try client.hear()
            }
            front.kill(SIGKILL)
            row("baseline: Get of a property, at rest, 1,000", quiet, nil)
            row(
                "Get of a property while \(client.reclaimed) applications were ended, \(times.count)", times,
                quiet)
            print("| the slowest of these | \((times.max() ?? 0) / 1_000) µs | | |")
        }
    }

    private static func hog(_ home: MemoryLimit, _ mebibytes: [Int], _ own: TestCgroup? = nil) throws -> Child
    {
        let gate = try PipeEnds()
        let hog = try Child(
            "/proc/self/exe", ["--hog"] + mebibytes.map(String.init), descriptors: [STDIN_FILENO: gate.read])
        try home.take(hog.pid)
        try own?.take(hog.pid)
        close(gate.takeWrite())
        if mebibytes.count == 1 { try hog.waitForLine(containing: "taken") }
        return hog
    }

    /// Waits until its standard input ends, allocates pieces of these sizes, one every 20 ms, and sleeps until it is
    /// killed.
    static func take(_ mebibytes: [Int]) {
        var byte: UInt8 = 0
        while read(STDIN_FILENO, &byte, 1) > 0 {}
        for count in mebibytes {
            let memory = mmap(
                nil, count << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            if let memory, memory != MAP_FAILED { memset(memory, 1, count << 20) }
            usleep(20_000)
        }
        print("taken")
        fflush(nil)
        while true { pause() }
    }
}
