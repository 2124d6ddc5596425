import Foundation
import Glibc
import Testing

@testable import Linux

/// Files that are created, written and removed.
@Suite("Watched paths")
struct PathWatchTests {
    @Test(
        "a file is watched even without its directories or behind a link; other files cause no event"
    )
    func watched() throws {
        let home = NSTemporaryDirectory() + "home.\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: home) }
        let files = FileManager.default
        try files.createDirectory(atPath: home + "/dot", withIntermediateDirectories: true)
        let directory = home + "/.config/appstated"
        let watch = try PathWatch(path: directory + "/session.conf", isFile: true)
        func isTold() -> Bool {
            var look = pollfd(fd: watch.descriptor, events: Int16(POLLIN), revents: 0)
            return poll(&look, 1, 0) > 0
        }
        func write(to path: String) {
            let number = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
            _ = Glibc.write(number, "x", 1)
            close(number)
        }
        /// Dispatches whatever arrives until nothing more does.
        func settle() throws {
            var turns = 0
            while isTold() {
                watch.dispatch()
                turns += 1
                try #require(turns < 10)
            }
        }
        try settle()
        for step in ["/.config", "/.config/appstated"] {
            try files.createDirectory(atPath: home + step, withIntermediateDirectories: false)
            #expect(isTold())
            try settle()
        }
        // Changes in the home directory no longer matter.
        write(to: home + "/other")
        #expect(!isTold())
        write(to: directory + "/session.conf")
        #expect(isTold())
        try settle()
        // Nor do those in the directory above it, once it has the file.
        write(to: home + "/.config/other")
        #expect(!isTold())
        try files.removeItem(atPath: directory + "/session.conf")
        write(to: home + "/dot/session.conf")
        try files.createSymbolicLink(
            atPath: directory + "/new", withDestinationPath: home + "/dot/session.conf")
        rename(directory + "/new", directory + "/session.conf")
        #expect(isTold())
        try settle()
        write(to: home + "/dot/session.conf")
        #expect(isTold())
        try settle()
        // The directory is replaced, although a process is still in the former one.
        let inside = open(directory, O_RDONLY | O_DIRECTORY)
        defer { close(inside) }
        try files.removeItem(atPath: directory)
        #expect(isTold())
        try settle()
        try files.createDirectory(atPath: directory, withIntermediateDirectories: false)
        #expect(isTold())
        try settle()
        write(to: directory + "/session.conf")
        #expect(isTold())
        try settle()
        // It is moved away, and a link to a directory that has the file takes its place.
        rename(directory, home + "/former")
        #expect(isTold())
        try settle()
        try files.createSymbolicLink(atPath: directory, withDestinationPath: home + "/dot")
        #expect(isTold() && watch.dispatch())
        try settle()
        // The directory that the link leads to is another link, which is replaced again and again.
        for turn in 0..<20 {
            let generation = home + "/generation\(turn)"
            try files.createDirectory(atPath: generation, withIntermediateDirectories: false)
            write(to: generation + "/session.conf")
            try files.createSymbolicLink(atPath: home + "/new", withDestinationPath: "generation\(turn)")
            if turn == 0 {
                try files.removeItem(atPath: home + "/dot")
                try settle()
            }
            rename(home + "/new", home + "/dot")
            #expect(isTold() && watch.dispatch(), "\(turn)")
            try settle()
            write(to: generation + "/session.conf")
            #expect(isTold(), "\(turn)")
            try settle()
        }
        let watches = try String(
            contentsOfFile: "/proc/self/fdinfo/\(watch.descriptor)", encoding: .utf8
        ).split(separator: "\n").filter { $0.hasPrefix("inotify") }
        #expect(watches.count < 10)
        // A directory further up is moved away, and another takes its place.
        rename(home + "/.config", home + "/former-config")
        #expect(isTold())
        try settle()
        try files.createDirectory(atPath: directory, withIntermediateDirectories: true)
        #expect(isTold())
        try settle()
        write(to: directory + "/session.conf")
        #expect(isTold())
        try settle()
    }
}
