import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// With too few descriptors, nothing stays frozen.
@Suite(
    "Out of descriptors", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Programs.inPath("prlimit") != nil, "needs prlimit"))
struct ExhaustionTests {
    @Test(
        "a daemon that restarts with too few descriptors keeps what it can and lets the others go",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func restart() throws {
        var starts = 0
        for descriptors in stride(from: 8, to: 46, by: 4) {
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
        #expect((1..<10).contains(starts))
    }

    @Test(
        "appstated --release with too few descriptors says that not all is released; another one releases the rest",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func release() throws {
        var failures = 0
        for descriptors in 3..<12 {
            let scene = try CgroupScene()
            let child = try Child("sleep", ["1000"])
            let path = try scene.client.register("org.example.Stopped", child.pid)
            for path in [scene.path, path] { try scene.client.application(path, "Suspend") }
            try scene.daemon.end(SIGKILL)
            let isReleased = try scene.daemon.release(descriptors: descriptors).waitForExit() == .exited(0)
            let isHeld = try scene.cgroup.wantsFrozen() || isStopped(child.pid)
            #expect(!isReleased || !isHeld, "with \(descriptors)")
            if !isReleased { failures += 1 }
            #expect(try scene.daemon.release().waitForExit() == .exited(0))
            #expect(try !scene.cgroup.wantsFrozen() && !isStopped(child.pid), "after \(descriptors)")
        }
        #expect((1..<9).contains(failures))
    }
}
