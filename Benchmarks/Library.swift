import Foundation
import Glibc
import TestSupport

// Measures what the library costs an application: runs the same program with and without it, in turn.
extension Bench {
    /// Measures two builds of both programs. Packages by default build them with Swift's libraries beside them (in the
    /// directory APPSTATED_APPLICATIONS). The programs beside this one contain Swift's libraries.
    static func library(_ daemon: String) throws {
        let bus = try PrivateBus(policy: everything)
        let process = try start(daemon, bus, polling: false)
        var sizes: [(what: String, medians: [Int])] = []
        if let directory = ProcessInfo.processInfo.environment["APPSTATED_APPLICATIONS"] {
            let programs = applications.map { "\(directory)/\($0)" }
            sizes.append(("as built by default", try compare(programs, bus, "as built by default")))
        }
        let beside = applications.compactMap { Programs.beside($0) }
        if beside.count == applications.count {
            sizes.append(("as built beside this", try compare(beside, bus, "as built beside this")))
        }
        print("\n| Application | PSS without the library | with it | more |\n| --- | --- | --- | --- |")
        for (what, medians) in sizes {
            print("| \(what) | \(medians[0]) kB | \(medians[1]) kB | \(medians[1] - medians[0]) kB |")
        }
        process.kill(SIGTERM)
    }

    private static let applications = ["appstate-bare", "appstate-living"]

    /// Prints the start times of both programs, and returns the medians of their sizes in kB.
    private static func compare(_ programs: [String], _ bus: PrivateBus, _ what: String) throws -> [Int] {
        // The first start of each program reads its file from the disk.
        for program in programs { _ = try ready(program, bus) }
        var starts: [[UInt64]] = [[], []]
        var sizes: [[Int]] = [[], []]
        for _ in 0..<40 {
            for (index, program) in programs.enumerated() {
                let application = try ready(program, bus)
                starts[index].append(application.time)
                sizes[index].append(try proportionalSize(application.process.pid))
            }
        }
        row("baseline: exec of an application without the library to its first line, \(what)", starts[0], nil)
        row("the same with the library, to its launch by the daemon", starts[1], starts[0])
        return sizes.map { $0.sorted()[$0.count / 2] }
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
