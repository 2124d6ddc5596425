import AppStateBus
import Foundation
import Glibc
import TestSupport
import Testing

@Suite(.enabled(if: hasBus, noBus)) struct BusTests {
    @Test func aBlockingCallReturnsTheReplyOrTheError() throws {
        let daemon = try PrivateBus()
        let bus = try Bus.open(address: daemon.address)
        let list = try bus.newCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus", member: "ListNames")
        let names = try bus.call(list).readStrings()
        #expect(names.contains(bus.uniqueName))
        let owner = try bus.newCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus", member: "GetNameOwner")
        try owner.append("org.appstate1.Nobody")
        do {
            _ = try bus.call(owner)
            Issue.record("a name that no connection owns has an owner")
        } catch {
            #expect(error.name == "org.freedesktop.DBus.Error.NameHasNoOwner")
            #expect(error.operation == "call" && error.subject == "GetNameOwner")
            #expect(error.description.contains("org.appstate1.Nobody"))
        }
    }

    @Test func aCallThatForbidsItStartsNoService() throws {
        let files = NSTemporaryDirectory() + "services.\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: files, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: files) }
        let name = "org.appstate1.Startable"
        try "[D-BUS Service]\nName=\(name)\nExec=/bin/false\nUser=root\n"
            .write(toFile: "\(files)/\(name).service", atomically: true, encoding: .utf8)
        let daemon = try PrivateBus(
            serviceDirectories: [files],
            policy: "<policy context=\"default\"><allow send_destination=\"\(name)\"/></policy>")
        let bus = try Bus.open(address: daemon.address)
        func failure(startable: Bool) throws -> String? {
            let ping = try bus.newCall(
                destination: name, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
            if !startable { try ping.forbidStart() }
            do {
                _ = try bus.call(ping)
                return nil
            } catch {
                return error.name
            }
        }
        #expect(try failure(startable: false) == "org.freedesktop.DBus.Error.NameHasNoOwner")
        let started = try failure(startable: true)
        #expect(started?.hasPrefix("org.freedesktop.DBus.Error.Spawn.") == true, "\(started ?? "")")
    }

    @Test func aMonitorSeesCallsAndAnswersNone() throws {
        let peers = try Peers()
        let monitor = try Bus.open(address: peers.daemon.address, isMonitor: true)
        var seen: [String] = []
        let filter = try monitor.addFilter { message in
            if message.isMethodCall { seen.append(message.member ?? "") }
            return false
        }
        _ = try monitor.call(monitor.newMonitorCall(["type='method_call',interface='org.example.Seen'"]))
        let deadline = ContinuousClock.now + .seconds(300)
        var answers: [Slot] = []
        for turn in 1...3 {
            let call = try peers.client.newCall(
                destination: peers.client.uniqueName, path: "/", interface: "org.example.Seen",
                member: "Turn\(turn)")
            answers.append(try peers.client.callAsync(call) { _ in })
            try peers.client.flush()
            while seen.count < turn, ContinuousClock.now < deadline {
                var event = pollfd(fd: monitor.descriptor, events: Int16(POLLIN), revents: 0)
                if try !monitor.process() { poll(&event, 1, 1_000) }
            }
        }
        #expect(seen == ["Turn1", "Turn2", "Turn3"])
        withExtendedLifetime(filter) {}
    }

    @Test func aCancelledCallIsNotHeardOf() throws {
        let peers = try Peers()
        var called = 0
        try peers.serve(
            Method("Count") { call in
                called += 1
                try call.reply()
            })
        let kept = try peers.client.callAsync(peers.newCall("Count")) { _ in
            Issue.record("a cancelled call was answered")
        }
        kept.cancel()
        _ = try peers.client.callAsync(peers.newCall("Count")) { _ in
            Issue.record("a released call was answered")
        }
        #expect(try peers.refusal("Count") == nil)
        #expect(called == 3)
        try peers.settle()
    }

    @Test func aCallMayEndItselfInItsHandler() throws {
        let peers = try Peers()
        try peers.serve(Method("Now") { call in try call.reply() })
        var slot: Slot?
        var heard = 0
        slot = try peers.client.callAsync(peers.newCall("Now")) { _ in
            heard += 1
            slot?.cancel()
            slot = nil
        }
        try peers.run { heard == 1 }
        #expect(slot == nil)
    }

    @Test func aLostBusIsReported() throws {
        let peers = try Peers()
        var lost = 0
        var failures: [String?] = []
        try peers.service.onDisconnect { lost += 1 }
        let call = try peers.service.newCall(
            destination: peers.client.uniqueName, path: "/", interface: "org.example.Other", member: "Any")
        #expect(peers.service.isOpen)
        peers.daemon.stop()
        let slot = try? peers.service.callAsync(call) { failures.append($0.error?.name) }
        try peers.run { lost == 1 }
        #expect(!peers.service.isOpen)
        // Reported once, and the pending call has failed.
        #expect(slot == nil || failures.count == 1)
        #expect(throws: BusFailure.self) {
            try peers.service.send(
                peers.service.newSignal(path: "/", interface: Peers.interface, member: "X"))
        }
    }
}
