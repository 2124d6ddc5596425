import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// An application that is frozen with its cgroup is sent nothing, however much happens. Neither the bus nor the daemon
/// keeps anything for it except the little that it is sent afterwards.
@Suite(
    "Flow to the frozen", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct FrozenFlowTests {
    /// By how much memory may grow, in KiB: what an allocator keeps by itself, malloc(3)'s M_TRIM_THRESHOLD of 128 KiB
    /// and a few pages. 10,000 events are some 40,000 signals of 250 bytes and more: 10 MiB.
    private static let bound = 512
    /// The delegate's signals on the way from active to suspended and back.
    private static let missed = [
        "WillResignActive", "active→inactive", "inactive→background", "DidEnterBackground",
        "WillEnterForeground", "background→inactive", "inactive→active", "DidBecomeActive",
    ]

    @Test(
        "bus and daemon keep nothing of 10,000 events for a frozen subscriber, which gets one Resync",
        arguments: ["Suspend", "somebody's freeze"])
    func frozen(by means: String) throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let home = try TestCgroup("app-test")
        let app = try App(daemon.bus)
        try home.take(app.pid)
        let path = try app.register("org.example.Actor", "suspension=s:manual")
        try app.manager("Subscribe")
        try app.application(path, "FinishLaunching")
        try burst.live.setFocus(app.pid)
        try burst.live.wait(for: path, toBe: "active")
        let name = try app.ask("name")
        // By now everything that grows only once has grown.
        try burst.happen(1_000) { try app.settle() }
        try app.settle()
        let told = (lines: app.lines.count, story: app.story(of: path).count)

        if means == "Suspend" { try burst.live.application(path, means) } else { try home.cgroup.freeze() }
        try burst.live.wait(for: path, toBe: "suspended")
        #expect(try home.cgroup.isFrozen())
        try burst.live.catchUp()
        let queue = try daemon.queue(of: name)
        let memory = (own: try daemon.anonymousMemory(), bus: try daemon.anonymousMemoryOfBus())
        let process = try Proc().identity(of: app.pid)
        #expect(try !UnixSockets.haveUnread([process]))

        for _ in 0..<625 {
            try burst.happen(12)
            // Four more events are about itself, and it ends in the state in which it began.
            try burst.live.setFocus(0)
            try burst.live.setMinimized(app.pid, true)
            try burst.live.setMinimized(app.pid, false)
            try burst.live.setFocus(app.pid)
            try burst.live.catchUp()
        }

        #expect(try home.cgroup.isFrozen())
        #expect(try !UnixSockets.haveUnread([process]))
        // Nothing waits for it and nothing did: the peak is unchanged.
        #expect(try daemon.queue(of: name) == queue)
        #expect(queue?["OutgoingMessages"] ?? 0 == 0)
        #expect(try daemon.anonymousMemory() - memory.own < Self.bound)
        #expect(try daemon.anonymousMemoryOfBus() - memory.bus < Self.bound)

        if means == "Suspend" {
            try burst.live.application(path, "Resume")
        } else {
            try home.cgroup.thaw()
        }
        try burst.live.wait(for: path, toBe: "active")
        try app.settle()
        #expect(Array(app.story(of: path).dropFirst(told.story)) == Self.missed)
        #expect(try app.last("DidEnterBackground", of: path) == ["0", "0"])
        // All of it is about itself, followed by Resync, which it gets as a subscriber.
        let heard = app.lines.dropFirst(told.lines).filter { $0.hasPrefix("signal ") }
        #expect(heard.count == Self.missed.count + 1, "\(heard)")
        #expect(heard.last?.hasSuffix(" Resync") == true, "\(heard)")

        // From then on it gets everything again.
        try burst.live.catchUp()
        let back = app.lines.count
        try burst.happen(8)
        try app.settle()
        let edges = app.lines.dropFirst(back).filter { $0.contains(" \(BusNames.application) StateChanged ") }
        #expect(edges.count == 8)
    }
}

extension TestDaemon {
    /// What its bus keeps for a connection, and the most that it ever kept, as `Outgoing…` of
    /// org.freedesktop.DBus.Debug.Stats; nil if the bus was built without the statistics or denies them to us.
    fileprivate func queue(of name: String) throws -> [String: UInt32]? {
        let client = try client()
        let question = try client.bus.newCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus.Debug.Stats", member: "GetConnectionStats")
        try question.append(name)
        do {
            return try Self.outgoing(client.bus.call(question))
        } catch {
            let unknown = ["UnknownMethod", "UnknownInterface", "AccessDenied"]
            guard unknown.contains(where: { error.name?.hasSuffix("." + $0) == true }) else { throw error }
            return nil
        }
    }

    private static func outgoing(_ answer: borrowing Message) throws(BusFailure) -> [String: UInt32] {
        var queue: [String: UInt32] = [:]
        for (key, value) in try answer.readDictionary() where key.contains("Outgoing") {
            if case .uint32(let number) = value { queue[key] = number }
        }
        return queue
    }
}
