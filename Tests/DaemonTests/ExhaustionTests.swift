import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// A daemon that has no descriptor left says so, instead of saying that there is no such process.
@Suite(
    "Out of descriptors", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Programs.inPath("prlimit") != nil, "needs prlimit"))
struct ExhaustionTests {
    private func limit(_ daemon: TestDaemon, _ descriptors: String) throws {
        let child = try Child("prlimit", ["--pid=\(daemon.process.pid)", "--nofile=\(descriptors)"])
        #expect(try child.waitForExit() == .exited(0), "\(child.errors)")
    }

    /// Sets the limit to the lowest free number, so that no descriptor is free.
    private func exhaust(_ daemon: TestDaemon) throws {
        let directory = "/proc/\(daemon.process.pid)/fd"
        let used = Set(try FileManager.default.contentsOfDirectory(atPath: directory).compactMap { Int($0) })
        try limit(daemon, "\((0...).first { !used.contains($0) } ?? 0):")
    }

    @Test("without descriptors Register gives LimitsExceeded, and a new caller is examined again later")
    func register() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        #expect(try client.list() == [])
        /// The daemon may close a descriptor that it had for something else, so this is repeated.
        func isRefused(_ call: () throws -> Void) throws -> Bool {
            try (0..<10).contains { _ in
                try exhaust(daemon)
                return client.error(of: call) == ErrorName.limitsExceeded.rawValue
            }
        }
        func register(_ client: Client) throws {
            let path = try client.register("org.example.App", process.pid)
            try client.application(path, "Unregister")
        }
        #expect(try isRefused { try register(client) })
        var newcomer = client
        func refusesNewcomer(_ call: (Client) throws -> Void) throws -> Bool {
            try isRefused {
                newcomer = try daemon.client()
                try call(newcomer)
            }
        }
        #expect(try refusesNewcomer(register))
        #expect(try refusesNewcomer { _ = try $0.list() })
        try limit(daemon, "1024:")
        #expect(try newcomer.list() == [])
        // It does not count as sandboxed because it could not be examined before.
        let path = try newcomer.register("org.example.App", process.pid)
        #expect(try client.state(path) == "background")
    }

    @Test("an application that is resumed without descriptors is announced once it can be examined again")
    func resume() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        let path = try client.register("org.example.App", process.pid)
        try client.application(path, "Suspend")
        // Not even the descriptor of the process is free once it is closed.
        try limit(daemon, "3:")
        try client.call(path, BusNames.application, "Resume")
        #expect(try !isStopped(process.pid))
        #expect(try client.state(path) == "suspended")
        try limit(daemon, "1024:")
        try client.wait(for: path, toBe: "background")
    }

    @Test(
        "a stop and a continuation by another process without descriptors are announced later",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func others() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let processes = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes.map { try client.register("org.example.App", $0.pid) }
        processes[1].kill(SIGSTOP)
        try client.wait(for: paths[1], toBe: "suspended")
        try limit(daemon, "3:")
        processes[0].kill(SIGSTOP)
        processes[1].kill(SIGCONT)
        // It has read the kernel's hints by now.
        try client.settle()
        try client.settle()
        try limit(daemon, "1024:")
        try client.wait(for: paths[0], toBe: "suspended")
        try client.wait(for: paths[1], toBe: "background")
    }

    @Test(
        "without descriptors, reports and questions about a process give LimitsExceeded, and change nothing")
    func reports() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        _ = try client.register("org.example.App", process.pid)
        let pid = UInt32(process.pid)
        let calls: [(String, () throws -> Void)] = [
            ("SetFocus", { try client.setFocus(process.pid) }),
            ("SetMinimized", { try client.setMinimized(process.pid, true) }),
            ("UpdateWindow", { try client.updateWindow(1, process.pid, [("visible", .bool(false))]) }),
            (
                "ReplaceWindows",
                {
                    try client.reporter("ReplaceWindows") {
                        try $0.open(.array, "(tua{sv})")
                        try $0.open(.struct, "tua{sv}")
                        try $0.append(UInt64(1))
                        try $0.append(pid)
                        try $0.appendDictionary([])
                        try $0.close()
                        try $0.close()
                    }
                }
            ),
            (
                "ReplaceExemptions",
                {
                    try client.reporter("ReplaceExemptions") {
                        try $0.open(.array, "(us)")
                        try $0.open(.struct, "us")
                        try $0.append(pid)
                        try $0.append("audio")
                        try $0.close()
                        try $0.close()
                    }
                }
            ),
            (
                "ReportDemand",
                {
                    try client.reporter("ReportDemand") {
                        try $0.append(pid)
                        try $0.append("call")
                        try $0.append(UInt32(0))
                    }
                }
            ),
            ("GetApplicationByPID", { _ = try client.application(ofPID: process.pid) }),
        ]
        for (name, call) in calls {
            // The daemon may close a descriptor that it had for something else.
            let isRefused = try (0..<10).contains { _ in
                try exhaust(daemon)
                return errorName(of: call) == ErrorName.limitsExceeded.rawValue
            }
            #expect(isRefused, "\(name)")
        }
        try limit(daemon, "1024:")
        for (name, call) in calls { #expect(errorName(of: call) == nil, "\(name)") }
    }

    @Test(
        "a daemon that restarts with too few descriptors keeps what it can and lets the others go",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func restart() throws {
        var starts = 0
        for descriptors in 8..<46 {
            let daemon = try TestDaemon()
            let children = try (0..<6).map { _ in try Child("sleep", ["1000"]) }
            let homes = try children.map { try TestCgroup("app-few-\($0.pid)") }
            let client = try daemon.client()
            for (child, home) in zip(children, homes) {
                try home.take(child.pid)
                try client.application(client.register("org.example.Held", child.pid), "Suspend")
            }
            try daemon.end(SIGKILL)
            // A daemon that cannot start loses nothing either.
            if (try? daemon.start(descriptors: descriptors)) != nil { starts += 1 }
            try daemon.end(SIGKILL)
            try daemon.start()
            let rows = try client.list()
            for (child, home) in zip(children, homes) {
                let isKept = rows.contains { $0.contains(" \(child.pid) ") && $0.contains("suspended") }
                #expect(try home.cgroup.wantsFrozen() == isKept, "with \(descriptors)")
            }
        }
        #expect((1..<38).contains(starts))
    }
}
