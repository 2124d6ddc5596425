import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// A daemon without a descriptor left says so, and not that there is no such process.
@Suite(
    "Out of descriptors", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Programs.inPath("prlimit") != nil, "needs prlimit"))
struct ExhaustionTests {
    private func limit(_ daemon: TestDaemon, _ descriptors: String) throws {
        let child = try Child("prlimit", ["--pid=\(daemon.process.pid)", "--nofile=\(descriptors):"])
        #expect(try child.waitForExit() == .exited(0), "\(child.errors)")
    }

    /// The least number that is free, and with it as the limit, none is.
    private func exhaust(_ daemon: TestDaemon) throws {
        let directory = "/proc/\(daemon.process.pid)/fd"
        let used = Set(try FileManager.default.contentsOfDirectory(atPath: directory).compactMap { Int($0) })
        try limit(daemon, "\((0...).first { !used.contains($0) } ?? 0)")
    }

    @Test("Register is LimitsExceeded then; who calls for the first time is looked at again later")
    func register() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        #expect(try client.list() == [])
        try exhaust(daemon)
        let limitsExceeded = ErrorName.limitsExceeded.rawValue
        #expect(client.error { try client.register("org.example.App", process.pid) } == limitsExceeded)
        let newcomer = try daemon.client()
        #expect(newcomer.error { try newcomer.register("org.example.App", process.pid) } == limitsExceeded)
        #expect(newcomer.error { _ = try newcomer.list() } == limitsExceeded)
        try limit(daemon, "1024")
        #expect(try newcomer.list() == [])
        // It is taken for no sandbox because it could not be looked at.
        let path = try newcomer.register("org.example.App", process.pid)
        #expect(try client.state(path) == "background")
    }
}
