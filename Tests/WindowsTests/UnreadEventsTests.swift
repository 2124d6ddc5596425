import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing

@testable import Windows
@testable import appstate_session

/// What a display server has sent to a client that does not read.
@Suite("Events that a stopped client has not read")
struct UnreadEventsTests {
    private func words(_ words: UInt32...) -> [UInt8] {
        words.flatMap { word in withUnsafeBytes(of: word) { Array($0) } }
    }

    private static let x11 = UnreadEvents.x11(display: ":0")
    private static let atoms = CloseAtoms(protocols: 300, deleteWindow: 301)

    /// A 32-byte event of X11. If it is a client's message, it is by default WM_DELETE_WINDOW.
    private func event(
        _ code: UInt8, window: UInt32 = 0, type: UInt32 = 300, first: UInt32 = 301
    ) -> [UInt8] {
        [code, 32, 0, 0] + words(window, type, first) + [UInt8](repeating: 0, count: 16)
    }

    private func haveRequest(_ kind: UnreadEvents, _ bytes: [UInt8]) -> Bool {
        request(kind, bytes) != nil
    }

    private func request(_ kind: UnreadEvents, _ bytes: [UInt8]) -> UnreadEvents.Request? {
        bytes.withUnsafeBytes { kind.request(in: $0) { _ in Self.atoms } }
    }

    /// A message of D-Bus with one field and a body.
    private func message(
        _ type: UInt8, isBig: Bool, interface: String = "org.example.Agent", body: Int = 3
    ) -> [UInt8] {
        func number(_ value: Int) -> [UInt8] {
            let value = UInt32(value)
            return withUnsafeBytes(of: isBig ? value.bigEndian : value.littleEndian) { Array($0) }
        }
        var field: [UInt8] = [2, 1, 0x73, 0]
        field += number(interface.utf8.count)
        field += Array(interface.utf8)
        field.append(0)
        var bytes: [UInt8] = [isBig ? 0x42 : 0x6c, type, 0, 1]
        for value in [body, 7, field.count] { bytes += number(value) }
        bytes += field
        bytes += [UInt8](repeating: 0, count: (8 - bytes.count % 8) % 8)
        return bytes + [UInt8](repeating: 1, count: body)
    }

    @Test("no changed byte and no truncation causes a read beyond the end")
    func damaged() {
        let events =
            words(7, 12 << 16, 4711) + words(9, 8 << 16 | 1) + event(28) + event(33 | 0x80, window: .max)
        let messages = message(4, isBig: false) + message(1, isBig: true)
        for (whole, index) in [events, messages].flatMap({ whole in whole.indices.map { (whole, $0) } }) {
            for byte: UInt8 in [0, 1, 8, 33, 35, 0x7f, 0xff] {
                var bytes = whole
                bytes[index] = byte
                for count in 0...bytes.count {
                    // A separate allocation, so that the sanitizer detects a read beyond its end.
                    let part = Array(bytes[..<count])
                    for kind in [UnreadEvents.wayland, Self.x11, .xsmp, .bus] { _ = haveRequest(kind, part) }
                }
            }
        }
    }
}

/// The same with real servers.
@Suite(
    "Requests to stopped clients", .serialized,
    .enabled(if: ListeningApp.mayBeCopied, ListeningApp.whatIsMissing))
struct ClientRequestTests {
    @Test(
        "Wayland: a request to close is found, a change of the window's size is not",
        .enabled(if: Compositor.isAvailable, Compositor.whatIsMissing), arguments: Compositor.Kind.present)
    func wayland(_ kind: Compositor.Kind) throws {
        let compositor = try Compositor(kind)
        let watch = try compositor.watch()
        let (app, taskbar) = (try compositor.app("Alpha"), try compositor.app("Beta"))
        _ = try app.open("Alpha", "first")
        try watch.wait(for: ["Alpha focused"])
        let request = try Request(app.process)
        // A second window makes the first one lose the focus or change its size.
        _ = try taskbar.open("Beta", "second")
        try request.wait("another event") { request.copy.isReadable }
        #expect(!request.isThere)
        try taskbar.ask("bar close first")
        try request.wait("the request") { request.isThere }
        try request.expectDemand(.message)
        try watch.wait(for: ["Beta focused"])
    }

