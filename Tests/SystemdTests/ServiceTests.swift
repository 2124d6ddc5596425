import Foundation
import Glibc
import TestSupport
import Testing

@testable import Systemd

@Suite struct ServiceTests {
    @Test func theServiceManagerIsTold() throws {
        let socket = try NotifySocket()
        let probe = try #require(Programs.built("SystemdProbe"))
        let told = try Child(
            probe, ["READY=1", "STATUS=running"], environment: ["NOTIFY_SOCKET": socket.path])
        #expect(try told.waitForExit() == .exited(0))
        #expect(try socket.receive() == "READY=1\nSTATUS=running")
    }

    @Test func withoutAServiceManagerNothingHappens() throws {
        let probe = try #require(Programs.built("SystemdProbe"))
        for environment in [["NOTIFY_SOCKET": nil], ["NOTIFY_SOCKET": "/nonexistent/notify"]]
            as [[String: String?]]
        {
            let silent = try Child(probe, ["READY=1"], environment: environment)
            #expect(try silent.waitForExit() == .exited(0))
            #expect(silent.output.isEmpty && silent.errors.isEmpty)
        }
    }

    @Test func aLineGoesToStandardErrorUnlessThatIsTheJournal() throws {
        let pipe = try PipeEnds()
        let line = Journal(
            identifier: "test", minimum: .notice, errorDescriptor: pipe.write, journalStream: "8:1")
        line.log(.notice, "seen", [("APPSTATE_TEST", "1")])
        line.log(.info, "below the minimum")
        var status = stat()
        #expect(fstat(pipe.write, &status) == 0)
        let journal = Journal(
            identifier: "test", minimum: .debug, errorDescriptor: pipe.write,
            journalStream: "\(status.st_dev):\(status.st_ino)")
        journal.log(.debug, "in the journal only")
        line.log(.emergency, "seen\ntoo")
        close(pipe.takeWrite())
        let text = FileHandle(fileDescriptor: pipe.read).readDataToEndOfFile()
        #expect(String(decoding: text, as: UTF8.self) == "test: seen\ntest: seen too\n")
    }

    @Test func prioritiesAreThoseOfSyslog() {
        #expect(Journal.Priority.allCases.map(\.rawValue) == Array(0...7))
        #expect(Journal.Priority.error.rawValue == LOG_ERR && Journal.Priority.debug.rawValue == LOG_DEBUG)
    }

    @Test func loginAnswersNilForWhatIsNotThere() {
        #expect(Login.owner(ofSession: "no-such-session") == nil)
        #expect(Login.displaySession(ofUser: 4_000_000_000) == nil)
        #expect(Login.session(ofProcess: Int32.max) == nil)
        #expect(Login.session(ofProcess: -1) == nil)
        #expect(Login.unit(ofProcess: Int32.max) == nil)
    }
}

/// A datagram socket like a service manager's.
private final class NotifySocket {
    let path: String
    private let descriptor: Int32
    private let directory: String

    init() throws {
        var template = Array("\(NSTemporaryDirectory())notify.XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        path = "\(directory)/notify"
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(bound == 0)
    }

    deinit {
        close(descriptor)
        try? FileManager.default.removeItem(atPath: directory)
    }

    func receive() throws -> String {
        var ready = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        try #require(poll(&ready, 1, 300_000) == 1)
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let count = read(descriptor, &bytes, bytes.count)
        return String(decoding: bytes.prefix(max(count, 0)), as: UTF8.self)
    }
}
