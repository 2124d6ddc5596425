import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Without appstated, and with one that goes and comes back.
@Suite("An application alone", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct SolitudeTests {
    private static let alone = [
        "willFinishLaunching not-running first:false exit:- restorable:false",
        "didFinishLaunching not-running", "willEnterForeground not-running", "didBecomeActive active",
    ]

    @Test("without a bus it runs on as active, and says so in one line", arguments: [[], ["--poll"]])
    func noBus(arguments: [String]) throws {
        let player = try Player(nil, arguments)
        try player.wait(for: "didBecomeActive")
        #expect(player.story == Self.alone)
        #expect(try player.ask("managed") == "false")
        #expect(try player.ask("remaining") == "unlimited")
        #expect(try player.ask("send org.example.Other") == "alone")
        player.tell("terminate 0")
        #expect(try player.process.waitForExit() == .exited(0))
        #expect(player.names.last == "willTerminate")
        #expect(player.process.errors.split(separator: "\n").count == 1, "\(player.process.errors)")
    }

    @Test("without appstated it runs on as active; one that comes registers it, and it catches up")
    func comes() throws {
        let theatre = try Theatre()
        try theatre.endDaemon(SIGTERM)
        let player = try Player(theatre)
        try player.wait(for: "didBecomeActive")
        #expect(player.story == Self.alone)
        try player.ask("unsaved true")
        player.tell("begin upload")
        try theatre.startDaemon()
        try player.wait(for: "willResignActive")
        let path = try #require(try theatre.path(of: player.pid))
        #expect(try theatre.property("UnsavedChanges", of: path) == .bool(true))
        try theatre.wait("the background task") { try theatre.tasks(of: path) == 1 }
        // It has a window, as far as anybody knows, and no focus.
        try theatre.wait(for: path, toBe: "inactive")
        try theatre.setMinimized(player.pid, true)
        try player.wait(for: "didEnterBackground")
        #expect(player.names.suffix(2) == ["willResignActive", "didEnterBackground"])
        #expect(player.process.errors.split(separator: "\n").count == 1, "\(player.process.errors)")
    }

    @Test("a daemon that is killed and comes back: nothing is told that has not changed")
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

    @Test("a daemon that has forgotten it registers it anew, without another launch for the delegate")
    func forgotten() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        try theatre.setFocus(player.pid)
        try player.wait(for: "didBecomeActive")
        try theatre.endDaemon(SIGKILL)
        try theatre.startDaemon(forgets: true)
        try theatre.wait("the registration") { try theatre.path(of: player.pid) != nil }
        let path = try #require(try theatre.path(of: player.pid))
        try theatre.wait(for: path, toBe: "inactive")
        try player.wait(for: "willResignActive")
        try theatre.setFocus(player.pid)
        try player.wait(for: "didBecomeActive", times: 2)
        #expect(player.names.count { $0 == "willFinishLaunching" } == 1)
    }

    @Test("a daemon that is stopped: the application goes on, and ends when it is to")
    func hanging() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        try theatre.wait("its state") { try player.ask("state") == "inactive" }
        theatre.daemon.kill(SIGSTOP)
        #expect(try player.ask("state") == "inactive")
        try player.ask("unsaved true")
        let newcomer = try Player(theatre)
        // Nobody answers its registration.
        try newcomer.wait(for: "didBecomeActive")
        #expect(newcomer.story == Self.alone)
        theatre.daemon.kill(SIGCONT)
        try newcomer.wait(for: "willResignActive")
        #expect(try newcomer.ask("managed") == "true")
    }
}
