import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Signals from other applications and from the system, sent by a stand-in for the daemon.
@Suite("What an application receives", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct TellingTests {
    private func launched(_ options: [(String, Variant)] = []) throws -> (StandIn, Player) {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch(options)
        return (daemon, player)
    }

    @Test(
        "URLs, a second launch, an activity, a message, a time change and a lock arrive in the order in which they were sent"
    )
    func events() throws {
        let (daemon, player) = try launched()
        try daemon.tell(.openURLs) { message in
            try message.append(strings: ["file:///a", "https://example.org"])
            try message.appendDictionary([])
        }
        try daemon.tell(.reopen) { try $0.appendDictionary([("activation-token", .string("token"))]) }
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
                "reopen not-running token",
                "continue not-running org.example.editing seven",
                "didReceive not-running org.example.Other greet hello",
                "significantTimeChange not-running midnight",
                "protectedDataWillBecomeUnavailable not-running",
                "protectedDataDidBecomeAvailable not-running",
            ])
    }

    @Test(
        "the end of a transfer is passed to the delegate, and then the daemon is told that it is dealt with")
    func transfer() throws {
        let (daemon, player) = try launched()
        try daemon.tell(.backgroundTransferFinished) { message in
            try message.append("7.1")
            try message.appendDictionary([
                ("state", .string("failed")), ("error", .string("hash: other bytes")),
            ])
        }
        try daemon.wait("the answer") { daemon.calls == ["FinishTransfer 7.1"] }
        try player.wait(for: "didFinish")
        #expect(player.story.last == "didFinish not-running 7.1 hash: other bytes")
    }

    @Test("the user's activity is reported, and its end too")
    func activity() throws {
        let (daemon, player) = try launched()
        player.tell("activity org.example.editing")
        player.tell("activity -")
        try daemon.wait("both") { daemon.calls.count == 2 }
        #expect(daemon.calls == ["SetUserActivity org.example.editing", "SetUserActivity "])
    }

    @Test("signals from any other sender than the daemon are ignored")
    func forged() throws {
        let (daemon, player) = try launched()
        let forger = try Bus.open(address: daemon.bus.address)
        let signal = try forger.newSignal(
            path: BusNames.path(ofApplication: 7), interface: BusNames.application,
            member: "DidBecomeActive", to: daemon.application)
        try forger.send(signal)
        // The bus keeps the order: a later signal from the daemon arrives after this one.
        _ = try forger.id()
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
        #expect(!player.names.contains("didBecomeActive"))
    }

    @Test("after Resync, the delegate walks to the state that it has not heard of")
    func resync() throws {
        let (daemon, player) = try launched()
        daemon.state = "active"
        try daemon.resync()
        try daemon.wait("the foreground") { player.names.contains("didBecomeActive") }
        #expect(player.names.suffix(2) == ["willEnterForeground", "didBecomeActive"])
        daemon.state = "background"
        try daemon.resync()
        try daemon.wait("the background") { player.names.contains("didEnterBackground") }
        #expect(player.names.suffix(2) == ["willResignActive", "didEnterBackground"])
        #expect(try player.ask("state") == "background")
    }
}
