import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

@testable import AppState

/// What nobody may lose: saved state, deliveries and background tasks, where the daemon refuses, starts late or starts
/// again.
@Suite(
    "An application whose daemon refuses or comes back",
    .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct ReturnTests {
    /// What LibraryActor saves.
    private struct State: Codable {
        struct Place: Codable {
            var line: Int
        }

        var text: String
        var places: [Place] = []
        var bytes: [UInt8] = []
    }

    private static func refusal(_ name: ErrorName) -> MethodError { MethodError(name.rawValue, "not now") }

    private func text(_ daemon: StandIn) throws -> String {
        try StateDecoder.decode(State.self, from: try #require(daemon.saved)).text
    }

    @Test("a task that a callback begins is known before the acknowledgement")
    func task() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus, ["--stateless"])
        try daemon.launch()
        try daemon.sendToBackground(1)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
        #expect(daemon.order.suffix(2) == ["BeginBackgroundTask", "Acknowledge"])
        withExtendedLifetime(player) {}
    }

    @Test("one that launched alone is registered later, and gets what an earlier run has saved")
    func late() throws {
        let daemon = try StandIn()
        daemon.refusals["Register"] = [Self.refusal(.accessDenied)]
        daemon.refusals["LoadState"] = [Self.refusal(.limitsExceeded)]
        daemon.stored = try StateEncoder.encode(State(text: "milk"))
        let player = try Player(bus: daemon.bus)
        try daemon.wait("the refusal") { daemon.order == ["Register"] }
        try player.wait(for: "didBecomeActive")
        daemon.state = "inactive"
        try daemon.launch([("restorable", .bool(true))])
        try daemon.wait("the refusal of the state") { daemon.order.contains("LoadState") }
        // What it has is not what it had: saving it now would lose that.
        try daemon.sendToBackground(5)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [5] }
        try player.wait(for: "didDecode")
        #expect(try text(daemon) == "milk")
        let saves = daemon.order.filter { ["LoadState", "SaveState", "Acknowledge"].contains($0) }
        #expect(saves == ["LoadState", "LoadState", "SaveState", "Acknowledge"])
    }

    @Test("a process that the daemon knows by another number is registered by a descriptor")
    func foreign() throws {
        let daemon = try StandIn()
        daemon.refusals["Register"] = [Self.refusal(.invalidArgs)]
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        #expect(daemon.order.prefix(2) == ["Register", "RegisterProcess"])
        #expect(try player.ask("managed") == "true")
    }

    @Test("what a daemon says before it is joined again is told then")
    func deliveries() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try daemon.leave()
        try daemon.comeBack()
        try daemon.tell(.messageReceived) { message in
            for word in ["org.example.Other", "greet"] { try message.append(word) }
            try message.appendDictionary([("word", .string("hello"))])
        }
        try daemon.wait("the delegate") { daemon.order.last == "BecomeDelegate" }
        // It asks for the state, too.
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
        #expect(
            player.names == [
                "willFinishLaunching", "didFinishLaunching", "didReceive", "significantTimeChange",
            ])
    }

    @Test("a save that is refused for the moment is repeated before it is acknowledged")
    func busy() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try player.ask("text bread")
        daemon.refusals["SaveState"] = [Self.refusal(.limitsExceeded), Self.refusal(.failed)]
        try daemon.sendToBackground(3)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [3] }
        #expect(daemon.order.suffix(4) == ["SaveState", "SaveState", "SaveState", "Acknowledge"])
        #expect(try text(daemon) == "bread")
    }

    @Test("a save that failed is repeated by the daemon that comes next, which gets its own acknowledgement")
    func again() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try player.ask("text bread")
        daemon.refusals["SaveState"] = [Self.refusal(.notDelegate)]
        try daemon.sendToBackground(3)
        try daemon.wait("the refusal") { daemon.order.last == "SaveState" }
        try daemon.leave()
        try daemon.comeBack()
        try daemon.tell(.didEnterBackground, serial: 9)
        try daemon.wait("the acknowledgement") { daemon.acknowledged.contains(9) }
        #expect(try text(daemon) == "bread")
        #expect(player.names.count { $0 == "didEnterBackground" } == 1)
    }

    @Test("an end that nobody answers is over soon, and told once")
    func end() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try daemon.tell(.willTerminate, serial: 4)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        // From here on, nothing that it calls is answered.
        player.tell("terminate 3")
        #expect(try player.process.waitForExit() == .exited(3))
        #expect(player.names.count { $0 == "willTerminate" } == 1)
    }

    @Test("a launch that is over while the daemon is away is said to be when it is back")
    func launchMeanwhile() throws {
        let daemon = try StandIn()
        daemon.before["LoadState"] = { try daemon.leave() }
        let player = try Player(bus: daemon.bus)
        try daemon.wait("the registration") { daemon.application != nil }
        try daemon.tell(.willFinishLaunching) { try $0.appendDictionary([("restorable", .bool(true))]) }
        try daemon.wait("the question for its state") { daemon.order.contains("LoadState") }
        try player.wait(for: "didFinishLaunching")
        #expect(!daemon.hasLaunched)
        try daemon.comeBack()
        try daemon.wait("the launch") { daemon.hasLaunched }
        #expect(daemon.order.suffix(2) == ["BecomeDelegate", "FinishLaunching"])
    }

    @Test("what was saved while the daemon was away is acknowledged when it is back")
    func acknowledgedMeanwhile() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.before["SaveState"] = { try daemon.leave() }
        try daemon.sendToBackground(3)
        try player.wait(for: "doneInBackground")
        try daemon.wait("the save") { daemon.saved != nil }
        #expect(daemon.acknowledged == [])
        try daemon.comeBack()
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [3] }
    }

    @Test(
        "a save that a restart has cut off is made up for, and acknowledged with what the first one was for")
    func savedMeanwhile() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.before["SaveState"] = {
            try daemon.leave()
            throw Self.refusal(.failed)
        }
        try daemon.sendToBackground(3)
        try player.wait(for: "doneInBackground")
        try daemon.wait("the attempt") { daemon.order.contains("SaveState") }
        #expect(daemon.saved == nil)
        try daemon.comeBack()
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [3] }
        #expect(daemon.saved != nil)
    }

    @Test("a background task that ends while the daemon is away is ended when it is back")
    func taskMeanwhile() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try player.ask("begin upload")
        try daemon.wait("the task") { daemon.order.contains("BeginBackgroundTask") }
        try daemon.tell(.didReceiveMemoryWarning) { try $0.append("warning") }
        // The answer came before that.
        try player.wait(for: "didReceiveMemoryWarning")
        try daemon.leave()
        try player.ask("finish upload")
        try player.wait(forLine: "task upload finished")
        try daemon.comeBack()
        try daemon.wait("the end of the task") { daemon.order.last == "EndBackgroundTask" }
    }

    @Test("who was spared is told of its next end, too")
    func spared() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        for serial in [UInt64(1), 2] {
            try daemon.tell(.willTerminate, serial: serial)
        }
        try daemon.wait("both acknowledgements") { daemon.acknowledged == [1, 2] }
        try player.wait(for: "willTerminate", times: 2)
    }

    @Test("whose state is refused for its sandbox acknowledges all the same")
    func refusedState() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.refusals["SaveState"] = [Self.refusal(.accessDenied)]
        try daemon.sendToBackground(4)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        withExtendedLifetime(player) {}
    }
}
