import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Which client gets which signals, and in which order.
@Suite("Delivery", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct DeliveryTests {
    /// Takes an application through a life with every kind of signal.
    private func live(_ client: Client) throws -> (path: String, child: Child) {
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        try client.setFocus(child.pid)
        try client.setMinimized(child.pid, true)
        try client.application(path, "Suspend")
        try client.application(path, "Resume")
        try client.application(path, "Unregister")
        return (path, child)
    }

    @Test("a client that has not subscribed is sent nothing, whatever match rules it sets")
    func unsubscribed() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let stranger = try daemon.client()
        var heard = 0
        let match = try stranger.bus.match(
            "type='signal',sender='\(BusNames.service)'", failed: { Issue.record("\($0)") },
            handler: { _ in heard += 1 })
        // Reading a single property is not a subscription.
        _ = try stranger.property(BusNames.root, BusNames.manager, "FocusedApplication")
        _ = try stranger.list()
        _ = try live(client)
        try client.settle()
        #expect(!client.received.isEmpty)
        try stranger.settle()
        #expect(stranger.received == [])
        #expect(heard == 0)
        match.cancel()
    }

    @Test("the daemon ignores a forged signal about a client leaving the bus")
    func forgedDeparture() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let stranger = try daemon.client()
        try stranger.tell(of: client.bus.uniqueName, from: client.bus.uniqueName, to: "")
        _ = try live(client)
        try client.settle()
        #expect(client.received.contains { $0.member == ManagerSignal.applicationAdded.rawValue })
    }

    @Test("what is opened, sent and handed over is for the delegate; subscribers are not told what it is")
    func content() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        var told: [String: [String]] = [:]
        let filter = try client.bus.addFilter { message in
            guard message.isSignal, message.interface == BusNames.application else { return false }
            do {
                var words = message.member == "OpenURLs" ? try message.readStrings() : []
                while try message.peek()?.type == "s" { words.append(try message.readString()) }
                if try message.peek()?.type == "a" { words += try message.readDictionary().map(\.key) }
                told[message.member ?? ""] = words
                try message.rewind()
            } catch {
                Issue.record("\(error)")
            }
            return false
        }
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Reader", "launch-options=large:7")
        try app.application(path, "FinishLaunching")
        let sender = try App(daemon.bus)
        _ = try sender.register("org.example.Sender")
        for words in ["Open as:secret:1", "SendMessage s:secret", "ContinueActivity s:secret"] {
            try sender.application(path, words + " {secret=s:secret}")
        }
        try app.settle()
        for member in ["WillFinishLaunching", "OpenURLs", "MessageReceived", "ContinueUserActivity"] {
            let options = app.lines.first { $0.hasPrefix("options \(member) ") } ?? ""
            #expect(options.contains("="), "\(member)")
        }
        try client.settle()
        filter.cancel()
        #expect(told["WillFinishLaunching"] == [])
        #expect(told["OpenURLs"] == [])
        #expect(told["MessageReceived"] == ["org.example.Sender", ""])
        #expect(told["ContinueUserActivity"] == [""])
        // Nor do properties say it, whichever way they are read.
        let options = try client.property(path, "LaunchOptions")
        #expect(options.texts?.contains("x") == false, "\(options)")
        #expect(try app.launchOptions(path, contain: " x ay 00000000000000"))
    }

    @Test("a delegate is sent its own application's signals, and no other application's")
    func delegateAlone() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let other = try live(client)
        try app.settle()
        #expect(app.story(of: other.path) == [])
        #expect(!app.lines.contains { $0.contains(BusNames.manager) || $0.contains("PropertiesChanged") })
        #expect(app.story(of: path).last == "not-running→inactive")
    }

    @Test(
        "a delegate that has also subscribed gets each signal once, and never the edges of its suspension"
    )
    func delegateSubscribes() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        try app.manager("Subscribe")
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        try client.setFocus(app.pid)
        try app.settle()
        #expect(
            app.story(of: path) == [
                "WillFinishLaunching", "DidFinishLaunching", "WillEnterForeground", "not-running→inactive",
                "inactive→active", "DidBecomeActive",
            ])
        let other = try live(client)
        try app.settle()
        #expect(app.story(of: other.path).contains("background→suspended"))
    }

    // MARK: Replies and signals

    /// Makes a call and returns what comes in, in order: signals by their names, the reply as `reply`.
    private func order(
        _ client: Client, _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> [String] {
        var order: [String] = []
        let filter = try client.bus.addFilter { message in
            if message.isSignal, message.interface != "org.freedesktop.DBus" {
                order.append(message.member ?? "")
            }
            return false
        }
        let call = try client.bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(call)
        var isAnswered = false
        let pending = try client.bus.callAsync(call, timeout: .max) { reply in
            order.append(reply.error?.name ?? "reply")
            isAnswered = true
        }
        try client.wait("the reply to \(member)") { isAnswered }
        try client.settle()
        pending.cancel()
        filter.cancel()
        return order
    }

    @Test("Register is answered before any signal about the new application")
    func registerFirst() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let order = try order(client, BusNames.root, BusNames.manager, "Register") { message in
            try message.append("org.example.Editor")
            try message.append(UInt32(child.pid))
            try message.appendDictionary([])
        }
        #expect(order.first == "reply")
        #expect(order.contains("ApplicationAdded"))
    }
}
