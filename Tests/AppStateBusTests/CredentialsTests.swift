import Foundation
import Glibc
import TestSupport
import Testing

@testable import AppStateBus

@Suite(.enabled(if: hasBus, noBus)) struct CredentialsTests {
    @Test func aConnectionOfThisProcess() throws {
        let peers = try Peers()
        var credentials = try peers.service.credentials(of: peers.client.uniqueName)
        #expect(credentials.uid == getuid())
        #expect(credentials.pid == getpid())
        // dbus-daemon supplies a pidfd since 1.15.8.
        if let descriptor = credentials.takePidDescriptor() {
            #expect(Self.process(of: descriptor) == getpid())
            close(descriptor)
        }
        #expect(credentials.pidDescriptor == nil)
    }

    @Test(
        .enabled(if: getuid() == 0, "only root can be another user"),
        .enabled(if: Programs.inPath("gdbus") != nil, "gdbus is not installed"))
    func aConnectionOfAnotherUser() throws {
        let peers = try Peers()
        var names: [String] = []
        let joined = try peers.service.match(
            "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg1=''",
            failed: unexpected
        ) { message in
            names.append((try? message.readString()) ?? "unread")
        }
        try peers.settle()
        names.removeAll()
        let nobody: UInt32 = 65_534
        let child = try Child(
            "gdbus", ["monitor", "--address", peers.daemon.address, "--dest", Peers.name], uid: nobody)
        try peers.run { !names.isEmpty }
        let credentials = try peers.service.credentials(of: try #require(names.first))
        #expect(credentials.uid == nobody)
        #expect(credentials.pid == child.pid)
        child.kill(SIGTERM)
        try child.waitForExit()
        joined.cancel()
    }

    @Test func aConnectionThatLeft() throws {
        let peers = try Peers()
        do {
            _ = try peers.service.credentials(of: ":1.999999")
            Issue.record("a missing connection has credentials")
        } catch {
            #expect(error.name == "org.freedesktop.DBus.Error.NameHasNoOwner")
        }
    }

    @Test func handlersMayAskTheBusWhileOtherCallsWait() throws {
        let peers = try Peers()
        // Not the peers themselves, since they own the slot.
        let bus = peers.service
        try peers.serve(
            Method("Who", out: [("uid", "u"), ("pid", "i")]) { call in
                let credentials = try bus.credentials(of: call.sender)
                #expect(bus.currentSender == call.sender)
                let (uid, pid) = (credentials.uid, credentials.pid)
                try call.reply { reply in
                    try reply.append(uid)
                    try reply.append(pid)
                }
            })
        var answers: [Int32] = []
        let slots = try (0..<3).map { _ in
            try peers.client.callAsync(peers.newCall("Who")) { reply in
                #expect((try? reply.readUInt32()) == getuid())
                answers.append((try? reply.readInt32()) ?? -1)
            }
        }
        try peers.run { answers.count == 3 }
        #expect(answers == Array(repeating: getpid(), count: 3))
        for slot in slots {
            slot.cancel()
        }
    }

    /// The answer of a newer bus, from a service in this test.
    @Test func labelAndPidfdAreTaken() throws {
        let peers = try Peers()
        let pipe = try PipeEnds()
        try peers.serve(
            Method("Full", out: [("credentials", "a{sv}")]) { call in
                try call.reply { reply in
                    try reply.withContainer(.array, "{sv}") {
                        try reply.withContainer(.dictEntry, "sv") {
                            try reply.append("ProcessFD")
                            try reply.withContainer(.variant, "h") {
                                try reply.append(descriptor: pipe.write)
                            }
                        }
                        for (key, value) in [
                            ("UnixUserID", Variant.uint32(7)), ("ProcessID", .uint32(8)),
                            ("LinuxSecurityLabel", .bytes(Array("label\0".utf8))),
                            ("UnixGroupIDs", .array("u", [])),
                            ("Other", .string("x")),
                        ] {
                            try reply.withContainer(.dictEntry, "sv") {
                                try reply.append(key)
                                try reply.append(value)
                            }
                        }
                    }
                }
            },
            Method("Bare", out: [("credentials", "a{sv}")]) { call in
                try call.reply {
                    try $0.appendDictionary([("UnixUserID", .uint32(7)), ("ProcessID", .string("8"))])
                }
            })
        var full = try Credentials(reading: peers.call("Full"), of: ":1.7")
        #expect(full.uid == 7)
        #expect(full.pid == 8)
        #expect(full.securityLabel == "label")
        let taken = full.takePidDescriptor()
        let descriptor = try #require(taken)
        #expect(write(descriptor, "x", 1) == 1)
        close(descriptor)
        do {
            let bare = try peers.call("Bare")
            _ = try Credentials(reading: bare, of: ":1.7")
            Issue.record("credentials without a process were accepted")
        } catch let error as BusFailure {
            #expect(error.errno == ENODATA)
        }
    }

    private static func process(of pidfd: Int32) -> pid_t? {
        let info = try? String(contentsOfFile: "/proc/self/fdinfo/\(pidfd)", encoding: .utf8)
        let line = info?.split(separator: "\n").first { $0.hasPrefix("Pid:") }
        return line.flatMap { pid_t($0.dropFirst(4).trimmingCharacters(in: .whitespaces)) }
    }
}
