import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// What a display server has sent to a client that does not read.
@Suite("Events that a stopped client has not read")
struct UnreadEventsTests {
    private func words(_ words: UInt32...) -> [UInt8] {
        words.flatMap { word in withUnsafeBytes(of: word) { Array($0) } }
    }

    /// A 32-byte event of X11. If it is a client's message, `first` is its first value, by default an atom.
    private func event(_ code: UInt8, window: UInt32 = 0, first: UInt32 = 301) -> [UInt8] {
        [code, 32, 0, 0] + words(window, 300, first) + [UInt8](repeating: 0, count: 16)
    }

    private func haveRequest(_ kind: UnreadEvents, _ bytes: [UInt8]) -> Bool {
        request(kind, bytes) != nil
    }

    private func request(_ kind: UnreadEvents, _ bytes: [UInt8]) -> UnreadEvents.Request? {
        bytes.withUnsafeBytes { kind.request(in: $0) }
    }

    @Test("the kind of a server follows from the name of its socket")
    func names() {
        #expect(UnreadEvents(service: "/run/user/1000/wayland-0") == .wayland)
        #expect(UnreadEvents(service: "/run/user/1000/.flatpak/1/wayland-12") == .wayland)
        #expect(UnreadEvents(service: "@/tmp/.X11-unix/X0") == .x11)
        #expect(UnreadEvents(service: "/tmp/.X11-unix/X77") == .x11)
        #expect(UnreadEvents(service: "@/tmp/.ICE-unix/4711") == .xsmp)
        for name in [
            "/run/dbus/system_bus_socket", "/run/user/1000/at-spi/bus_0",
            "/run/user/1000/.dbus-proxy/system-bus-proxy-A1B2C3",
            "/run/user/1000/.dbus-proxy/a11y-bus-proxy-A1B2C3",
        ] {
            #expect(UnreadEvents(service: name) == .bus, "\(name)")
        }
        for name in [
            "/run/user/1000/.dbus-proxy/session-bus-proxy-A1B2C3", "", "/", "@", "X0", "/run/user/1000/bus",
            "/tmp/X0", "/tmp/.X11-unix", "/run/not-wayland-0",
        ] {
            #expect(UnreadEvents(service: name) == nil, "\(name)")
        }
    }

    @Test(
        "X11: only WM_DELETE_WINDOW is known to ask for the end of a window, wherever it is among other requests"
    )
    func x11Close() {
        let known = UnreadEvents.CloseMessage(protocols: 300, deleteWindow: 301, ping: 302)
        func asked(_ bytes: [UInt8]) -> UnreadEvents.Request? {
            bytes.withUnsafeBytes { UnreadEvents.x11.request(in: $0, close: known) }
        }
        func message(_ first: UInt32, type: UInt32 = 300) -> [UInt8] {
            [33 | 0x80, 32, 0, 0] + words(0x20_0003, type, first, 7_654_321, 0, 0, 0)
        }
        let input = event(2, window: 0x20_0003)
        #expect(asked(message(301)) == .close && asked(input + message(302) + message(301)) == .close)
        // _NET_WM_PING, WM_TAKE_FOCUS, and a message of another type.
        #expect(asked(message(302)) == .message && asked(message(303)) == nil)
        #expect(asked(message(301, type: 400)) == .message)
        #expect(asked(input + message(303)) == .input)
    }

