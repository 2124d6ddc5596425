import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The examples in other languages: each goes through the whole life cycle twice.
@Suite("Examples", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct ExampleTests {
    private static let directory = Programs.root + "/Examples"

    private func lines(_ child: Child) -> [String] {
        _ = child.advance()
        return child.output.split(separator: "\n").map { String($0.split(separator: " ").first ?? "") }
    }

    /// Focuses it, minimizes it until it is suspended, focuses it again, and ends it in an orderly way.
    private func live(
        _ child: Child, in theatre: Theatre, hasDelegate: Bool = true, move: (Bool) throws -> Void
    ) throws {
        let path = try path(of: child, in: theatre)
        try move(true)
        try theatre.wait(for: path, toBe: "active")
        try move(false)
        try theatre.wait(for: path, toBe: "suspended")
        try move(true)
        try theatre.wait(for: path, toBe: "active")
        if hasDelegate { try child.waitForLine(containing: "DidEnterBackground") }
        try theatre.terminate(path, force: false)
        _ = try child.waitForExit()
        try theatre.waitForRemoval(of: path)
    }

    private func path(of child: Child, in theatre: Theatre) throws -> String {
        var found: String?
        try theatre.wait("the registration") {
            found = try theatre.path(of: child.pid)
            return found != nil
        }
        return try #require(found)
    }

    private func report(_ child: Child, _ theatre: Theatre) -> (Bool) throws -> Void {
        { isFront in
            try theatre.setMinimized(child.pid, !isFront)
            try theatre.setFocus(isFront ? child.pid : 0)
        }
    }

    private static let cycle = [
        "WillFinishLaunching", "DidFinishLaunching", "WillEnterForeground", "StateChanged", "StateChanged",
        "DidBecomeActive", "WillResignActive", "StateChanged", "StateChanged", "DidEnterBackground",
        "WillEnterForeground", "StateChanged", "StateChanged", "DidBecomeActive", "WillTerminate",
    ]

    /// Compiles a C file of the examples; returns the program.
    private func compiled(_ name: String, in theatre: Theatre) throws -> String {
        let program = theatre.bus.directory + "/" + name
        let compiler = try Child(
            "cc",
            ["-Wall", "-Wextra", "-Werror", "\(Self.directory)/\(name).c", "-o", program, "-lsystemd"])
        #expect(try compiler.waitForExit() == .exited(0), "\(compiler.errors)")
        return program
    }

    private static let hasCompiler = Programs.inPath("cc") != nil

    @Test("C, on sd-bus", .enabled(if: hasCompiler, "needs a C compiler"))
    func c() throws {
        let theatre = try Theatre()
        let program = try compiled("application", in: theatre)
        for count in 0...1 {
            let child = try Child(program, environment: theatre.bus.environment)
            try live(child, in: theatre, move: report(child, theatre))
            #expect(lines(child).filter { $0 != "restored" } == Self.cycle)
            #expect(child.output.contains("restored \(count)\n"))
        }
    }

    /// Sends a process a signal of the daemon in the daemon's place.
    private func pretend(
        _ path: String, _ interface: String, _ member: String, to child: Child, in theatre: Theatre,
        _ body: (borrowing Message) throws -> Void
    ) throws {
        let bus = try Bus.open(address: theatre.bus.address)
        for name in try Self.connections(of: child.pid, on: bus) {
            let signal = try bus.newSignal(path: path, interface: interface, member: member, to: name)
            try body(signal)
            try bus.send(signal)
        }
        try bus.flush()
    }

    private static func connections(of pid: Int32, on bus: Bus) throws -> [String] {
        let call = try bus.newCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus", member: "ListNames")
        return try bus.call(call).readStrings().filter {
            guard $0.hasPrefix(":") else { return false }
            return (try? bus.processID(ofOwner: $0)) == pid
        }
    }

    @Test(
        "the subscriber in C subscribes again to the next daemon, and believes no other sender",
        .enabled(if: hasCompiler, "needs a C compiler"))
    func subscriber() throws {
        let theatre = try Theatre()
        let player = try Player(theatre)
        try player.wait(for: "willEnterForeground")
        try theatre.wait(for: try #require(try theatre.path(of: player.pid)), toBe: "inactive")
        let child = try Child(
            try compiled("subscriber", in: theatre), environment: theatre.bus.environment)
        let listed = "[\(player.pid)] is inactive"
        try child.waitForLine(containing: listed)
        try theatre.endDaemon(SIGKILL)
        try theatre.startDaemon()
        try theatre.wait("the second list") {
            let ending = child.advance()
            return child.output.components(separatedBy: listed).count == 3 || ending != nil
        }
        try pretend(BusNames.root, BusNames.manager, "ApplicationAdded", to: child, in: theatre) { message in
            try message.append(objectPath: "/org/appstate1/application/1")
            try message.append("org.example.Invented")
            try message.append(UInt32(1))
        }
        try theatre.setFocus(player.pid)
        try child.waitForLine(containing: "[\(player.pid)] inactive -> active")
        #expect(!child.output.contains("org.example.Invented"))
    }

    @Test("the application in C believes no other sender", .enabled(if: hasCompiler, "needs a C compiler"))
    func forged() throws {
        let theatre = try Theatre()
        let child = try Child(try compiled("application", in: theatre), environment: theatre.bus.environment)
        let path = try path(of: child, in: theatre)
        try child.waitForLine(containing: "WillEnterForeground")
        try pretend(path, BusNames.application, "WillTerminate", to: child, in: theatre) {
            try $0.append(UInt64(1))
            try $0.append(UInt64.never)
        }
        try theatre.setFocus(child.pid)
        try child.waitForLine(containing: "DidBecomeActive")
        #expect(!child.output.contains("WillTerminate"))
    }

    @Test("a shell script", .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
    func shell() throws {
        let theatre = try Theatre(grace: "0")
        for count in 0...1 {
            let child = try Child(
                "sh", [Self.directory + "/application.sh"], environment: try shellEnvironment(theatre))
            try child.waitForLine(containing: "launched")
            #expect(child.output.contains("restored \(count == 0 ? 0 : 2)\n"))
            let object = try self.path(of: child, in: theatre)
            let move = report(child, theatre)
            try move(true)
            try child.waitForLine(containing: "active")
            try move(false)
            try theatre.wait(for: object, toBe: "suspended")
            try move(true)
            try child.waitForLine(containing: "saved")
            try theatre.wait("the second time that it is active") {
                lines(child).count { $0 == "active" } == 2
            }
            try theatre.terminate(object, force: false)
            #expect(try child.waitForExit() == .exited(0), "\(child.errors)")
            try theatre.waitForRemoval(of: object)
        }
    }

    /// For a script that calls appstatectl.
    private func shellEnvironment(_ theatre: Theatre) throws -> [String: String?] {
        let tools = URL(fileURLWithPath: try #require(Programs.built("appstatectl")))
            .deletingLastPathComponent().path
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        return theatre.bus.environment.merging(["PATH": "\(tools):\(path)"]) { $1 }
    }

    private static let hasGTK: Bool = {
        let code = "import gi; gi.require_version('Gtk', '4.0'); from gi.repository import Gtk"
        guard access("/usr/bin/python3", X_OK) == 0 else { return false }
        return (try? Child("/usr/bin/python3", ["-c", code]).waitForExit()) == .exited(0)
    }()

    @Test(
        "Python, with GTK 4 and a window", .enabled(if: hasGTK, "needs python3-gi and gir1.2-gtk-4.0"),
        .enabled(if: Screen.isAvailable, Screen.whatIsMissing))
    func gtk() throws {
        let theatre = try Theatre()
        let screen = try Screen(theatre)
        var first: Int32?
        for _ in 0...1 {
            let child = try Child(
                "/usr/bin/python3", [Self.directory + "/gtk.py"],
                environment: theatre.bus.environment.mapValues { $0 }.merging(screen.environment) { $1 })
            let window = try screen.window(of: child.pid)
            try live(child, in: theatre) { isFront in
                _ = try screen.run("xdotool", [isFront ? "windowactivate" : "windowminimize", window])
            }
            #expect(Set(lines(child)).isSuperset(of: Self.cycle), "\(child.output)\(child.errors)")
            if let first { #expect(child.output.contains("restored written by \(first)"), "\(child.output)") }
            first = first ?? child.pid
        }
    }
}
