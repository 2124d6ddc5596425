import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Applications without appstated, and with a daemon that leaves and returns.
@Suite("An application alone", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct SolitudeTests {
    private static let alone = [
        "willFinishLaunching not-running first:false exit:- restorable:false",
        "didFinishLaunching not-running", "willEnterForeground not-running", "didBecomeActive active",
    ]

    @Test(
        "without a bus an application keeps running as active, and prints one line about it",
        arguments: [[], ["--poll"]])
    func noBus(arguments: [String]) throws {
        let player = try Player(nil, arguments)
        try player.wait(for: "didBecomeActive")
        #expect(player.story == Self.alone)
        #expect(try player.ask("managed") == "false")
        #expect(try player.ask("remaining") == "unlimited")
        #expect(try player.ask("send org.example.Other") == "alone")
        #expect(try player.ask("save") == "alone")
        player.tell("terminate 0")
        #expect(try player.process.waitForExit() == .exited(0))
        #expect(player.names.last == "willTerminate")
        #expect(player.process.errors.split(separator: "\n").count == 1, "\(player.process.errors)")
    }

    @Test("without appstated an application is active; a daemon that starts registers it and catches up")
    func comes() throws {
        let theatre = try Theatre()
        try theatre.endDaemon(SIGTERM)
        let player = try Player(theatre)
        try player.wait(for: "didBecomeActive")
        #expect(player.story == Self.alone)
        #expect(try player.ask("send org.example.Other") == "alone")
        try player.ask("unsaved true")
        player.tell("begin upload")
        try theatre.startDaemon()
        try player.wait(for: "willResignActive")
        let path = try #require(try theatre.path(of: player.pid))
        #expect(try theatre.property("UnsavedChanges", of: path) == .bool(true))
        try theatre.wait("the background task") { try theatre.tasks(of: path) == 1 }
        // It is assumed to have a window, and it has no focus.
        try theatre.wait(for: path, toBe: "inactive")
        try theatre.setMinimized(player.pid, true)
        try player.wait(for: "didEnterBackground")
        #expect(player.names.suffix(2) == ["willResignActive", "didEnterBackground"])
        #expect(player.process.errors.split(separator: "\n").count == 1, "\(player.process.errors)")
    }

    @Test("after the daemon is killed and restarted the delegate receives only real changes")
    func killed() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        try theatre.setFocus(player.pid)
        try player.wait(for: "didBecomeActive")
        try theatre.endDaemon(SIGKILL)
        try theatre.startDaemon()
        let path = try #require(try theatre.path(of: player.pid))
        try theatre.wait(for: path, toBe: "active")
        try theatre.setFocus(0)
        try player.wait(for: "willResignActive")
        #expect(
            player.names == [
                "willFinishLaunching", "didFinishLaunching", "willEnterForeground", "didBecomeActive",
                "willResignActive",
            ])
        #expect(player.process.errors == "")
    }

    @Test("an application that somebody unregisters is alone until the next daemon registers it")
    func unregistered() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        let path = try #require(try theatre.path(of: player.pid))
        try theatre.call(path, BusNames.application, "Unregister")
        // If the daemon has not announced it, the answer to the next call says it.
        try player.ask("unsaved true")
        try player.wait(for: "didBecomeActive")
        #expect(try player.ask("managed") == "false")
        #expect(try theatre.path(of: player.pid) == nil)
        try theatre.endDaemon(SIGTERM)
        try theatre.startDaemon()
        try theatre.wait("the registration") { try theatre.path(of: player.pid) != nil }
        try player.wait(for: "willResignActive")
        #expect(try player.ask("managed") == "true")
        #expect(player.names.count { $0 == "willFinishLaunching" } == 1)
    }
}
