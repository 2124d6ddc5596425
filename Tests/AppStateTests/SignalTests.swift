import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// What ends a program from outside: a logout, `systemctl --user stop`, Ctrl-C, a terminal that is closed.
@Suite("A signal that ends an application", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct SignalTests {
    private static let signals = [SIGHUP, SIGINT, SIGTERM]

    @Test(
        "the delegate is notified, the state is saved, and the process ends by the signal",
        arguments: signals, [[], ["--poll", "--signals"], ["--dispatch", "--signals"]])
    func orderly(signal: Int32, arguments: [String]) throws {
        let theatre = try Theatre()
        let player = try Player(theatre, arguments)
        try player.wait(for: "willEnterForeground")
        let path = try #require(try theatre.path(of: player.pid))
        try player.ask("text milk")
        player.process.kill(signal)
        #expect(try player.process.waitForExit() == .signalled(signal))
        #expect(player.names.last == "willTerminate")
        #expect(player.names.count { $0 == "willTerminate" } == 1)
        try theatre.waitForRemoval(of: path)
        let next = try Player(theatre)
        try next.wait(for: "didFinishLaunching")
        #expect(next.story.dropFirst().first == "didDecode not-running milk 7:-1,-1:3 0")
    }

    @Test("inside another main loop, the signals are left to the program unless it wants otherwise")
    func foreignLoop() throws {
        let theatre = try Theatre()
        let player = try Player(theatre, ["--poll"])
        try player.wait(for: "willEnterForeground")
        player.process.kill(SIGTERM)
        #expect(try player.process.waitForExit() == .signalled(SIGTERM))
        #expect(!player.names.contains("willTerminate"))
    }

    @Test("the SIGTERM that follows appstated's own notice notifies nobody again, and saves nothing again")
    func afterNotice() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try daemon.tell(.willTerminate, serial: 4)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        player.process.kill(SIGTERM)
        #expect(try player.process.waitForExit() == .signalled(SIGTERM))
        #expect(player.names.count { $0 == "willTerminate" } == 1)
        #expect(daemon.order.count { $0 == "SaveState" } == 1)
    }

    @Test("a SIGTERM during appstated's own notice lets the delegate finish")
    func duringNotice() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try player.ask("linger")
        try daemon.tell(.willTerminate, serial: 4)
        try player.wait(for: "willTerminate")
        player.process.kill(SIGTERM)
        try player.ask("text milk")
        player.tell("depart")
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        #expect(try player.process.waitForExit() == .signalled(SIGTERM))
        #expect(player.names.count { $0 == "willTerminate" } == 1)
        #expect(daemon.order.count { $0 == "SaveState" } == 1)
    }
}