    @Test(
        "X11: a request to close is found; a change of the window and an offer of the focus are not",
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func x11() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let watch = try display.watch()
        let (app, other) = (try display.app(), try display.app())
        let window = try app.open("Alpha")
        try watch.wait("the window") { $0.contains { $0.process == app.pid } }
        // From here on it is sent changes of the root window.
        try app.ask("manager")
        let request = try Request(app.process)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try request.wait("another event") { request.copy.isReadable }
        #expect(!request.isThere)
        let before = request.copy.waiting
        try other.ask("protocol \(window) WM_TAKE_FOCUS")
        try request.wait("the offer of the focus") { request.copy.waiting > before }
        #expect(!request.isThere)
        try display.run("wmctrl", ["-i", "-c", "\(window)"])
        try request.wait("the request") { request.isThere }
        try request.expectDemand(.close)
        try watch.wait("the end of the window") { $0.isEmpty }
    }

    @Test(
        "a bus: a call is found, a signal and a ping are not",
        .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"),
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"))
    func bus() throws {
        let bus = try SessionBus()
        let client = try Child("gdbus", ["monitor", "--address", bus.address, "--dest", Bus.driver])
        try client.waitForLine(containing: "Monitoring")
        let caller = try Bus.open(address: bus.address)
        let name = try #require(
            try caller.call(caller.newDriverCall("ListNames")).readStrings().first {
                $0.hasPrefix(":") && (try? caller.credentials(of: $0).pid) == client.pid
            })
        // It subscribes a moment after it has said so.
        let isSubscribed = try eventually {
            try caller.requestName("org.example.First")
            try caller.releaseName("org.example.First")
            _ = client.advance()
            return client.output.contains("org.example.First")
        }
        try #require(isSubscribed)
        let request = try Request(client)
        func call(_ interface: String, _ member: String) throws {
            let message = try caller.newCall(
                destination: name, path: "/", interface: interface, member: member)
            try caller.send(message)
            try caller.flush()
        }
        // The bus announces the name to the client.
        try caller.requestName("org.example.Other")
        try request.wait("a signal") { request.copy.waiting > 0 }
        let before = request.copy.waiting
        try call("org.freedesktop.DBus.Peer", "Ping")
        try request.wait("the ping") { request.copy.waiting > before }
        #expect(!request.isThere)
        try call("org.example.Agent", "RequestPinCode")
        try request.wait("the call") { request.isThere }
        try request.expectDemand(.call)
    }
}

/// A stopped client and the data that waits for it.
private final class Request {
    let client: Child
    let copy: SocketCopy
    private let events: UnreadEvents

    init(_ client: Child) throws {
        self.client = client
        client.kill(SIGSTOP)
        let process = try Proc().identity(of: client.pid)
        guard try eventually({ try Proc().state(of: process) == .stopped }) else {
            throw TestFailure("the client did not stop")
        }
        var copies = try SocketCopy.of([client.pid], atMost: 16) { UnreadEvents(service: $0) }
        // Connections come first.
        copy = copies.removeFirst()
        for other in copies {
            #expect(other.role == .listening)
            other.close()
        }
        guard case .connected(to: let events) = copy.role else { throw TestFailure("\(copy.role)") }
        self.events = events
    }

    deinit { copy.close() }

    var isThere: Bool { copy.peek(atMost: 1 << 18) { bytes, _ in events.request(in: bytes) != nil } }

    func wait(_ what: String, _ isSo: () throws -> Bool) throws {
        guard try eventually(isSo) else { throw TestFailure("\(what) did not happen") }
    }

    func wait(_ what: String, on loop: EventLoop, _ isSo: () -> Bool) throws {
        try loop.run(what, until: isSo)
    }

    /// The session agent reports the request, once per suspension. Once the client runs, nothing is left to report.
    func expectDemand(_ reason: DemandReason) throws {
        let loop = try EventLoop()
        let seen = Seen()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            seen.demands.append("\($0) \($1)")
        }
        watch.follow(.suspended([client.pid]))
        try wait("the report of the request", on: loop) { !seen.demands.isEmpty }
        #expect(seen.demands == ["\(client.pid) \(reason)"])
        client.kill(SIGCONT)
        try wait("the client to read it") { !isThere }
    }

    private final class Seen { var demands: [String] = [] }
}
