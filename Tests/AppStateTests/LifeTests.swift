import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The callbacks that a delegate receives from a real daemon, and their order. The test acts as the reporter of its
/// windows.
@Suite("An application with the library", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct LifeTests {
    private static let launch = ["willFinishLaunching", "didFinishLaunching"]

    /// The object path of a launched application.
    private func path(of player: Player, in theatre: Theatre) throws -> String {
        try player.wait(for: "didFinishLaunching")
        return try #require(try theatre.path(of: player.pid))
    }

    @Test("a launch to the foreground", arguments: [[], ["--poll"], ["--dispatch"]])
    func foreground(arguments: [String]) throws {
        let theatre = try Theatre()
        let player = try Player(theatre, arguments)
        try player.wait(for: "willEnterForeground")
        #expect(
            player.story == [
                "willFinishLaunching not-running first:true exit:- restorable:false",
                "didFinishLaunching not-running", "willEnterForeground not-running",
            ])
        let path = try path(of: player, in: theatre)
        try theatre.wait(for: path, toBe: "inactive")
        try theatre.setFocus(player.pid)
        try player.wait(for: "didBecomeActive")
        #expect(player.story.last == "didBecomeActive active")
        #expect(try player.ask("managed") == "true")
    }

    @Test("a launch to the background", arguments: [["--background"], ["--background", "--poll"]])
    func background(arguments: [String]) throws {
        let theatre = try Theatre()
        let player = try Player(theatre, arguments)
        try player.wait(for: "didEnterBackground")
        #expect(player.names == Self.launch + ["didEnterBackground"])
        // Within the hour only its acknowledgement can suspend it.
        try theatre.wait(for: try path(of: player, in: theatre), toBe: "suspended")
        #expect(player.story.last == "doneInBackground background")
    }

    @Test("an orderly end notifies the delegate and saves the state, and the next launch restores it")
    func orderlyEnd() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        let path = try path(of: player, in: theatre)
        try player.ask("text milk")
        try theatre.terminate(path, force: false)
        #expect(try player.process.waitForExit() == .signalled(SIGTERM))
        try theatre.waitForRemoval(of: path)
        #expect(player.names == Self.launch + ["willEnterForeground", "willTerminate"])

        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(
            next.story.prefix(3) == [
                "willFinishLaunching not-running first:false exit:terminated restorable:true",
                "didDecode not-running milk 7:-1,-1:3 0", "didFinishLaunching not-running",
            ])
    }

    @Test("state that is saved on demand survives a kill without notice")
    func onDemand() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        let path = try path(of: player, in: theatre)
        try player.ask("text milk")
        #expect(try player.ask("save") == "ok")
        player.process.kill(SIGKILL)
        try player.process.waitForExit()
        try theatre.waitForRemoval(of: path)
        #expect(!player.names.contains("didEnterBackground"))
        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(next.story.dropFirst().first == "didDecode not-running milk 7:-1,-1:3 0")
    }

    @Test("a force quit sends nothing to the delegate, and nothing is restored")
    func forceQuit() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        let path = try path(of: player, in: theatre)
        try player.ask("text milk")
        try theatre.setMinimized(player.pid, true)
        try theatre.wait(for: path, toBe: "suspended")
        try theatre.terminate(path, force: true)
        #expect(try player.process.waitForExit() == .signalled(SIGKILL))
        try theatre.waitForRemoval(of: path)
        #expect(!player.names.contains("willTerminate"))
        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(
            next.story.first == "willFinishLaunching not-running first:false exit:force-quit restorable:false"
        )
    }

    @Test("an application that ends by itself notifies its delegate, and its state is restored")
    func endByItself() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        let path = try path(of: player, in: theatre)
        try player.ask("text bread")
        player.tell("terminate 3")
        #expect(try player.process.waitForExit() == .exited(3))
        try theatre.waitForRemoval(of: path)
        #expect(player.names.last == "willTerminate")
        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(next.story.dropFirst().first == "didDecode not-running bread 7:-1,-1:3 0")
    }
}