    @Test("X11: what the user presses, and what others paste, are requests of their own kinds")
    func x11Input() {
        let motion = event(6, window: 0x20_0003)
        for code: UInt8 in [2, 4] {
            #expect(request(.x11, motion + event(code, window: 0x20_0003)) == .input, "\(code)")
            #expect(request(.x11, event(code | 0x80, window: 0x20_0003)) == .input, "\(code)")
        }
        // KeyRelease, ButtonRelease, MotionNotify and others.
        for code: UInt8 in [3, 5, 6, 7, 8, 9, 10, 12, 22, 29, 31] {
            #expect(request(.x11, event(code, window: 0x20_0003)) == nil, "\(code)")
        }
        #expect(request(.x11, motion + event(30)) == .paste)
        #expect(request(.x11, event(33 | 0x80, window: 0x20_0003)) == .message)
        // A device's event of the X Input Extension, and one of the Present Extension.
        func generic(_ type: UInt32, _ units: UInt32) -> [UInt8] {
            [35, 131, 0, 0] + words(units, type) + [UInt8](repeating: 0, count: 20 + 4 * Int(units))
        }
        for type: UInt32 in [2, 4, 18] {
            #expect(request(.x11, motion + generic(type, 12)) == .input, "\(type)")
            #expect(request(.x11, generic(type, 2)) == nil, "\(type)")
        }
        for type: UInt32 in [3, 5, 6, 7, 13, 15, 17] {
            #expect(request(.x11, generic(type, 12)) == nil, "\(type)")
        }
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
                    for kind in [UnreadEvents.wayland, .x11, .xsmp, .bus] { _ = haveRequest(kind, part) }
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
        try request.expectDemand(.close)
        try watch.wait(for: ["Beta focused"])
    }

    @Test(
        "X11: a request to close is found, a change of the window is not",
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func x11() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let watch = try display.watch()
        let app = try display.app()
        let window = try app.open("Alpha")
        try watch.wait("the window") { $0.contains { $0.process == app.pid } }
        // From here on it is sent changes of the root window.
        try app.ask("manager")
        let request = try Request(app.process)
        try display.run("xdotool", ["windowminimize", "\(window)"])
        try request.wait("another event") { request.copy.isReadable }
        #expect(!request.isThere)
        try display.run("wmctrl", ["-i", "-c", "\(window)"])
        try request.wait("the request") { request.isThere }
        try request.expectDemand(.close)
        try watch.wait("the end of the window") { $0.isEmpty }
    }

    @Test(
        "XSMP: a request to save the state is found",
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(
            if: Programs.inPath("xfce4-session") != nil && Programs.inPath("iceauth") != nil,
            "needs xfce4-session and iceauth: scripts/setup test"))
    func xsmp() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let session = try XfceSession()
        let manager = try session.start(on: display)
        // It has accepted a first call: clients can connect.
        guard try eventually({ try session.ask("Checkpoint") { try $0.append("") } }) else {
            throw TestFailure("xfce4-session does not start")
        }
        let client = try Child(
            ListeningApp.python, ["-c", Self.sessionClient, "\(manager)"],
            environment: session.environment(on: display))
        // A session manager asks each new client to save its state.
        try client.waitForLine(containing: "saved")
        let request = try Request(client)
        guard
            try eventually({ try session.ask("Checkpoint") { try $0.append("") } || request.isThere })
        else { throw TestFailure("the client is not asked") }
        try request.wait("the request") { request.isThere }
        try request.expectDemand(.sessionEnd)
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

