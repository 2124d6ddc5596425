import AppStateBus
import CXCB
import Foundation
import Glibc
import TestSupport
import Testing

@testable import Windows

/// How the agent notifies the desktop of a start, as a client of the desktop sees it, and the tokens that the desktop
/// issues.
@Suite("Startup notification", .serialized, .enabled(if: Station.isAvailable, Station.whatIsMissing))
struct StartupNoticeTests {
    /// Collects the messages at the root window, like a panel.
    private final class Panel {
        private let connection: XConnection
        private let types: [xcb_atom_t]
        private var parts: [xcb_window_t: [UInt8]] = [:]
        private(set) var messages: [String] = []

        init(_ display: Display) throws {
            connection = try XConnection(display: display.name)
            types = connection.atoms(["_NET_STARTUP_INFO_BEGIN", "_NET_STARTUP_INFO"])
            connection.select(.propertyChange, of: connection.root)
            _ = connection.focus()
        }

        /// Reads what has arrived.
        func look() {
            while let event = xcb_poll_for_event(connection.pointer) {
                defer { free(event) }
                guard Int32(cxcb_event_type(event)) == XCB_CLIENT_MESSAGE else { continue }
                let message = UnsafeRawPointer(event).loadUnaligned(as: xcb_client_message_event_t.self)
                guard types.contains(message.type), message.format == 8 else { continue }
                if message.type == types[0] { parts[message.window] = [] }
                parts[message.window, default: []] += withUnsafeBytes(of: message.data) { Array($0) }
                guard let text = parts[message.window], let end = text.firstIndex(of: 0) else { continue }
                messages.append(String(decoding: text[..<end], as: UTF8.self))
                parts[message.window] = nil
            }
        }
    }

    private static func display() throws -> Display { try Display(try #require(WindowManager.present.first)) }

    @Test(
        "an X11 desktop is notified of a start and of its first window",
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func window() throws {
        let display = try Self.display()
        let scene = try LaunchScene(on: display.environment)
        let panel = try Panel(display)
        let actor = try #require(Programs.built("WindowActor"))
        let (program, record) = try scene.program(
            "editor", then: "echo 1 open Alpha | { cat; sleep 1000; } | '\(actor)'")
        try scene.entry(
            "org.example.Editor", "Exec=\(program)", "StartupNotify=true", "Icon=pencil",
            "StartupWMClass=Alpha \"A\"")
        let launch = try scene.start("org.example.Editor")
        try scene.wait("the message") {
            panel.look()
            return panel.messages.count == 1
        }
        let first = try #require(panel.messages.first)
        let id = try #require(first.split(separator: "\"").dropFirst().first.map(String.init))
        #expect(
            first == """
                new: ID="\(id)" NAME="org.example.Editor" SCREEN=0 APPLICATION_ID="org.example.Editor" \
                BIN="editor" ICON="pencil" WMCLASS="Alpha \\"A\\""
                """)
        #expect(StartupID.time(of: id) ?? 0 > 0)
        try scene.proceed(launch)
        #expect(try scene.record(record)[2...3] == ["token ", "startup \(id)"])
        try scene.wait("its end") {
            panel.look()
            return panel.messages.count == 2
        }
        #expect(panel.messages.last == "remove: ID=\"\(id)\"")
        let watch = try display.watch()
        try watch.wait("the window") { $0.contains { $0.appID == "Alpha" } }
        #expect(try watch.window("Alpha").process != nil)
        launch.process.kill(SIGKILL, wholeGroup: true)
    }

    @Test(
        "the notification is removed when a start is cancelled or ends without a window",
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func end() throws {
        let display = try Self.display()
        let scene = try LaunchScene(on: display.environment)
        let panel = try Panel(display)
        try scene.entry("org.example.True", "Exec=true", "StartupNotify=true")
        for isCancelled in [true, false] {
            let count = panel.messages.count
            let launch = try scene.start("org.example.True")
            if isCancelled { try scene.cancel(launch) } else { try scene.proceed(launch) }
            try scene.wait("both messages") {
                panel.look()
                return panel.messages.count == count + 2
            }
            let (begin, end) = (panel.messages[count], panel.messages[count + 1])
            #expect(begin.hasPrefix("new: ID=") && end.hasPrefix("remove: ID="))
            #expect(begin.split(separator: "\"")[1] == end.split(separator: "\"")[1])
        }
    }

    @Test(
        "a Wayland compositor issues an activation token",
        .enabled(if: Tiler.Kind.sway.isPresent, "needs sway, as root with programs that nobody can run"))
    func token() throws {
        let tiler = try Tiler(.sway)
        let scene = try LaunchScene(on: tiler.environment)
        let (program, record) = try scene.program("editor")
        try scene.entry("org.example.Editor", "Exec=\(program)")
        // The agent goes on without a token if the compositor does not issue one soon.
        var words: [String] = []
        for _ in 0..<100 where words.isEmpty || words[2] == "token " {
            unlink(record)
            try scene.proceed(try scene.start("org.example.Editor"))
            words = try scene.record(record)
        }
        let token = try #require(words[2].split(separator: " ").dropFirst().first)
        #expect(token.count >= 8)
        #expect(words[3] == "startup \(token)")
    }
}
