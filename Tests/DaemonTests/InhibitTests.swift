import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Inhibit: policy does not suspend an application while a descriptor is open.
@Suite("Inhibitors", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct InhibitTests {
    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    /// An inhibitor that the test holds.
    private final class Held {
        let descriptor: Descriptor

        init(_ client: Client, _ path: String, who: String = "make", why: String = "a build") throws {
            let reply = try client.call(path, BusNames.application, "Inhibit") {
                try $0.append(who)
                try $0.append(why)
            }
            descriptor = Descriptor(owning: try reply.readDescriptor())
        }

        /// Whether it is at its end of file within five minutes, or at once.
        func hasEnded(waiting: Bool = true) -> Bool {
            var ready = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
            guard poll(&ready, 1, waiting ? 300_000 : 0) == 1 else { return false }
            var byte: UInt8 = 0
            return read(descriptor.rawValue, &byte, 1) == 0
        }
    }

    @Test("policy suspends an application when its last inhibitor is closed, and Explain names them before")
    func inhibit() throws {
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("automatic"))])
        try client.wait(for: path, toBe: "suspended")
        var first: Held? = try Held(client, path)
        try client.wait(for: path, toBe: "background")
        var second: Held? = try Held(client, path, who: "rsync", why: "a backup")
        let rows = Variant.array(
            "(ss)",
            [
                .structure([.string("make"), .string("a build")]),
                .structure([.string("rsync"), .string("a backup")]),
            ])
        #expect(try client.property(path, "Inhibitors") == rows)
        let words = ["inhibited by make: a build", "inhibited by rsync: a backup"]
        let explanation = try client.explain(path)
        #expect(explanation["inhibitors"] == rows)
        #expect(explanation["objections"] == .strings(words))
        #expect(try client.property(path, "Objections") == .strings(words))
        #expect(try client.property(path, "SuspensionDeadline") == .uint64(.max))
        first = nil
        try client.wait("the end of the first") {
            try client.property(path, "Objections") == .strings(Array(words.dropFirst()))
        }
        #expect(try client.state(path) == "background")
        second = nil
        try client.wait(for: path, toBe: "suspended")
        _ = (first, second)
    }

    @Test("an inhibitor ends with its application, and with the daemon, and its holder sees that")
    func ends() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=300\n")
        let client = try daemon.subscriber()
        let processes = try (0..<2).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes.map {
            try client.register("org.example.Player", $0.pid, [("suspension", .string("automatic"))])
        }
        let held = try paths.map { try Held(client, $0) }
        #expect(!held.contains { $0.hasEnded(waiting: false) })
        processes[0].kill(SIGKILL)
        #expect(held[0].hasEnded())
        #expect(!held[1].hasEnded(waiting: false))
        try daemon.end(SIGKILL)
        #expect(held[1].hasEnded())
        try daemon.start()
        // Its holder has time to take it again.
        #expect(try client.explain(paths[1])["suspension-deadline"] != .uint64(.never))
        let again = try Held(client, paths[1])
        #expect(try client.explain(paths[1])["suspension-deadline"] == .uint64(.never))
        #expect(!again.hasEnded(waiting: false))
    }

    @Test("appstatectl inhibit asks the next daemon again, passes signals on, and exits as its command does")
    func command() throws {
        let tool = try #require(Programs.built("appstatectl"))
        let daemon = try TestDaemon(configuration: Self.impatient)
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        let path = try client.register(
            "org.example.Player", process.pid, [("suspension", .string("automatic"))])
        func run(_ arguments: String...) throws -> Child {
            try Child(tool, ["inhibit"] + arguments, environment: daemon.bus.environment)
        }
        let rows = Variant.array("(ss)", [.structure([.string("sleep 1000"), .string("a test")])])
        let command = try run("--why", "a test", "org.example.Player", "sleep", "1000")
        try client.wait("the inhibitor") { try client.property(path, "Inhibitors") == rows }
        try daemon.end(SIGKILL)
        try daemon.start()
        try client.wait("the inhibitor again") { try client.property(path, "Inhibitors") == rows }
        command.kill(SIGTERM)
        #expect(try command.waitForExit() == .exited(128 + SIGTERM))
        try client.wait("the suspension") { try client.state(path) == "suspended" }
        #expect(try run("org.example.Player", "--", "sh", "-c", "exit 7").waitForExit() == .exited(7))
        #expect(try run("org.example.Player", "/nonexistent").waitForExit() == .exited(127))
        #expect(try run("org.example.None", "true").waitForExit() == .exited(3))
        let ending = try run("org.example.Player", "sleep", "1000")
        try client.wait("the inhibitor") { try client.property(path, "Inhibitors") != .array("(ss)", []) }
        process.kill(SIGKILL)
        try ending.waitForLine(containing: "has ended")
        ending.kill(SIGTERM)
        #expect(try ending.waitForExit() == .exited(128 + SIGTERM))
    }

    @Test("inhibitors count as subscribers, and what is too long, empty or sandboxed is refused")
    func limits() throws {
        // The test itself subscribes.
        let stage = try Stage(configuration: "[Limits]\nSubscribersPerUser=3\n")
        func call(_ who: String, _ why: String) throws {
            try stage.client.call(stage.path, BusNames.application, "Inhibit") {
                try $0.append(who)
                try $0.append(why)
            }
        }
        try stage.refuses(.invalidArgs, "nobody") { try call("", "a build") }
        try stage.refuses(.invalidArgs, "no reason") { try call("make", "") }
        try stage.refuses(.limitsExceeded, "a long reason") {
            try call("make", String(repeating: "a", count: 2_000))
        }
        var held = try (0..<2).map { _ in try Held(stage.client, stage.path) }
        try stage.client.settle()
        stage.client.forget()
        try stage.refuses(.limitsExceeded, "the third") { try call("make", "a build") }
        let other = try stage.daemon.client()
        try stage.refuses(.limitsExceeded, "a subscriber") { try other.manager("Subscribe") }
        held.removeLast()
        try stage.client.wait("room") { errorName { try other.manager("Subscribe") } == nil }
    }
}
