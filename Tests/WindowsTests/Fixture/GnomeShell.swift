import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Systemd
import TestSupport
import Testing

@testable import appstate_session

/// GNOME Shell on Wayland, without a screen, with the extension as `make install-gnome` installs it and a private bus.
/// Tests manipulate windows by typing on its keyboard. It ends when it is released.
final class GnomeShell {
    /// Its session bus, which also serves as its system bus.
    let bus: PrivateBus
    private let directory: String
    private let process: Child
    private let connection: Bus
    private var keyboard = ""

    static let isAvailable =
        ["gnome-shell", "Xwayland", "make"].allSatisfy { Programs.inPath($0) != nil }
        && PrivateBus.isAvailable && Programs.built("WaylandActor") != nil
    static let whatIsMissing: Comment = "needs gnome-shell, Xwayland and dbus-daemon: scripts/setup gnome"

    private static let name = "org.gnome.Shell"
    private static let extensionID = "appstate@appstate1.org"
    private static let remote = "org.gnome.Mutter.RemoteDesktop"

    /// Key codes of evdev (linux/input-event-codes.h).
    enum Key: UInt32 {
        case escape = 1
        case tab = 15
        case d = 32
        case h = 35
        case alt = 56
        case f4 = 62
        case pageUp = 104
        case pageDown = 109
        case windows = 125
    }

    /// Starts it and waits until windows can be opened and focused.
    ///
    /// - Parameter isEnabled: whether the extension is enabled.
    init(isEnabled: Bool = true) throws {
        directory = try TestDesktop.directory()
        bus = try PrivateBus(
            policy: """
                <policy context="default"><allow own="*"/><allow send_destination="*"/>\
                <allow send_type="method_call"/></policy>
                """)
        try Self.install(in: directory)
        try Self.configure(in: directory, isEnabled: isEnabled)
        process = try Child(
            "gnome-shell",
            ["--headless", "--wayland", "--virtual-monitor", "1280x800", "--wayland-display", "wayland-g"],
            environment: Self.directories(in: directory).merging(
                [
                    "GSETTINGS_BACKEND": "keyfile", "LIBGL_ALWAYS_SOFTWARE": "1", "NO_AT_BRIDGE": "1",
                    "DBUS_SESSION_BUS_ADDRESS": bus.address, "DBUS_SYSTEM_BUS_ADDRESS": bus.address,
                    "DISPLAY": nil, "WAYLAND_DISPLAY": nil,
                ]) { $1 }, leadsGroup: true)
        try process.waitForLine(containing: "GNOME Shell started at")
        connection = try Bus.open(address: bus.address)
        try leaveOverview()
        keyboard = try startKeyboard()
    }

    deinit {
        try? process.end(SIGKILL)
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// It starts in its overview, where no window gets the focus.
    private func leaveOverview() throws {
        let path = "/org/gnome/Shell"
        func isThere() throws -> Bool {
            let reply = try call(path, BusNames.properties, "Get") { message in
                try message.append(Self.name)
                try message.append("OverviewActive")
            }
            return try reply.readVariant() != .bool(false)
        }
        let changes = try connection.match(
            "type='signal',path='\(path)',interface='\(BusNames.properties)',member='PropertiesChanged'",
            failed: { Issue.record("\($0)") }, handler: { _ in })
        defer { changes.cancel() }
        try call(path, BusNames.properties, "Set") { message in
            try message.append(Self.name)
            try message.append("OverviewActive")
            try message.append(Variant.bool(false))
        }
        let deadline = ContinuousClock.now + .seconds(300)
        while try isThere() {
            guard ContinuousClock.now < deadline else { throw TestFailure("the overview does not close") }
            // Messages that arrived while a reply was awaited have been read already.
            while try connection.process() {}
            var ready = pollfd(fd: connection.descriptor, events: Int16(POLLIN), revents: 0)
            poll(&ready, 1, 1_000)
        }
    }

    private static func directories(in directory: String) -> [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "HOME": directory, "XDG_DATA_HOME": directory + "/data",
            "XDG_CONFIG_HOME": directory + "/config", "XDG_CACHE_HOME": directory + "/cache",
        ]
    }

