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

    @Test("an application that launched alone is registered later, and gets the state of an earlier run")
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
        // It has not received its earlier state yet: a save now would overwrite that.
        try daemon.sendToBackground(5)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [5] }
        try player.wait(for: "didDecode")
        #expect(try text(daemon) == "milk")
        let saves = daemon.order.filter { ["LoadState", "SaveState", "Acknowledge"].contains($0) }
        #expect(saves == ["LoadState", "LoadState", "SaveState", "Acknowledge"])
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

    @Test(
        "a process whose own PID means nothing to the daemon finds its application by id after a restart",
        arguments: [ErrorName.noSuchApplication, .noSuchProcess])
    func foreignAgain(error: ErrorName) throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try daemon.leave()
        daemon.refusals["GetApplicationByPID"] = [Self.refusal(error)]
        try daemon.comeBack()
        try daemon.wait("the delegate") { daemon.order.contains("BecomeDelegate") }
        #expect(
            daemon.order.suffix(4) == [
                "Register", "GetApplicationByPID", "ListApplications", "BecomeDelegate",
            ])
        try daemon.tell(.significantTimeChange) { try $0.append("resume") }
        try player.wait(for: "significantTimeChange")
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

    @Test("a save that is refused temporarily is repeated before the acknowledgement")
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

    @Test("an end that the daemon does not answer is over soon, and the delegate is notified once")
    func end() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus, ["--impatient"])
        try daemon.launch()
        try daemon.tell(.willTerminate, serial: 4)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        // From here on, the daemon answers none of its calls.
        player.tell("terminate 3")
        #expect(try player.process.waitForExit() == .exited(3))
        #expect(player.names.count { $0 == "willTerminate" } == 1)
        #expect(!player.process.errors.contains("CONTINUATION"), "\(player.process.errors)")
    }

    @Test("a launch that finishes while the daemon is away is reported when the daemon is back")
    func launchMeanwhile() throws {
        let daemon = try StandIn()
        daemon.before["LoadState"] = { try daemon.leave() }
        let player = try Player(bus: daemon.bus)
        try daemon.wait("the registration") { daemon.application != nil }
        try daemon.tell(.willFinishLaunching) { try $0.appendDictionary([("restorable", .bool(true))]) }
        try daemon.wait("the request for its state") { daemon.order.contains("LoadState") }
        try player.wait(for: "didFinishLaunching")
        #expect(!daemon.hasLaunched)
        try daemon.comeBack()
        try daemon.wait("the launch") { daemon.hasLaunched }
        #expect(daemon.order.suffix(2) == ["BecomeDelegate", "FinishLaunching"])
    }

    @Test(
        "a save that a restart interrupts is repeated, and acknowledged with the first serial")
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

    @Test("a background task that ends while the daemon is away is ended when the daemon is back")
    func taskMeanwhile() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        try player.ask("begin upload")
        try daemon.wait("the task") { daemon.order.contains("BeginBackgroundTask") }
        try daemon.tell(.didReceiveMemoryWarning) { try $0.append("warning") }
        // The answer to BeginBackgroundTask came before this.
        try player.wait(for: "didReceiveMemoryWarning")
        try daemon.leave()
        try player.ask("finish upload")
        try player.wait(forLine: "task upload finished")
        try daemon.comeBack()
        try daemon.wait("the end of the task") { daemon.order.last == "EndBackgroundTask" }
    }

    @Test("an application whose sandbox denies saving still acknowledges")
    func refusedState() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.refusals["SaveState"] = [Self.refusal(.accessDenied)]
        try daemon.sendToBackground(4)
        try daemon.wait("the acknowledgement") { daemon.acknowledged == [4] }
        withExtendedLifetime(player) {}
    }

    @Test("an application that was spared an end is notified of its own end, in whichever way it was spared")
    func sparedOnce() throws {
        for comesBack in [true, false] {
            let daemon = try StandIn()
            let player = try Player(bus: daemon.bus)
            try daemon.launch()
            try daemon.tell(.willTerminate, serial: 1)
            try daemon.wait("the acknowledgement") { daemon.acknowledged == [1] }
            if comesBack { try daemon.tell(.willEnterForeground) } else { try daemon.sendToBackground(2) }
            try player.wait(for: comesBack ? "willEnterForeground" : "doneInBackground")
            player.tell("terminate 3")
            try daemon.wait("the end") { daemon.order.count { $0 == "SaveState" } == (comesBack ? 2 : 3) }
            #expect(try player.process.waitForExit() == .exited(3))
            #expect(player.names.count { $0 == "willTerminate" } == 2)
        }
    }

    @Test("launch options that could not be read are read again before the launch")
    func launchOptions() throws {
        let daemon = try StandIn()
        daemon.refusals["Register"] = [Self.refusal(.alreadyRegistered)]
        daemon.refusals["LaunchOptions"] = [Self.refusal(.limitsExceeded)]
        daemon.launchOptions = [("exit-reason", .string("reclaimed"))]
        let player = try Player(bus: daemon.bus)
        try daemon.wait("the launch") { daemon.hasLaunched }
        #expect(
            player.story.first
                == "willFinishLaunching not-running first:false exit:reclaimed restorable:false")
    }

    @Test("an application that is unregistered is alone: it is active, and neither saves nor registers")
    func unregistered() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.refusals["SaveState"] = [Self.refusal(.failed)]
        daemon.before["SaveState"] = {
            try daemon.tell(.stateChanged) { message in
                for word in ["background", "not-running", "request"] { try message.append(word) }
            }
        }
        try daemon.sendToBackground(3)
        try daemon.wait("the save") { daemon.order.contains("SaveState") }
        try player.wait(for: "didBecomeActive")
        #expect(try player.ask("managed") == "false")
        #expect(player.names.suffix(3) == ["didEnterBackground", "willEnterForeground", "didBecomeActive"])
        #expect(player.process.errors.contains("unregistered"))
        #expect(daemon.order.count { $0 == "Register" } == 1)
        // The next daemon knows nothing of it.
        try daemon.leave()
        try daemon.comeBack(knows: false)
        try daemon.wait("the registration") { daemon.order.count { $0 == "Register" } == 2 }
        #expect(daemon.order.count { $0 == "SaveState" } == 1)
        withExtendedLifetime(player) {}
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

    @Test("an application that may not open its URLs because it is ending does not take itself for gone")
    func refusedDelivery() throws {
        let daemon = try StandIn()
        let player = try Player(bus: daemon.bus)
        try daemon.launch()
        daemon.refusals["Open"] = [Self.refusal(.noSuchApplication)]
        player.tell("open org.example.LibraryActor")
        try daemon.wait("the refusal") { daemon.order.contains("Open") }
        try player.wait(forLine: "answer \(ErrorName.noSuchApplication.rawValue)")
        #expect(!player.names.contains("didBecomeActive"))
    }
}
