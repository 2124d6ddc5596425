import AppStateBus
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The list of the processes of an application that is stopped process by process is long. It is not written with
/// each fact.
@Suite(
    "Files of held applications", .enabled(if: Family.isAvailable, Comment(rawValue: Family.whatIsMissing)))
struct HoldingFileTests {
    private let daemon: TestDaemon
    private let client: Client
    private let family: Family
    private let path: String

    init() throws {
        daemon = try TestDaemon()
        client = try daemon.subscriber()
        family = try Family()
        path = try client.register("org.example.Large", family.pid)
        try client.application(path, "Suspend")
        try client.wait(for: path, toBe: "suspended")
    }

    private func file(_ directory: String) -> String { "\(daemon.runtimeDirectory)/\(directory)/1" }

    /// Identifies this writing of the file. The inode alone may be reused from an earlier one.
    private func writing(_ path: String) throws -> [Int] {
        var information = stat()
        guard stat(path, &information) == 0 else { throw TestFailure("stat \(path): \(errno)") }
        return [Int(information.st_ino), information.st_ctim.tv_sec, information.st_ctim.tv_nsec]
    }

    @Test("a fact about a held application rewrites the short file, but not the long one")
    func facts() throws {
        #expect(try WholeFile.read(file("holds")).count > 40 * family.all.count)
        #expect(try WholeFile.read(file("applications")).count < 16_384)
        let before = (holds: try writing(file("holds")), application: try writing(file("applications")))
        for isMinimized in [true, false, true] { try client.setMinimized(family.pid, isMinimized) }
        #expect(try writing(file("holds")) == before.holds)
        #expect(try writing(file("applications")) != before.application)
        #expect(try WholeFile.read(file("applications")).count < 16_384)
        // The next daemon knows all processes.
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try client.state(path) == "suspended")
        #expect(family.stopped == family.all.count)
        try client.application(path, "Resume")
        try family.wait("the release") { family.stopped == 0 }
    }

    @Test(
        "the next daemon lets all processes run if the long file is gone, and finds all if it is cut short",
        arguments: ["gone", "cut"])
    func lost(_ how: String) throws {
        try daemon.end(SIGKILL)
        if how == "gone" {
            unlink(file("holds"))
        } else {
            try WholeFile.write(Array(try WholeFile.read(file("holds")).prefix(2_000)), to: file("holds"))
        }
        try daemon.start()
        if how == "cut" {
            #expect(try client.state(path) == "suspended")
            try client.application(path, "Resume")
        }
        try family.wait("the release") { family.stopped == 0 }
    }
}
