import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// A client that cannot read is sent only a bounded number of signals, and one Resync when it can read again. No other
/// client notices.
@Suite("Flow", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct FlowTests {
    /// The daemon sends a ping after so many signals, and as many more while the ping is unanswered.
    private static let window = 256
    /// By how much memory may grow, in KiB: a few times what one connection is sent before it is cut off. 10,000
    /// events are some 40,000 signals: 10 MiB and more.
    private static let bound = 1_536

    // MARK: Suspended

    @Test(
        "a suspended subscriber is sent nothing; when it resumes it gets one Resync, and then everything",
        arguments: ["Suspend", "SIGSTOP"])
    func suspended(by means: String) throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let (app, path) = try subscribedApplication(daemon)
        if means == "Suspend" {
            try burst.live.application(path, means)
        } else {
            app.process.kill(SIGSTOP)
            try burst.live.wait(for: path, toBe: "suspended")
        }
        try burst.live.catchUp()
        let before = app.lines.count
        try burst.happen(5_000)
        if means == "Suspend" {
            try burst.live.application(path, "Resume")
        } else {
            app.process.kill(SIGCONT)
        }
        try burst.live.wait(for: path, toBe: "inactive")
        try app.settle()
        let heard = signals(app, from: before)
        #expect(heard.filter { $0.hasSuffix(" Resync") }.count == 1, "\(heard)")
        // Everything else that it is sent is about itself: what it missed as a delegate, and its return.
        #expect(heard.allSatisfy { $0.hasSuffix(" Resync") || $0.contains(path) }, "\(heard)")
        try expectTruth(app, burst)

        try burst.live.catchUp()
        let mark = (app: app.lines.count, live: burst.heard.count)
        try burst.happen(8)
        try app.settle()
        let now = signals(app, from: mark.app).filter { $0.contains(" StateChanged ") }
        #expect(now.count == 2 * 8)
        #expect(now == lines(burst.heard[mark.live...].filter { $0.member == "StateChanged" }))
        #expect(!signals(app, from: mark.app).contains { $0.hasSuffix(" Resync") })
    }

    @Test("a suspended application whose process answers a ping is still sent nothing")
    func answerWhileSuspended() throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        // The connection is its descendant's, which still runs when the main process is stopped.
        let speaker = try app.make("descend")
        try app.manager("Subscribe")
        try app.settle()
        let before = app.lines.count
        kill(speaker, SIGSTOP)
        try waitUntilStopped(speaker)
        // Enough for a ping, too few to be cut off.
        try burst.happen(Self.window / 4 + 16)
        app.process.kill(SIGSTOP)
        try burst.live.wait(for: path, toBe: "suspended")
        try burst.happen(16)
        kill(speaker, SIGCONT)
        // It answers the ping within the first call, so the daemon has the answer before it answers the second.
        try app.settle()
        try app.settle()
        let sent = app.lines.count
        try burst.happen(64)
        try app.settle()
        #expect(signals(app, from: sent) == [])
        #expect(!signals(app, from: before).contains { $0.hasSuffix(" Resync") })
        app.process.kill(SIGCONT)
        try burst.live.wait(for: path, toBe: "inactive")
        try app.settle()
        #expect(signals(app, from: before).filter { $0.hasSuffix(" Resync") }.count == 1)
        try expectTruth(app, burst)
    }

    @Test("a delegate that is suspended with a ping under way still gets everything that it missed")
    func pingUnderWay() throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let speaker = try app.make("descend")
        try app.application(path, "BecomeDelegate")
        try app.manager("Subscribe")
        try app.settle()
        let before = app.story(of: path).count
        kill(speaker, SIGSTOP)
        try waitUntilStopped(speaker)
        try burst.happen(Self.window / 4 + 16)
        app.process.kill(SIGSTOP)
        try burst.live.wait(for: path, toBe: "suspended")
        try burst.happen(16)
        // The application is back before its delegate has answered.
        app.process.kill(SIGCONT)
        try burst.live.wait(for: path, toBe: "inactive")
        kill(speaker, SIGCONT)
        try app.process.waitForLine(containing: " Resync")
        try app.settle()
        #expect(
            Array(app.story(of: path).dropFirst(before)) == [
                "inactive→background", "DidEnterBackground", "WillEnterForeground", "background→inactive",
            ])
    }

    @Test("signals to a user's subscribers are limited for each step; one that misses some gets a Resync")
    func manySubscribers() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let applications = try (0..<12).map { _ in try Child("sleep", ["1000"]) }
        for application in applications { try client.register("org.example.App", application.pid) }
        let subscribers = try (0..<40).map { _ in try daemon.subscriber() }
        for subscriber in subscribers {
            try subscriber.settle()
            subscriber.forget()
        }
        try client.reporter("ReplaceWindows") { call in
            try call.withContainer(.array, "(tua{sv})") {
                for (number, application) in applications.enumerated() {
                    try call.withContainer(.struct, "tua{sv}") {
                        try call.append(UInt64(number))
                        try call.append(UInt32(application.pid))
                        try call.appendDictionary([("visible", .bool(true))])
                    }
                }
            }
        }
        for subscriber in subscribers { try subscriber.settle() }
        let sent = subscribers.reduce(0) { $0 + $1.received.count { $0.member != "Resync" } }
        #expect((1...384).contains(sent), "\(sent)")
        let most = subscribers.map(\.received.count).max() ?? 0
        for subscriber in subscribers {
            let members = subscriber.received.map(\.member)
            // It got everything, or as much as there was room for and then a Resync.
            #expect(members.count == most || members.last == "Resync", "\(members)")
        }
        #expect(subscribers.contains { $0.received.last?.member == "Resync" })
    }

    // MARK: Not reading

    @Test("a subscriber that does not read is cut off, costs little memory, and gets a Resync when it reads")
    func notReading() throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        // By now everything that grows only once has grown.
        try burst.happen(1_000)
        let memory = (own: try daemon.anonymousMemory(), bus: try daemon.anonymousMemoryOfBus())
        let mute = try daemon.subscriber()
        for events in [10_000, 500] {
            let mark = burst.heard.count
            // Its loop does not run meanwhile.
            try burst.happen(events)
            #expect(try daemon.anonymousMemory() - memory.own < Self.bound)
            #expect(try daemon.anonymousMemoryOfBus() - memory.bus < Self.bound)

            try mute.wait("Resync") { mute.received.last?.member == "Resync" }
            try mute.settle()
            let sent = Array(mute.received.prefix { $0.member != "Resync" })
            #expect((Self.window...2 * Self.window).contains(sent.count), "\(sent.count)")
            // No gap before the end.
            #expect(sent == Array(burst.heard[mark...].prefix(sent.count)))
            #expect(mute.received.dropFirst(sent.count).map(\.member) == ["Resync"])
            #expect(try mute.list() == burst.live.list())
            mute.forget()

            let back = burst.heard.count
            try burst.happen(320) { try mute.settle() }
            #expect(mute.received == Array(burst.heard[back...]))
            mute.forget()
        }
    }

    @Test("a delegate that does not read while its application runs is cut off in the same way")
    func delegateNotReading() throws {
        let daemon = try TestDaemon()
        let burst = try Burst(daemon)
        let client = burst.live
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "suspension=s:never")
        try app.application(path, "FinishLaunching")
        // A stop of its main process would suspend it. A descendant's stop does not.
        let delegate = try app.make("descend")
        try app.application(path, "BecomeDelegate")
        try app.settle()
        try client.catchUp()
        let before = app.lines.count
        let memory = (own: try daemon.anonymousMemory(), bus: try daemon.anonymousMemoryOfBus())
        kill(delegate, SIGSTOP)
        try waitUntilStopped(delegate)
        var told: [String] = []
        for _ in 0..<1_000 {
            for event in 0..<10 { try client.setMinimized(app.pid, event % 2 == 0) }
            try client.settle()
            // Clients that read get every one at once.
            guard client.edges(of: path).count == 10 else { throw TestFailure("\(client.received)") }
            told += lines(client.received.filter { $0.interface == BusNames.application })
            client.forget()
        }
        #expect(try daemon.anonymousMemory() - memory.own < Self.bound)
        #expect(try daemon.anonymousMemoryOfBus() - memory.bus < Self.bound)

        kill(delegate, SIGCONT)
        try app.process.waitForLine(containing: " Resync")
        try app.settle()
        let heard = signals(app, from: before)
        #expect(heard.filter { $0.hasSuffix(" Resync") }.count == 1)
        #expect(heard.last?.hasSuffix(" Resync") == true)
        let sent = Array(heard.dropLast())
        #expect((Self.window...2 * Self.window).contains(sent.count), "\(sent.count)")
        #expect(sent == Array(told.prefix(sent.count)))

        let back = app.lines.count
        try client.setMinimized(app.pid, true)
        try client.settle()
        try app.settle()
        #expect(signals(app, from: back) == lines(client.signals(of: path)))
        #expect(app.story(of: path).last == "DidEnterBackground")
    }

    // MARK: Gone

    @Test(
        "a subscriber that leaves during a burst leaves nothing behind, whether or not it was cut off",
        .enabled(if: StopTrace.isAvailable, Comment(rawValue: StopTrace.whatIsMissing)))
    func leaving() throws {
        let daemon = try TestDaemon(configuration: "[Limits]\nSubscribersPerUser=3\n")
        let burst = try Burst(daemon)
        func round() throws {
            // The first reads, the second has an unanswered ping, the third is cut off.
            let reader = try daemon.subscriber()
            try burst.happen(96) { try reader.settle() }
            var others: [Client] = [try daemon.subscriber()]
            try leave(reader, burst)
            others.append(try daemon.subscriber())
            try burst.happen(96)
            try leave(others.removeFirst(), burst)
            try burst.happen(96)
            try leave(others.removeFirst(), burst)
            try burst.happen(16)
        }
        for _ in 0..<3 { try round() }
        let memory = (own: try daemon.anonymousMemory(), bus: try daemon.anonymousMemoryOfBus())
        let descriptors = try daemon.descriptors()
        for _ in 0..<20 { try round() }
        // Other activity on the machine may make the daemon examine something, now or when it was asked first.
        try burst.live.wait("descriptors to be closed") {
            try daemon.descriptors().difference(from: descriptors).insertions.isEmpty
        }
        try burst.live.wait("timers to be disarmed") { try !daemon.hasArmedTimer() }
        // Each round could leave 512 signals to subscribers that do not read.
        #expect(try daemon.anonymousMemory() - memory.own < Self.bound)
        #expect(try daemon.anonymousMemoryOfBus() - memory.bus < Self.bound)
    }

    // MARK: Means

    /// Closes a connection that has unread signals, while more are being sent.
    private func leave(_ client: Client, _ burst: Burst) throws {
        let name = client.bus.uniqueName
        try burst.live.waitForDeparture(of: name) { client.bus.close() }
    }

    private func subscribedApplication(_ daemon: TestDaemon) throws -> (app: App, path: String) {
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.manager("Subscribe")
        try app.application(path, "FinishLaunching")
        try app.settle()
        return (app, path)
    }

    /// The signals among the application's lines, as it wrote them.
    private func signals(_ app: App, from first: Int) -> [String] {
        app.lines.dropFirst(first).filter { $0.hasPrefix("signal ") }
    }

    /// Signals as an application of Tests/Actor writes them.
    private func lines(_ signals: some Sequence<Client.Received>) -> [String] {
        signals.map { (["signal", $0.path, $0.interface, $0.member] + $0.arguments).joined(separator: " ") }
    }

    /// Checks that what it reads after Resync is what other clients read.
    private func expectTruth(_ app: App, _ burst: Burst) throws {
        for (path, _) in burst.applications {
            let answer = try app.ask(
                "call \(path) \(BusNames.properties) Get s:\(BusNames.application) s:State")
            #expect(try answer == "\(burst.live.property(path, "State"))")
        }
    }
}
