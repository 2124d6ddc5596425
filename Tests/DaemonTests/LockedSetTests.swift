import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The kernel waits before it tells what an epoll set contains, for as long as whoever has locked the set likes.
@Suite(
    "A locked epoll set", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"),
    .enabled(if: getuid() == 0, "needs root"))
struct LockedSetTests {
    @Test("it is refused as no pidfd, and an application that has one can be examined")
    func waits() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let owner = try Scripts.start("locked_set.py", on: daemon.bus)
        try owner.waitForLine(containing: "refused org.freedesktop.DBus.Error.InvalidArgs")
        // Only while processes wait for a lock are the open files of applications examined.
        let file = daemon.bus.directory + "/lock"
        let holder = try Child("flock", [file, "sh", "-c", "echo locked; exec sleep 1000"])
        try holder.waitForLine(containing: "locked")
        let waiter = try Child("flock", [file, "true"])
        try client.wait("a waiter") {
            try String(contentsOfFile: "/proc/locks", encoding: .utf8).split(separator: "\n").contains {
                $0.contains("->") && $0.contains(" \(waiter.pid) ")
            }
        }
        let path = try client.register("org.example.Set", owner.pid)
        #expect(try client.listObjections(path) == [])
        #expect(try client.state(path) == "background")
    }
}
