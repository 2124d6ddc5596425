import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What a killed daemon had done but not recorded, or recorded but not done, and what other processes did to its
/// applications before the next daemon started.
@Suite("Killed in between", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct KilledTests {
    @Test(
        "a SIGSTOP sent to a frozen application without a daemon is a hold of its own, which Resume lifts",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func stoppedBeneathFreeze() throws {
        let scene = try CgroupScene()
        try scene.client.application(scene.path, "Suspend")
        try scene.daemon.end(SIGKILL)
        scene.app.process.kill(SIGSTOP)
        try scene.daemon.start()
        #expect(try scene.client.holds(scene.path) == ["request uid:\(getuid())", "signal "])
        try scene.client.application(scene.path, "Resume")
        try scene.app.settle()
        try scene.client.wait("the release") { try scene.client.state(scene.path) == "background" }
        #expect(try scene.client.holds(scene.path) == [])
    }

    @Test(
        "a Resume that was recorded but not carried out also ends another process's stop",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
    func resumed() throws {
        let scene = try CgroupScene()
        let children = scene.others
        try scene.client.application(scene.path, "Suspend")
        for pid in [scene.app.pid] + children { kill(pid, SIGSTOP) }
        try scene.daemon.end(SIGKILL)
        try scene.daemon.rewrite(scene.path) { line in
            line.hasPrefix("enforcement=")
                ? "enforcement=continuing request\nlifts-foreign-stop=" : Self.asResumed(line)
        }
        try scene.daemon.start()
        try scene.app.settle()
        try scene.client.wait("the release") {
            try scene.client.state(scene.path) == "background" && scene.noneIsStopped
        }
        #expect(try scene.client.holds(scene.path) == [])
    }

    /// The record when `Resume` is recorded and nothing is done yet.
    private static func asResumed(_ line: String) -> String? {
        switch line.prefix(while: { $0 != "=" }) {
        case "hold", "foreign-stop", "foreign-freeze": nil
        case "enforcement": "enforcement=continuing request"
        default: line
        }
    }
}
