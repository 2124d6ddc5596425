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

    private static func process(of pidfd: Int32) -> pid_t? {
        let info = try? String(contentsOfFile: "/proc/self/fdinfo/\(pidfd)", encoding: .utf8)
        let line = info?.split(separator: "\n").first { $0.hasPrefix("Pid:") }
        return line.flatMap { pid_t($0.dropFirst(4).trimmingCharacters(in: .whitespaces)) }
    }
}
