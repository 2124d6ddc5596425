import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The examples in other languages: each goes through the whole life cycle twice.
@Suite("Examples", .enabled(if: Theatre.isAvailable, Theatre.whatIsMissing))
struct ExampleTests {
    private static let directory = Theatre.root + "/Examples"

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

    @Test("C, on sd-bus", .enabled(if: Programs.inPath("cc") != nil, "needs a C compiler"))
    func c() throws {
        let theatre = try Theatre()
        let program = theatre.bus.directory + "/application"
        let compiler = try Child(
            "cc",
            [
                "-Wall", "-Wextra", "-Werror", Self.directory + "/application.c", "-o", program, "-lsystemd",
            ])
        #expect(try compiler.waitForExit() == .exited(0), "\(compiler.errors)")
        for count in 0...1 {
            let child = try Child(program, environment: theatre.bus.environment)
            try live(child, in: theatre, move: report(child, theatre))
            #expect(lines(child).filter { $0 != "restored" } == Self.cycle)
            #expect(child.output.contains("restored \(count)\n"))
        }
    }

    @Test("a shell script", .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
    func shell() throws {
        let theatre = try Theatre(grace: "0")
        let tools = URL(fileURLWithPath: try #require(Programs.built("appstatectl")))
            .deletingLastPathComponent().path
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        for count in 0...1 {
            let child = try Child(
                "sh", [Self.directory + "/application.sh"],
                environment: theatre.bus.environment.merging(["PATH": "\(tools):\(path)"]) { $1 })
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
