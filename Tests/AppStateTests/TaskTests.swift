import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Background tasks, observers, and what is said to other applications.
@Suite("What an application asks for", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct TaskTests {
    private func launched(_ theatre: Theatre) throws -> (Player, String) {
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        return (player, try #require(try theatre.path(of: player.pid)))
    }

    @Test("a background task keeps it running until the closure has returned")
    func task() throws {
        let theatre = try Theatre()
        let (player, path) = try launched(theatre)
        #expect(try player.ask("remaining") == "unlimited")
        try player.ask("begin upload")
        try theatre.wait("the task") { try theatre.tasks(of: path) == 1 }
        try theatre.setMinimized(player.pid, true)
        try player.wait(forLine: "told doneInBackground")
        #expect(try player.ask("remaining") == "some")
        #expect(try theatre.state(of: path) == "background")
        try player.ask("finish upload")
        try theatre.wait(for: path, toBe: "suspended")
        #expect(player.lines.contains("task upload finished"))
    }

    @Test("a task whose time is nearly up is cancelled, and ends")
    func expires() throws {
        let theatre = try Theatre(configuration: "BackgroundTaskMaxSec=3\nBackgroundTaskWarnSec=2")
        let (player, path) = try launched(theatre)
        try player.ask("begin upload")
        try player.wait(forLine: "task upload cancelled")
        try theatre.wait("the end of the task") { try theatre.tasks(of: path) == 0 }
        #expect(try player.ask("state") == "inactive")
    }

    @Test("a task that ends at once does not stay behind")
    func short() throws {
        let theatre = try Theatre()
        let (player, path) = try launched(theatre)
        for number in 0..<20 {
            player.tell("begin quick\(number)")
            player.tell("finish quick\(number)")
        }
        for number in 0..<20 {
            // It may not have begun to wait at the first time.
            try theatre.wait("the end of task \(number)") {
                player.tell("finish quick\(number)")
                return player.lines.contains("task quick\(number) finished")
            }
        }
        try theatre.wait("the end of the tasks") { try theatre.tasks(of: path) == 0 }
    }

    @Test("several observers are told all, each once")
    func observers() throws {
        let theatre = try Theatre()
        let (player, _) = try launched(theatre)
        for name in ["one", "two"] { try player.ask("observe \(name)") }
        try theatre.setFocus(player.pid)
        try theatre.setFocus(0)
        for name in ["one", "two"] {
            try player.wait(forLine: "observed \(name) willResignActive")
            #expect(
                player.lines.filter { $0.hasPrefix("observed \(name)") } == [
                    "observed \(name) didBecomeActive", "observed \(name) willResignActive",
                ])
        }
    }

    @Test("unsaved changes are told")
    func unsaved() throws {
        let theatre = try Theatre()
        let (player, path) = try launched(theatre)
        try player.ask("unsaved true")
        try theatre.wait("unsaved") { try theatre.property("UnsavedChanges", of: path) == .bool(true) }
        try player.ask("unsaved false")
        try theatre.wait("saved") { try theatre.property("UnsavedChanges", of: path) == .bool(false) }
    }

    @Test("a thousand times to the background and back: no memory, descriptor or task stays")
    func cycles() throws {
        let theatre = try Theatre(configuration: "BackgroundTaskMaxSec=3600")
        let (player, path) = try launched(theatre)
        // Something in the background all the time keeps it from being suspended, which would coalesce what it is told.
        try player.ask("begin all")
        var rounds = 0
        func turn(_ count: Int) throws {
            for _ in 0..<count {
                try player.ask("observe one")
                try theatre.setFocus(player.pid)
                try theatre.setFocus(0)
                try theatre.setMinimized(player.pid, true)
                try theatre.setMinimized(player.pid, false)
                rounds += 1
                try player.wait(for: "willEnterForeground", times: rounds + 1)
                try player.ask("forget")
            }
        }
        try turn(100)
        let before = try Self.footprint(player.pid)
        try turn(1_000)
        let after = try Self.footprint(player.pid)
        #expect(after.descriptors == before.descriptors)
        // What the allocator keeps differs by some pages. A quarter of a kilobyte for each round would be a leak. A
        // sanitizer keeps what was freed, and looks for leaks by itself when the process exits.
        if !Self.isSanitized { #expect(after.kibibytes - before.kibibytes < 250, "\(before) \(after)") }
        #expect(try theatre.tasks(of: path) == 1)
        player.tell("terminate 0")
        #expect(try player.process.waitForExit() == .exited(0), "\(player.process.errors)")
    }

    /// As scripts/test-sanitizers has it.
    private static let isSanitized = ["ASAN_OPTIONS", "TSAN_OPTIONS"].contains {
        ProcessInfo.processInfo.environment[$0] != nil
    }

    private static func footprint(_ pid: Int32) throws -> (kibibytes: Int, descriptors: Int) {
        let status = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") } ?? ""
        let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd").count
        return (Int(line.split(separator: " ").dropFirst().first ?? "") ?? 0, descriptors)
    }
}
