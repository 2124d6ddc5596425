import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// What comes from other applications and from the system, said by a stand-in for the daemon.
@Suite("What an application is told", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct TellingTests {
    private func launched(_ options: [(String, Variant)] = []) throws -> (StandIn, Player) {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch(options)
        return (daemon, player)
    }

    @Test("URLs, an activity, a message, the time, the lock of the screen, in the order in which they came")
    func events() throws {
        let (daemon, player) = try launched()
        try daemon.tell(.openURLs) { message in
            try message.append(strings: ["file:///a", "https://example.org"])
            try message.appendDictionary([])
        }
        try daemon.tell(.continueUserActivity) { message in
            try message.append("org.example.editing")
            try message.appendDictionary([("note", .string("seven"))])
        }
        try daemon.tell(.messageReceived) { message in
            for word in ["org.example.Other", "greet"] { try message.append(word) }
            try message.appendDictionary([("word", .string("hello"))])
        }
        try daemon.tell(.significantTimeChange) { try $0.append("midnight") }
        try daemon.tell(.protectedDataWillBecomeUnavailable, serial: 4)
        try daemon.tell(.protectedDataDidBecomeAvailable)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        try player.wait(for: "protectedDataDidBecomeAvailable")
        #expect(
            player.story.dropFirst(2) == [
                "open not-running file:///a,https://example.org",
                "continue not-running org.example.editing seven",
                "didReceive not-running org.example.Other greet hello",
                "significantTimeChange not-running midnight",
                "protectedDataWillBecomeUnavailable not-running",
                "protectedDataDidBecomeAvailable not-running",
            ])
    }

    @Test("what the user does is told, and that it is over")
    func activity() throws {
        let (daemon, player) = try launched()
        player.tell("activity org.example.editing")
        player.tell("activity -")
        try daemon.wait("both") { daemon.calls.count == 2 }
        #expect(daemon.calls == ["SetUserActivity org.example.editing", "SetUserActivity "])
    }

    @Test("what anybody else than the daemon says is not heard")
    func forged() throws {
        let (daemon, player) = try launched()
        let forger = try Bus.open(address: daemon.bus.address)
        let signal = try forger.newSignal(
            path: BusNames.path(ofApplication: 7), interface: BusNames.application,
            member: "DidBecomeActive", to: daemon.application)
        try forger.send(signal)
        // The bus keeps the order: what comes from the daemon afterwards has come after it.
        _ = try forger.id()
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
        #expect(!player.names.contains("didBecomeActive"))
    }

    @Test("signals that say less than they should harm nothing")
    func malformed() throws {
        let (daemon, player) = try launched()
        for signal in ApplicationSignal.allCases { try daemon.tell(signal) }
        for signal in ApplicationSignal.allCases { try daemon.tell(signal) { try $0.append(true) } }
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
        #expect(try player.ask("state") == "not-running")
    }
}
