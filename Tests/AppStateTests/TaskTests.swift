import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Background tasks, observers, unsaved changes, and whether anything leaks.
@Suite("What an application asks for", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct TaskTests {
    private func launched(_ theatre: Theatre) throws -> (Player, String) {
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        return (player, try #require(try theatre.path(of: player.pid)))
    }

    @Test("a background task keeps the application running until its closure has returned")
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

    @Test("a task is cancelled shortly before its limit, and ends")
    func expires() throws {
        let theatre = try Theatre(configuration: "BackgroundTaskMaxSec=3\nBackgroundTaskWarnSec=2")
        let (player, path) = try launched(theatre)
        try player.ask("begin upload")
        try theatre.wait("the task") { try theatre.tasks(of: path) == 1 }
        try theatre.setMinimized(player.pid, true)
        try player.wait(forLine: "task upload cancelled")
        try theatre.wait("the end of the task") { try theatre.tasks(of: path) == 0 }
        try theatre.wait(for: path, toBe: "suspended")
    }

    @Test("an application inhibits the suspension of another, and asks the next daemon for that again")
    func inhibits() throws {
        let theatre = try Theatre()
        let (player, _) = try launched(theatre)
        let other = try Child("sleep", ["1000"])
        let path = try theatre.call(BusNames.root, BusNames.manager, "Register") { message in
            try message.append("org.example.Other")
            try message.append(UInt32(other.pid))
            try message.appendDictionary([])
        }.readObjectPath()
        let row = Variant.structure([.string("org.example.LibraryActor"), .string("a test")])
        try player.ask("inhibit org.example.Other")
        try theatre.wait("the inhibitor") {
            try theatre.property("Inhibitors", of: path) == .array("(ss)", [row])
        }
        try theatre.endDaemon(SIGKILL)
        try theatre.startDaemon()
        try theatre.wait("the inhibitor again") {
            try theatre.property("Inhibitors", of: path) == .array("(ss)", [row])
        }
        try player.ask("finish org.example.Other")
        try theatre.wait("its end") { try theatre.property("Inhibitors", of: path) == .array("(ss)", []) }
        #expect(try player.ask("activate org.example.Other") == ErrorName.noSessionAgent.rawValue)
        #expect(try player.ask("protected") == "true")
    }

    @Test("unsaved changes are reported to the daemon")
    func unsaved() throws {
        let theatre = try Theatre()
        let (player, path) = try launched(theatre)
        try player.ask("unsaved true")
        try theatre.wait("unsaved") { try theatre.property("UnsavedChanges", of: path) == .bool(true) }
        try player.ask("unsaved false")
        try theatre.wait("saved") { try theatre.property("UnsavedChanges", of: path) == .bool(false) }
    }
}