    @Test("a session bus: calls are left to the monitor that sees them")
    func sessionBus() throws {
        #expect(
            DisplayServer.socket(ofBus: "tcp:host=a;unix:guid=1,path=/run/bus;unix:path=/b") == "/run/bus")
        #expect(DisplayServer.socket(ofBus: "unix:abstract=/tmp/dbus-1,guid=2") == "@/tmp/dbus-1")
        #expect(DisplayServer.socket(ofBus: "unixexec:path=x") == nil)
    }

    /// The beginning of a client in Python that is connected to `end`, the server's side, at the path in its argument.
    private static let connected = """
        import os, signal, socket, struct, sys
        server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        server.bind(sys.argv[1])
        server.listen()
        client.connect(sys.argv[1])
        end = server.accept()[0]

        """

    @Test("a request behind a passed descriptor, which the kernel does not show, is found later")
    func behindDescriptor() throws {
        let directory = try TestDesktop.directory()
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let client = try Child(
            ListeningApp.python,
            [
                "-c",
                Self.connected
                    + """
                    keymap, close = struct.pack("=IIII", 5, 16 << 16, 1, 2), struct.pack("=II", 9, 8 << 16 | 1)
                    socket.send_fds(end, [keymap], [0])
                    end.sendall(close)
                    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
                    print("sent", flush=True)
                    signal.sigwait({signal.SIGUSR1})
                    left = len(keymap) + len(close)
                    while left: left -= len(client.recv(left))
                    signal.pause()
                    """, directory + "/wayland-7",
            ])
        try client.waitForLine(containing: "sent")
        let request = try Request(client)
        #expect(!request.isThere)
        let isHidden = request.copy.peek(atMost: 1 << 18) { bytes, isCut in bytes.count == 16 && isCut }
        #expect(isHidden)
        try request.expectDemand(.close)
        client.kill(SIGUSR1)
        try request.wait("the client to read all") { !request.copy.isReadable }
    }

    /// A client of the session manager, with libSM.
    private static let sessionClient = """
        import ctypes, os, socket, sys
        # libICE looks the key up by this text, the machine's name included.
        os.environ["SESSION_MANAGER"] = f"local/{socket.gethostname()}:@/tmp/.ICE-unix/{sys.argv[1]}"
        ice, sm = ctypes.CDLL("libICE.so.6"), ctypes.CDLL("libSM.so.6")
        sm.SmcOpenConnection.restype = sm.SmcGetIceConnection.restype = ctypes.c_void_p
        Handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
        def save(connection, _):
            sm.SmcSaveYourselfDone(ctypes.c_void_p(connection), 1)
        def saved(connection, _):
            print("saved", flush=True)
        handlers = [Handler(save), Handler(lambda *_: None), Handler(saved), Handler(lambda *_: None)]
        table = (ctypes.c_void_p * 8)()
        for index, handler in enumerate(handlers):
            table[2 * index] = ctypes.cast(handler, ctypes.c_void_p)
        name, error = ctypes.c_char_p(), ctypes.create_string_buffer(256)
        connection = sm.SmcOpenConnection(None, None, 1, 0, 15, table, None, ctypes.byref(name), 256, error)
        if not connection: raise SystemExit(error.value.decode())
        stream = ctypes.c_void_p(sm.SmcGetIceConnection(ctypes.c_void_p(connection)))
        while True:
            ice.IceProcessMessages(stream, None, None)
        """
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
        var copies = try SocketCopy.of([client.pid], atMost: 16) { UnreadEvents(service: $0) != nil }
        // Connections come first.
        copy = copies.removeFirst()
        for other in copies {
            #expect(other.role == .listening)
            other.close()
        }
        guard case .connected(let service) = copy.role else { throw TestFailure("\(copy.role)") }
        events = try #require(UnreadEvents(service: service))
    }

    deinit { copy.close() }

    var isThere: Bool { copy.peek(atMost: 1 << 18) { bytes, _ in events.request(in: bytes) != nil } }

    func wait(_ what: String, _ isSo: () throws -> Bool) throws {
        guard try eventually(isSo) else { throw TestFailure("\(what) did not happen") }
    }

    func wait(_ what: String, on loop: EventLoop, _ isSo: () -> Bool) throws {
        let deadline = ContinuousClock.now + .seconds(300)
        while !isSo() {
            guard ContinuousClock.now < deadline else { throw TestFailure("\(what) did not happen") }
            try loop.runOnce(timeout: 10_000)
        }
    }

    /// The session agent reports the request, once per suspension. Once the client runs, nothing is left to report.
    func expectDemand(_ reason: DemandReason) throws {
        let loop = try EventLoop()
        let seen = Seen()
        let watch = try ConnectionWatch(loop: loop, journal: Journal(identifier: "test")) {
            seen.demands.append("\($0) \($1)")
        }
        watch.watch([client.pid], among: [client.pid])
        try wait("the report of the request", on: loop) { !seen.demands.isEmpty }
        #expect(seen.demands == ["\(client.pid) \(reason)"])
        client.kill(SIGCONT)
        try wait("the client to read it") { !isThere }
    }

    private final class Seen { var demands: [String] = [] }
}
