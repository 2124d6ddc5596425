import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// A main loop that hangs, tasks that progress, and launches that an application has scheduled, with the real library.
@Suite("Events of an application's own", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct EventTests {
    private static let ctl = Programs.built("appstatectl") ?? "appstatectl"
    private static let override = "[Application org.example.LibraryActor]\nUnresponsiveAction=terminate\n"

    private func started(
        _ theatre: Theatre, _ arguments: [String] = []
    ) throws -> (player: Player, path: String) {
        let player = try Player(theatre, arguments)
        try player.wait(for: "willEnterForeground")
        return (player, try #require(try theatre.path(of: player.pid)))
    }

    private func run(_ theatre: Theatre, _ arguments: [String]) throws -> String {
        let command = try Child(
            Self.ctl, arguments, environment: theatre.bus.environment.mapValues { $0 })
        guard try command.waitForExit() == .exited(0) else { throw TestFailure(command.errors) }
        return command.output
    }

    @Test("a main thread that is blocked in the foreground is noticed, and its late answer lifts that")
    func hangs() throws {
        let theatre = try Theatre(configuration: "UnresponsiveSec=1")
        let (player, path) = try started(theatre, ["--hang"])
        try theatre.wait("the hang") {
            try theatre.property("Unresponsive", of: path) == .string("main loop")
        }
        #expect(try theatre.state(of: path) == "inactive")
        player.tell("")
        try theatre.wait("the answer") { try theatre.property("Unresponsive", of: path) == .string("") }
    }

    @Test("UnresponsiveAction=terminate ends an application that hangs")
    func ended() throws {
        let theatre = try Theatre(configuration: "UnresponsiveSec=1\n\(Self.override)")
        let (player, path) = try started(theatre, ["--hang"])
        try theatre.waitForRemoval(of: path)
        #expect(try player.process.waitForExit() == .signalled(SIGKILL))
        #expect(try run(theatre, ["history", "org.example.LibraryActor"]).contains("unresponsive"))
    }

    @Test("a continued task goes on as long as it progresses, is listed, and its user cancels it")
    func continued() throws {
        let theatre = try Theatre(configuration: "BackgroundTaskMaxSec=3\nBackgroundTaskWarnSec=1")
        let (player, path) = try started(theatre)
        try player.ask("export film")
        try player.wait(forLine: "task film begun")
        try theatre.wait("the task") { try theatre.tasks(of: path) == 1 }
        try theatre.setMinimized(player.pid, true)
        try player.wait(forLine: "told doneInBackground")
        for step in 1...10 {
            try player.ask("progress film \(step)")
            try theatre.wait("progress \(step)") {
                try run(theatre, ["tasks", "--json"]).contains("\"completed\":\(step),\"total\":10")
            }
        }
        #expect(try run(theatre, ["tasks"]).contains("100 % (10 of 10) Exporting"))
        #expect(!player.lines.contains("task film cancelled"))
        #expect(try theatre.state(of: path) == "background")
        // Nothing more to come.
        try player.wait(forLine: "task film cancelled")
        try theatre.wait(for: path, toBe: "suspended")

        try theatre.setFocus(player.pid)
        try theatre.wait(for: path, toBe: "active")
        try player.ask("export disc")
        try player.wait(forLine: "task disc begun")
        try theatre.wait("the other task") { try theatre.tasks(of: path) == 1 }
        _ = try run(theatre, ["tasks", "--cancel", path, "2"])
        try player.wait(forLine: "task disc cancelled")
        try theatre.wait("its end") { try theatre.tasks(of: path) == 0 }
    }

    @Test("a launch that is due wakes the application, which is suspended again when its work is done")
    func woken() throws {
        let theatre = try Theatre()
        let (player, path) = try started(theatre)
        #expect(try player.ask("schedule refresh 3600") == "ok")
        #expect(try run(theatre, ["schedule", "--json"]).contains("\"name\":\"refresh\""))
        #expect(try player.ask("schedule sync network") == ErrorName.notSupported.rawValue)
        #expect(try player.ask("schedule copy power") == ErrorName.notSupported.rawValue)
        try theatre.setMinimized(player.pid, true)
        try player.wait(forLine: "told doneInBackground")
        try theatre.wait(for: path, toBe: "suspended")
        // It is on the disk, with the next daemon as well.
        try theatre.endDaemon(SIGKILL)
        try theatre.startDaemon()
        try theatre.wait("the next daemon") {
            try run(theatre, ["schedule", "org.example.LibraryActor"]).contains("refresh")
        }
        _ = try run(theatre, ["schedule", "--cancel", "org.example.LibraryActor", "refresh"])
        #expect(try !run(theatre, ["schedule", "--json"]).contains("refresh"))

        try theatre.setFocus(player.pid)
        try theatre.wait(for: path, toBe: "active")
        // It knows the next daemon only now that it runs again.
        try theatre.wait("the application to be managed") { try player.ask("managed") == "true" }
        #expect(try player.ask("schedule refresh 0") == "ok")
        try player.wait(forLine: "told perform active refresh")
        try theatre.wait("the end of its task") { try theatre.tasks(of: path) == 0 }
        #expect(try !run(theatre, ["schedule", "--json"]).contains("refresh"))
    }
}
