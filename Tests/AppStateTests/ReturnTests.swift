import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

@testable import AppState

/// What must not get lost: saved state, deliveries and background tasks, if the daemon refuses a call, starts late or
/// restarts.
@Suite(
    "An application whose daemon refuses or comes back",
    .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct ReturnTests {
    /// The state that LibraryActor saves.
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

    @Test("a task that a callback begins is announced before the acknowledgement")
    func task() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus, ["--stateless"])
        try daemon.launch()
        try daemon.sendToBackground(1)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
        #expect(daemon.order.suffix(2) == ["BeginBackgroundTask", "Acknowledge"])
        withExtendedLifetime(player) {}
    }

    @Test("a process with a different PID in the daemon's view is registered by a descriptor")
    func foreign() throws {
        let daemon = try StandIn()
        daemon.refusals["Register"] = [Self.refusal(.invalidArgs)]
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        #expect(daemon.order.prefix(2) == ["Register", "RegisterProcess"])
        #expect(try player.ask("managed") == "true")
    }

    @Test("a signal that arrives before the application is a delegate again is delivered afterwards")
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
        // It asks for the state as well.
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
        #expect(
            player.names == [
                "willFinishLaunching", "didFinishLaunching", "didReceive", "significantTimeChange",
            ])
    }

    @Test("a save on demand does not overwrite the state of an earlier run that is not restored yet")
    func unrestored() throws {
        let daemon = try StandIn()
        daemon.refusals["LoadState"] = [Self.refusal(.limitsExceeded)]
        daemon.stored = try StateEncoder.encode(State(text: "milk"))
        let player = try Player(bus: daemon.bus)
        try daemon.launch([("restorable", .bool(true))])
        #expect(daemon.order.contains("LoadState"))
        #expect(try player.ask("save") == "alone")
        #expect(daemon.saved == nil)
    }

    @Test(
        "an application whose object is gone is alone, whichever call finds that out",
        arguments: ["SaveState", "Acknowledge"])
    func forgotten(method: String) throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.refusals[method] = [Self.refusal(.noSuchApplication)]
        try daemon.sendToBackground(3)
        try daemon.wait("the refusal") { daemon.order.contains(method) }
        try player.wait(for: "didBecomeActive")
        #expect(try player.ask("managed") == "false")
    }
}