    private static func install(in directory: String) throws {
        let make = try Child(
            "make", ["-s", "-C", Programs.root, "install-gnome", "DESTDIR=", "datadir=\(directory)/data"])
        guard try make.waitForExit() == .exited(0) else { throw TestFailure("make: \(make.errors)") }
    }

    private static func configure(in directory: String, isEnabled: Bool) throws {
        let settings = directory + "/config/glib-2.0/settings"
        try FileManager.default.createDirectory(atPath: settings, withIntermediateDirectories: true)
        try """
        [org/gnome/shell]
        enabled-extensions=[\(isEnabled ? "'\(extensionID)'" : "")]
        welcome-dialog-last-shown-version='999'

        [org/gnome/desktop/wm/keybindings]
        show-desktop=['<Super>d']

        """.write(toFile: settings + "/keyfile", atomically: true, encoding: .utf8)
    }

    // MARK: Its clients

    /// The environment of its clients, and of an agent that watches it.
    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "WAYLAND_DISPLAY": "wayland-g", "DISPLAY": nil, "SWAYSOCK": nil,
            "I3SOCK": nil, "DBUS_SESSION_BUS_ADDRESS": bus.address,
        ]
    }

    /// A Wayland application, as WaylandActor/Main.swift describes it.
    func app() throws -> WindowApp {
        try WindowApp(environment: environment, program: Programs.built("WaylandActor"))
    }

    /// An application on its X server.
    func x11App() throws -> WindowApp { try WindowApp(environment: x11Environment) }

    /// With the X server too, as in its own sessions.
    var x11Environment: [String: String?] {
        get throws {
            let line = try process.waitForLine(containing: "Using public X11 display ")
            let display = line.components(separatedBy: "public X11 display ")[1].prefix { $0 != "," }
            let files = try FileManager.default.contentsOfDirectory(atPath: directory)
            guard let authority = files.first(where: { $0.hasPrefix(".mutter-Xwaylandauth.") }) else {
                throw TestFailure("Xwayland accepts no client")
            }
            return environment.merging(
                ["DISPLAY": String(display), "XAUTHORITY": "\(directory)/\(authority)"]
            ) { $1 }
        }
    }

    /// An observer of its windows.
    func watch() throws -> Watch {
        let loop = try EventLoop()
        let session = appstate_session.SessionBus(
            address: bus.address, loop: loop, journal: Journal(identifier: "test"))
        return Watch(try GnomeObserver(session: session), loop: loop)
    }

    // MARK: What is done to it

    /// Presses these keys together and releases them.
    func press(_ keys: Key...) throws {
        for (key, isDown) in keys.map({ ($0, true) }) + keys.reversed().map({ ($0, false) }) {
            try call(keyboard, Self.remote + ".Session", "NotifyKeyboardKeycode", at: Self.remote) {
                message in
                try message.append(key.rawValue)
                try message.append(isDown)
            }
        }
    }

    private func startKeyboard() throws -> String {
        let session = try call(
            "/org/gnome/Mutter/RemoteDesktop", Self.remote, "CreateSession", at: Self.remote
        ).readObjectPath()
        try call(session, Self.remote + ".Session", "Start", at: Self.remote)
        return session
    }

    /// As `gnome-extensions enable` and `disable` do.
    func enableExtension(_ isEnabled: Bool) throws {
        let member = isEnabled ? "EnableExtension" : "DisableExtension"
        let reply = try call("/org/gnome/Shell", "org.gnome.Shell.Extensions", member) {
            try $0.append(Self.extensionID)
        }
        guard try reply.readBool() else { throw TestFailure("GNOME Shell does not know the extension") }
    }

    @discardableResult
    private func call(
        _ path: String, _ interface: String, _ member: String, at name: String = GnomeShell.name,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws -> Message {
        let message = try connection.newCall(
            destination: name, path: path, interface: interface, member: member)
        try body(message)
        return try connection.call(message, timeout: 300_000_000)
    }

    /// Ends it.
    func end(_ signal: Int32 = SIGTERM) throws { try process.end(signal, patience: 60_000) }
}
