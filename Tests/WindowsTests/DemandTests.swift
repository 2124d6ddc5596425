import AppStateBus
import AppStateContract
import Desktop
import Foundation
import Glibc
import Linux
import Systemd
import TestSupport
import Testing
import Windows

@testable import appstate_session

/// Who needs a suspended application: what the agent detects, and that it gets the application resumed.
@Suite("Demand, in the session", .serialized, .enabled(if: PrivateBus.isAvailable, "needs dbus-daemon"))
struct DemandTests {
    private static let journal = Journal(identifier: "test")

    /// Watches for calls to this process.
    private final class Calls {
        let loop: EventLoop
        let bus: SessionBus
        private(set) var seen: [[Int32]] = []
        private(set) var reasons: [DemandReason] = []
        private(set) var answers: [Bool] = []
        private var watch: CallWatch?

        /// The last answer to whether calls are seen.
        var isSeen: Bool? { answers.last }

        /// - Parameter path: by which the bus is reached, if it is not there yet.
        init(_ bus: SessionBus, at path: String? = nil) throws {
            self.bus = bus
            loop = try EventLoop()
            let session = appstate_session.SessionBus(
                address: path.map { "unix:path=\($0)" } ?? bus.address, loop: loop,
                journal: DemandTests.journal)
            watch = try CallWatch(
                session: session,
                monitor: SessionMonitor(session: session, loop: loop, journal: DemandTests.journal),
                loop: loop,
                journal: DemandTests.journal,
                entries: DesktopEntries(directories: [])
            ) { [unowned self] in
                answers.append($0)
            } needed: { [unowned self] in
                seen.append([$0, $2])
                reasons.append($1)
            }
            if path == nil { try wait("whether calls are seen") { isSeen != nil } }
        }

        func follow(_ pids: Set<Int32>) { watch?.follow(.suspended(pids)) }

        func wait(_ what: String, _ isSo: () throws -> Bool) throws {
            try loop.run("\(what): \(seen)", until: isSo)
        }

        func twoConnections() throws -> (Bus, Bus) {
            (try Bus.open(address: bus.address), try Bus.open(address: bus.address))
        }

        /// A process that calls a name repeatedly until it is released.
        func caller(of name: String) throws -> Child {
            try Child(
                "sh",
                [
                    "-c",
                    "while :; do exec 3>&1; gdbus call --address \(bus.address) --dest \(name) "
                        + "--object-path / --method org.freedesktop.DBus.Peer.Ping; done",
                ])
        }
    }

    @Test(
        "a session manager's question to one client is seen, and no other signal",
        arguments: BusProgram.present)
    func sessionEnd(on program: BusProgram) throws {
        let calls = try Calls(SessionBus(program))
        let (client, manager) = try calls.twoConnections()
        // The bus has answered its Hello by then.
        let name = client.uniqueName
        calls.follow([getpid()])
        func tell(_ interface: String) throws {
            try manager.send(
                manager.newSignal(path: "/client", interface: interface, member: "QueryEndSession", to: name))
            try manager.flush()
        }
        // It is seen from the moment the monitor is connected.
        try calls.wait("the question") {
            try tell("org.example.Other")
            try tell("org.gnome.SessionManager.ClientPrivate")
            return !calls.seen.isEmpty
        }
        #expect(Set(calls.reasons) == [.sessionEnd])
    }

    @Test(
        "an action of the user that a signal announces is seen", arguments: BusProgram.present,
        [false, true])
    func actions(on program: BusProgram, toAll: Bool) throws {
        let calls = try Calls(SessionBus(program))
        let (application, desktop) = try calls.twoConnections()
        let name = application.uniqueName
        calls.follow([getpid()])
        func signal(_ member: String) throws {
            let interface = "org.freedesktop.Notifications"
            let path = "/org/freedesktop/Notifications"
            let message = try desktop.newSignal(
                path: path, interface: interface, member: member, to: toAll ? nil : name)
            try message.append(UInt32(7))
            try message.append("default")
            try desktop.send(message)
            try desktop.flush()
        }
        try calls.wait("the action") {
            try signal("NotificationClosed")
            try signal("ActionInvoked")
            return !calls.seen.isEmpty
        }
        #expect(Set(calls.seen) == [[getpid(), getpid()]])
        #expect(Set(calls.reasons) == [.action])
    }

