import Foundation
import Glibc
import TestSupport

// What the library costs an application: the same program with it and without, in turn.
extension Bench {
    static func library(_ daemon: String) throws {
        guard let bare = Programs.beside("appstate-bare"), let living = Programs.beside("appstate-living")
        else {
            print("bench: appstate-bare and appstate-living are not built beside this program")
            exit(1)
        }
        let bus = try PrivateBus(policy: everything)
        let process = try start(daemon, bus, polling: false)
        // The first of each reads its file from the disk.
        for program in [bare, living] { _ = try ready(program, bus) }
        var starts: [[UInt64]] = [[], []]
        var sizes: [[Int]] = [[], []]
        for _ in 0..<40 {
            for (index, program) in [bare, living].enumerated() {
                let application = try ready(program, bus)
                starts[index].append(application.time)
                sizes[index].append(try proportionalSize(application.process.pid))
            }
        }
        row("baseline: exec of an application without the library to its first line", starts[0], nil)
        row("the same with the library, to its launch by the daemon", starts[1], starts[0])
        let medians = sizes.map { $0.sorted()[$0.count / 2] }
        print("\n| Application | PSS |\n| --- | --- |")
        print("| without the library | \(medians[0]) kB |")
        print("| with it, launched by the daemon | \(medians[1]) kB: \(medians[1] - medians[0]) kB more |")
        process.kill(SIGTERM)
    }

    private static func ready(
        _ program: String, _ bus: PrivateBus
    ) throws -> (process: Child, time: UInt64) {
        let begin = now
        let process = try Child(program, environment: bus.environment)
        try process.waitForLine(containing: "ready")
        return (process, now - begin)
    }

    private static func proportionalSize(_ pid: Int32) throws -> Int {
        let rollup = try String(contentsOfFile: "/proc/\(pid)/smaps_rollup", encoding: .utf8)
        let line = rollup.split(separator: "\n").first { $0.hasPrefix("Pss:") } ?? ""
        return Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0
    }
}
