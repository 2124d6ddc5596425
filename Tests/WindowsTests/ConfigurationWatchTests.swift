import AppStateBus
import Foundation
import Glibc
import SessionRules
import TestSupport
import Testing

@testable import appstate_session

/// When the agent reads its configuration again.
@Suite("Changes of the configuration")
struct ConfigurationWatchTests {
    private final class Reader {
        /// The contents of the file at each read; nil where there was no file.
        var texts: [String?] = []
    }

    @Test("the file is not read while an editor replaces it; its removal is noticed")
    func replaced() throws {
        let directory = NSTemporaryDirectory() + "configuration.\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let path = directory + "/session.conf"
        func write(_ text: String) throws {
            try text.write(toFile: path, atomically: false, encoding: .utf8)
        }
        try write("one")
        let loop = try EventLoop()
        let reader = Reader()
        func watch(_ replacement: UInt64) throws -> ConfigurationWatch {
            try ConfigurationWatch(.layers([path]), loop: loop, replacement: replacement) {
                reader.texts.append(try? String(contentsOfFile: path, encoding: .utf8))
            }
        }
        var current: ConfigurationWatch? = try watch(300_000_000)
        func wait(_ count: Int) throws {
            let deadline = ContinuousClock.now + .seconds(300)
            while reader.texts.count < count {
                guard ContinuousClock.now < deadline else { throw TestFailure("\(reader.texts)") }
                try loop.runOnce(timeout: 1_000_000)
            }
        }
        // Handles what has happened so far, whichever timer is pending.
        func turn() throws { for _ in 0..<4 { try loop.runOnce(timeout: 0) } }

        // As vim and Emacs do: they rename the old file and write a new one.
        rename(path, path + "~")
        try turn()
        let descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        try turn()
        #expect(reader.texts == [])
        _ = "two".withCString { Glibc.write(descriptor, $0, 3) }
        close(descriptor)
        try wait(1)
        #expect(reader.texts == ["two"])

        current = nil
        current = try watch(1_000)
        unlink(path)
        try wait(2)
        try write("three")
        try wait(3)
        #expect(reader.texts == ["two", nil, "three"])
        withExtendedLifetime(current) {}
    }
}