    @Test("a new tray for icons is a demand for all that use the session bus")
    func announcements() throws {
        let calls = try Calls(SessionBus())
        let application = try Bus.open(address: calls.bus.address)
        calls.follow([getpid()])
        try calls.wait("the tray") {
            // The agent may not be listening yet.
            try Bus.open(address: calls.bus.address).requestName("org.kde.StatusNotifierWatcher")
            return !calls.seen.isEmpty
        }
        #expect(Set(calls.reasons) == [.announcement] && Set(calls.seen.map { $0[0] }) == [getpid()])
        withExtendedLifetime(application) {}
    }

    /// Watches for programs that are started again.
    private final class Starts {
        let loop: EventLoop
        private(set) var seen: [[Int32]] = []
        private var watch: StartWatch?

        init() throws {
            loop = try EventLoop()
            watch = try StartWatch(loop: loop) { [unowned self] in
                seen.append([$0, $1])
            }
        }

        func follow(_ pids: Set<Int32>) throws {
            watch?.follow(.suspended(pids))
            try loop.run("the first check") { watch?.isSettled == true }
        }

        func wait(for expected: [Int32]) throws {
            try loop.run("\(expected): \(seen)") { seen.contains(expected) }
        }
    }

    /// Puts another file in the place of a program, as an upgrade does: it is made beside it and then renamed.
    private func replace(_ program: String) throws {
        try Programs.copy(#require(Programs.inPath("sleep")), to: program + ".new")
        try #require(rename(program + ".new", program) == 0)
    }

    @Test(
        "a start of the file that has taken the program's place is seen, no matter when it did",
        arguments: [false, true])
    func upgrade(before: Bool) throws {
        let bus = try SessionBus()
        let program = bus.directory + "/program"
        try replace(program)
        let starts = try Starts()
        let first = try Child(program, ["1000"])
        if before { try replace(program) }
        try starts.follow([first.pid])
        if !before { try replace(program) }
        let second = try Child(program, ["1000"])
        try starts.wait(for: [first.pid, second.pid])
        // Once more: the first process still runs a file that has no name any more.
        try replace(program)
        let third = try Child(program, ["1000"])
        try starts.wait(for: [first.pid, third.pid])
        try starts.follow([])
        let fourth = try Child(program, ["1000"])
        for _ in 0..<20 { try starts.loop.runOnce(timeout: 10_000) }
        #expect(!starts.seen.contains { $0[1] == fourth.pid })
    }

    @Test(
        "a second start of a script is seen, also after an upgrade; a start of its interpreter is not",
        .enabled(if: Programs.inPath("perl") != nil, "needs perl"))
    func script() throws {
        let bus = try SessionBus()
        let script = bus.directory + "/script"
        func write() throws {
            try "#!/usr/bin/perl\nsleep 1000;\n".write(toFile: script, atomically: true, encoding: .utf8)
            try #require(chmod(script, 0o755) == 0)
        }
        try write()
        try #require(symlink(bus.directory, bus.directory + "/link") == 0)
        let starts = try Starts()
        let first = try Child(script)
        try starts.follow([first.pid])
        let other = try Child("/usr/bin/perl", ["-e", "sleep 1000"])
        let second = try Child(bus.directory + "/link/script")
        try starts.wait(for: [first.pid, second.pid])
        try write()
        let third = try Child(script)
        try starts.wait(for: [first.pid, third.pid])
        #expect(starts.seen == [[first.pid, second.pid], [first.pid, third.pid]])
        withExtendedLifetime(other) {}
    }

    @Test("a second start of an AppImage is seen, although its program is mounted elsewhere each time")
    func appImage() throws {
        let bus = try SessionBus()
        let image = bus.directory + "/Program.AppImage"
        try replace(image)
        // As the image's own program does: it mounts the image, and executes a program on the mount.
        func mounted(_ number: Int) throws -> String {
            let directory = bus.directory + "/.mount_Progra\(number)"
            mkdir(directory, 0o755)
            try replace(directory + "/program")
            return directory + "/program"
        }
        let starts = try Starts()
        let first = try Child(try mounted(1), ["1000"], environment: ["APPIMAGE": image])
        // A process that has begun to execute a program has no environment for a moment.
        let isSeen = eventually { Proc().appImage(of: first.pid) == image }
        try #require(isSeen)
        try starts.follow([first.pid])
        let other = try Child(try mounted(2), ["1000"], environment: ["APPIMAGE": "/other"])
        let second = try Child(image, ["1000"])
        try starts.wait(for: [first.pid, second.pid])
        #expect(starts.seen == [[first.pid, second.pid]])
        withExtendedLifetime(other) {}
    }

    // MARK: The real agent and daemon

    /// An X11 application whose only window is minimized and which policy has suspended.
    private final class Minimized {
        let display: Display
        let station: Station
        let application: WindowApp
        let window: UInt32
        let path: String

        /// - Parameters:
        ///   - sessionBus: the agent's session bus.
        ///   - prepare: makes it do something before it is minimized that keeps it from being suspended.
        init(sessionBus: String? = nil, prepare: ((WindowApp, UInt32) throws -> Void)? = nil) throws {
            display = try Display(try #require(WindowManager.present.first))
            station = try Station(configuration: DemandTests.impatient)
            let environment = display.environment.merging(["DBUS_SESSION_BUS_ADDRESS": sessionBus]) { $1 }
            try station.startAgent(environment: environment)
            // A copy of the program: other tests start the original all the time.
            let program = station.bus.directory + "/WindowActor"
            try Programs.copy(#require(Programs.built("WindowActor")), to: program)
            application = try WindowApp(environment: display.environment, program: program)
            window = try application.open("Alpha")
            path = try station.register("org.example.Alpha", application.pid, suspension: "automatic")
            // Until its window is reported it counts as hidden.
            try station.wait("its window") {
                try station.explain(path, "windows") != .strings([]) && station.state(of: path) != "suspended"
            }
            try prepare?(application, window)
            try minimize(until: prepare == nil ? "suspended" : "background")
        }

        func minimize(until state: String = "suspended") throws {
            try display.run("xdotool", ["windowminimize", "\(window)"])
            try station.wait(for: path, toBe: state)
        }
    }

    @Test(
        "a request to close its window resumes a suspended application",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: Programs.inPath("wmctrl") != nil, "needs wmctrl"))
    func requests() throws {
        let scene = try Minimized()
        // The agent begins to listen a moment after the suspension.
        try scene.station.wait("the need") {
            try scene.display.run("wmctrl", ["-i", "-c", "\(scene.window)"])
            return try scene.station.lastDemand(of: scene.path) == "close"
        }
        // It is granted a second; on a loaded machine it may need more.
        try scene.station.wait("the end of the window") {
            try scene.display.run("wmctrl", ["-i", "-c", "\(scene.window)"])
            return try scene.station.explain(scene.path, "windows") == .strings([])
        }
    }

    @Test(
        "a request to close its window ends what a person has suspended",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: Programs.inPath("wmctrl") != nil, "needs wmctrl"), arguments: [false, true])
    func closesOnRequest(isDirect: Bool) throws {
        let scene = try Minimized()
        try scene.station.suspend(scene.path)
        try scene.station.wait(for: scene.path, toBe: "suspended")
        let manager = try scene.display.app()
        try scene.station.wait("the end of the window") {
            if isDirect {
                try manager.ask("protocol \(scene.window) WM_TAKE_FOCUS")
                try manager.ask("protocol \(scene.window) _NET_WM_PING")
                try manager.ask("protocol \(scene.window) WM_DELETE_WINDOW")
            } else {
                try scene.display.run("wmctrl", ["-i", "-c", "\(scene.window)"])
            }
            return try scene.station.explain(scene.path, "windows") == .strings([])
        }
    }

    @Test(
        "an application is resumed before Xfce's session manager asks it by XSMP to save its state",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(
            if: Programs.inPath("xfce4-session") != nil && Programs.inPath("xfce4-session-logout") != nil,
            "needs xfce4-session: scripts/setup test"))
    func xfce() throws {
        let session = try XfceSession()
        let scene = try Minimized(sessionBus: session.address)
        try session.start(on: scene.display)
        try scene.station.wait("the need") {
            // Logout without a prompt and without saving.
            try session.ask("Logout") { for _ in 0..<2 { try $0.append(false) } }
            return try scene.station.lastDemand(of: scene.path) == "session-end by xfce4-session"
        }
    }

    @Test(
        "an application whose window another client destroys is resumed and learns of it",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func destroyed() throws {
        // An X server that answers late counts as grabbed. Then the application runs, and is not needed.
        var why: String?
        for _ in 0..<20 {
            let scene = try Minimized()
            try scene.display.run("xdotool", ["windowclose", "\(scene.window)"])
            try scene.station.wait("the end of the window") {
                try scene.station.explain(scene.path, "windows") == .strings([])
            }
            why = try scene.station.lastDemand(of: scene.path)
            if why != "grab" { break }
        }
        #expect(why == "window closed")
    }

    @Test(
        "an application that was stopped while it held an X server grab is resumed, and clients are answered",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing))
    func grabbed() throws {
        let scene = try Minimized { try $0.ask("own \($1) CLIPBOARD") }
        // The owner of the clipboard is not suspended. The agent asks the X server for the owner, and during the grab
        // the server answers no other client.
        try scene.station.wait("the objection") {
            guard case .strings(let reasons)? = try scene.station.explain(scene.path, "objections") else {
                return false
            }
            return reasons.contains("reported clipboard")
        }
        try scene.application.ask("grab")
        try scene.application.ask("disown CLIPBOARD")
        try scene.station.wait("the need") { try scene.station.lastDemand(of: scene.path) == "grab" }
        scene.application.process.kill(SIGKILL)
        _ = try scene.display.app()
    }

    @Test(
        "a client that connects to a socket of a suspended application is answered",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: ListeningApp.mayBeCopied, ListeningApp.whatIsMissing))
    func connection() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let station = try Station(configuration: Self.impatient)
        try station.startAgent(environment: display.environment)
        let server = try ListeningApp(1)
        let path = try station.register("org.example.Server", server.process.pid, suspension: "automatic")
        // It may run meanwhile, because an X server that answers late counts as grabbed.
        try station.wait("the connection") {
            guard try station.state(of: path) == "suspended" else { return false }
            #expect(try server.connect(0).waitForExit() == .exited(0))
            return try station.lastDemand(of: path) == "connection"
        }
        try station.wait(for: path, toBe: "suspended")
    }

    @Test(
        "a call on a session bus that lets no client monitor calls resumes a suspended application",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"),
        .enabled(if: ListeningApp.mayBeCopied, ListeningApp.whatIsMissing))
    func callWithoutMonitor() throws {
        let display = try Display(try #require(WindowManager.present.first))
        let session = try SessionBus(policy: "<deny send_interface=\"org.freedesktop.DBus.Monitoring\"/>")
        let station = try Station(configuration: Self.impatient)
        try station.startAgent(
            environment: display.environment.merging(["DBUS_SESSION_BUS_ADDRESS": session.address]) { $1 })
        let application = try Child(
            "gdbus", ["monitor", "--address", session.address, "--dest", "org.freedesktop.DBus"])
        try application.waitForLine(containing: "Monitoring")
        let caller = try Bus.open(address: session.address)
        let name = try #require(
            try caller.call(caller.newDriverCall("ListNames")).readStrings().first {
                $0.hasPrefix(":") && (try? caller.credentials(of: $0).pid) == application.pid
            })
        let path = try station.register("org.example.Service", application.pid, suspension: "automatic")
        try station.wait(for: path, toBe: "suspended")
        // It may run meanwhile, because an X server that answers late counts as grabbed.
        try station.wait("the call") {
            let call = try caller.newCall(
                destination: name, path: "/", interface: "org.example.Service", member: "Do")
            try caller.send(call)
            try caller.flush()
            return try station.lastDemand(of: path) == "call"
        }
    }

    private static let impatient = "[LifeCycle]\nBackgroundGraceSec=0\n"

    @Test(
        "a call makes a suspended application answer, unless its rule ignores the caller; a second start resumes it",
        .enabled(if: Station.isAvailable, Station.whatIsMissing),
        .enabled(if: Display.isAvailable, Display.whatIsMissing),
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"), arguments: BusProgram.present)
    func agent(on program: BusProgram) throws {
        let display = try Display(try #require(WindowManager.present.first))
        let session = try SessionBus(program)
        let station = try Station(configuration: Self.impatient)
        let rules = try station.configureAgent("[Application org.example.Service]\nIgnoreCallers=ignored\n")
        try station.startAgent(
            ["--verbose", "--config", rules],
            environment: display.environment.merging(["DBUS_SESSION_BUS_ADDRESS": session.address]) { $1 })
        // A copy of the program: other tests start the original all the time.
        let program = station.bus.directory + "/gdbus"
        try Programs.copy(#require(Programs.inPath("gdbus")), to: program)
        // It owns a name that others call, but the name is no reason for an objection.
        let application = try Child(
            program, ["monitor", "--address", session.address, "--dest", "org.freedesktop.DBus"])
        try application.waitForLine(containing: "Monitoring")
        let asker = try Bus.open(address: session.address)
        let name = try #require(
            try asker.call(asker.newDriverCall("ListNames")).readStrings().first {
                $0.hasPrefix(":") && (try? asker.credentials(of: $0).pid) == application.pid
            })
        let path = try station.register("org.example.Service", application.pid, suspension: "automatic")
        func demand() throws -> String? { try station.lastDemand(of: path) }
        try station.wait("the rule") { try station.explain(path, "rule") == .string("org.example.Service") }
        try station.wait(for: path, toBe: "suspended")
        let ignored = station.bus.directory + "/ignored"
        try Programs.copy(#require(Programs.inPath("gdbus")), to: ignored)
        let call = ["call", "--address", session.address, "--dest", name, "--object-path", "/"]
        let caller = try Child(ignored, call + ["--method", "org.freedesktop.DBus.Peer.Ping"])
        func ping() throws {
            let call = try asker.newCall(
                destination: name, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
            _ = try asker.call(call, timeout: 1_000_000)
        }
        // The agent learns of the suspension a moment later.
        try station.wait("an answer") { (try? ping()) != nil }
        // It may have been let run before the call, because an X server that answers late counts as grabbed.
        var why: String?
        try station.wait("the call") {
            _ = try? ping()
            why = try demand()
            return why?.hasPrefix("call by ") == true
        }
        #expect(why == "call by \(Proc().name(of: getpid()))")
        if case .strings(let demands)? = try station.explain(path, "demands") {
            #expect(!demands.contains { $0.contains("ignored") })
        }
        withExtendedLifetime(caller) {}
        try station.wait(for: path, toBe: "suspended")
        // As above: a start in the first moment is not seen.
        var others: [Child] = []
        try station.wait("the start") {
            others.append(
                try Child(
                    program, ["monitor", "--address", session.address, "--dest", "org.freedesktop.DBus"]))
            return try demand() == "start by gdbus"
        }
        try station.wait(for: path, toBe: "suspended")
    }
}
