import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Windows

/// Applications that the session bus starts and asks to show themselves, with GLib's own application class.
@Suite(
    "Launches by the session bus", .serialized,
    .enabled(if: Station.isAvailable, Station.whatIsMissing),
    .enabled(if: Display.isAvailable, Display.whatIsMissing),
    .enabled(if: LaunchScene.hasGLib, "needs /usr/bin/python3 with gi: scripts/setup test"))
struct BusLaunchTests {
    /// An agent, and an application that records what it is asked.
    private final class Scene {
        let display: Display
        let scene: LaunchScene
        let program: String
        private let record: String

        static let id = "org.example.Bus-App"

        init() throws {
            display = try Display(try #require(WindowManager.present.first))
            scene = try LaunchScene(on: display.environment)
            program = scene.system.directory + "/application"
            record = scene.system.directory + "/application.record"
            try scene.write(
                program: program,
                """
                #!/usr/bin/python3
                import os
                from gi.repository import Gio

                def note(text):
                    with open('\(record)', 'a') as file:
                        file.write(text + '\\n')

                class Application(Gio.Application):
                    def do_before_emit(self, platform_data):
                        note('token %s' % platform_data.unpack().get('activation-token'))
                        note('startup %s' % platform_data.unpack().get('desktop-startup-id'))
                    def do_startup(self):
                        Gio.Application.do_startup(self)
                        self.hold()
                        note('pid %d' % os.getpid())
                    def do_activate(self):
                        note('activate')
                    def do_open(self, files, count, hint):
                        note('open ' + ' '.join(file.get_uri() for file in files))

                Application(application_id='\(Self.id)',
                            flags=Gio.ApplicationFlags.IS_SERVICE | Gio.ApplicationFlags.HANDLES_OPEN).run([])

                """)
        }

        var lines: [String] {
            (try? String(contentsOfFile: record, encoding: .utf8))?.split(separator: "\n").map(String.init)
                ?? []
        }

        func wait(for line: String) throws {
            try scene.wait("\(line) in \(lines)") { self.lines.contains(line) }
        }
    }

    @Test("the bus starts it and asks it to show itself or to open something; its process owns the name")
    func start() throws {
        let test = try Scene()
        try test.scene.service(Scene.id, test.program)
        try test.scene.entry(Scene.id, "Exec=/bin/false", "DBusActivatable=true")
        let launch = try test.scene.start(Scene.id, [("activation-token", .string("token-1"))])
        #expect(!launch.isHeld && launch.unit.isEmpty)
        try test.wait(for: "activate")
        #expect(test.lines == ["pid \(launch.process.pid)", "token token-1", "startup token-1", "activate"])
        try test.scene.proceed(launch)
        let urls: [(String, Variant)] = [("urls", .strings(["file:///tmp/a%20b", "https://example.org/"]))]
        try test.scene.open(Scene.id, launch.process.pid, urls)
        try test.wait(for: "open file:///tmp/a%20b https://example.org/")
        // No window, and nothing to open.
        #expect(try !test.scene.present(Scene.id, launch.process.pid))
        try test.scene.open(Scene.id, launch.process.pid)
        try test.scene.wait("the second request") { test.lines.count { $0 == "activate" } == 2 }
        launch.process.kill(SIGKILL)
        try launch.process.waitForEnd()
        // Since Linux 6.15 the kernel reports the status.
        #expect(["unknown 0", "signaled 9"].contains(try test.scene.exit(of: launch)))
    }

    @Test(
        "for a Flatpak whose proxy owns the name, the process that started the sandbox is reported",
        .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)),
        .enabled(if: Programs.inPath("xdg-dbus-proxy") != nil, "needs xdg-dbus-proxy"))
    func flatpak() throws {
        let test = try Scene()
        let unit = try TestCgroup(
            "app-flatpak-org.example.Bus\\x2dApp-\(UUID().uuidString).scope",
            below: try #require(TestCgroup.base))
        let directory = test.scene.system.directory
        // As flatpak(1) does: the proxy and the sandbox in their own unit.
        try test.scene.write(
            program: directory + "/flatpak",
            """
            #!/bin/sh
            cd '\(directory)'
            echo $$ > '\(unit.cgroup.directory)/cgroup.procs'
            mkfifo ready
            exec 4<>ready
            xdg-dbus-proxy --fd=3 "$DBUS_SESSION_BUS_ADDRESS" proxied 3<>ready &
            head -c 1 <&4 > /dev/null
            echo $$ > outer
            DBUS_SESSION_BUS_ADDRESS='unix:path=\(directory)/proxied' \
                exec unshare --pid --fork --kill-child -- '\(test.program)'

            """)
        try test.scene.service(Scene.id, directory + "/flatpak")
        try test.scene.entry(Scene.id, "Exec=/bin/false", "DBusActivatable=true")
        let launch = try test.scene.start(Scene.id)
        #expect(!launch.isHeld)
        #expect(try test.scene.record(directory + "/outer") == ["\(launch.process.pid)"])
        try test.wait(for: "activate")
        try unit.kill()
        try launch.process.waitForEnd()
    }

    @Test("a running application's window is raised; a name that another process owns is not asked")
    func present() throws {
        let test = try Scene()
        let watch = try test.display.watch()
        let (alpha, beta) = (try test.display.app(), try test.display.app())
        _ = try alpha.open("Alpha")
        let second = try beta.open("Beta")
        try test.display.run("xdotool", ["windowactivate", "--sync", "\(second)"])
        try watch.wait(for: ["Alpha", "Beta focused"])
        // The agent may not know the window yet.
        try test.scene.wait("Alpha to be raised") { try test.scene.present("org.example.Alpha", alpha.pid) }
        try watch.wait(for: ["Alpha focused", "Beta"])
        // The name belongs to another process, and there is no window.
        try test.scene.service(Scene.id, test.program)
        try test.scene.entry(Scene.id, "DBusActivatable=true")
        let launch = try test.scene.start(Scene.id, [("launch-mode", .string("background"))])
        let idle = try Child("sleep", ["1000"])
        #expect(try !test.scene.present(Scene.id, idle.pid))
        try test.scene.open(Scene.id, idle.pid)
        #expect(!test.lines.contains("activate"))
        withExtendedLifetime(launch) {}
    }

    @Test("what a running application without a bus name is to open is passed to its program once more")
    func openByEntry() throws {
        let test = try Scene()
        let (program, record) = try test.scene.program("editor")
        try test.scene.entry("org.example.Editor", "Exec=\(program) %U")
        let idle = try Child("sleep", ["1000"])
        try test.scene.open(
            "org.example.Editor", idle.pid, [("urls", .strings(["https://example.org/"]))])
        #expect(try test.scene.record(record).last == "[https://example.org/]")
        var name: String?
        do {
            try test.scene.open(
                "org.example.None", idle.pid, [("urls", .strings(["https://example.org/"]))])
        } catch let failure as BusFailure {
            name = failure.name
        }
        #expect(name == ErrorName.noSuchApplication.rawValue)
    }
}
