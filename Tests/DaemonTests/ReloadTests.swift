import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Reloads of the running daemon's configuration.
@Suite("Reloading", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ReloadTests {
    private func write(_ text: String, _ daemon: TestDaemon) throws {
        try daemon.configure(text)
    }

    @Test("SIGHUP reloads the configuration, loses no application, and updates those it concerns")
    func hangUp() throws {
        let stage = try Stage()
        let before = try stage.client.list()
        try write("[Application org.example.Editor]\nSuspension=never\nReclaimable=no\n", stage.daemon)
        stage.daemon.process.kill(SIGHUP)
        try stage.client.wait("the change") {
            stage.client.received.contains { $0.path == stage.path && $0.member == "PropertiesChanged" }
        }
        #expect(try stage.client.property(stage.path, "Suspension") == .string("never"))
        #expect(try stage.client.property(stage.path, "Reclaimable") == .bool(false))
        #expect(try stage.client.list() == before)
        #expect(stage.client.edges(of: stage.path) == [])
    }

    @Test(
        "ReloadConfig answers once in force, and removing a key restores the registration's value",
        .enabled(if: getuid() == 0, "only root may ask for it"))
    func reloadConfig() throws {
        let stage = try Stage(configuration: "[Application org.example.Editor]\nSuspension=never\n")
        #expect(try stage.client.property(stage.path, "Suspension") == .string("never"))
        let before = try stage.client.list()
        try write("", stage.daemon)
        try stage.client.manager("ReloadConfig")
        // The value from its registration.
        #expect(try stage.client.property(stage.path, "Suspension") == .string("manual"))
        #expect(try stage.client.list() == before)
    }

    @Test("clients learn the mode and the number of refused lines; a typo in Mode= does not begin to enforce")
    func mode() throws {
        let stage = try Stage(configuration: "[Daemon]\nMode=observe\n")
        func property(_ name: String) throws -> Variant {
            try stage.client.property(BusNames.root, BusNames.manager, name)
        }
        #expect(try property("Mode") == .string("observe"))
        #expect(try property("RefusedLines") == .uint32(0))
        // Each differs from the one before in one value at least.
        for (text, mode, refused) in [
            ("[Daemon]\nMode=observer\nMood=good\n", "observe", UInt32(2)),
            ("[Daemon]\nMode=enforce\n", "enforce", 0), ("[Daemon]\nMode=\"observe\"\n", "observe", 1),
            ("", "enforce", 0),
        ] {
            stage.client.forget()
            try write(text, stage.daemon)
            stage.daemon.process.kill(SIGHUP)
            try stage.client.wait("\(mode), \(refused) of \(text)") {
                try property("Mode") == .string(mode) && property("RefusedLines") == .uint32(refused)
            }
            try stage.client.settle()
            let isTold = stage.client.received.contains {
                $0.path == BusNames.root && $0.member == "PropertiesChanged"
            }
            #expect(isTold, "\(text)")
        }
    }

    @Test("only root may call ReloadConfig", .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func notForAll() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        try write("[Application org.example.Editor]\nSuspension=never\n", stage.daemon)
        try stage.refuses(.accessDenied, "ReloadConfig by nobody") { try nobody.manager("ReloadConfig") }
        #expect(try stage.client.property(stage.path, "Suspension") == .string("manual"))
    }

    @Test(
        "a bad line is logged with file, line and key, at start and at reload; the rest takes effect")
    func badLines() throws {
        let stage = try Stage(configuration: "[LifeCycle]\nBackgroundGraceSec=soon\n")
        let file = stage.daemon.configurationFile
        try stage.daemon.process.waitForLine(containing: "\(file):2: BackgroundGraceSec=: \"soon\"")
        try write(
            "[Limits]\n\nStringBytes=none\n[Application org.example.Editor]\nSuspension=never\n", stage.daemon
        )
        try stage.daemon.reload()
        try stage.daemon.process.waitForLine(containing: "\(file):3: StringBytes=: \"none\"")
        #expect(try stage.client.property(stage.path, "Suspension") == .string("never"))
    }

    @Test("a missing configuration file is logged and the defaults apply; a FIFO does not block a reload")
    func missing() throws {
        let stage = try Stage(configuration: "[Application org.example.Editor]\nSuspension=never\n")
        let file = stage.daemon.configurationFile
        try FileManager.default.removeItem(atPath: file)
        try stage.daemon.reload()
        try stage.daemon.process.waitForLine(containing: "\(file): open \(file)")
        #expect(try stage.client.property(stage.path, "Suspension") == .string("manual"))
        #expect(mkfifo(file, 0o600) == 0)
        // Nothing writes to the FIFO, so a daemon that waited would not answer.
        try stage.daemon.reload()
        #expect(try stage.client.list().count == 1)
    }

    @Test("a new BackgroundGraceSec applies to the next grace period, not to the running one")
    func grace() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=10min\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Actor", "launch-mode=s:background")
        try app.application(path, "FinishLaunching")
        let deadline = try client.explain(path)["suspension-deadline"]
        #expect(deadline != nil)
        try daemon.reconfigure("[LifeCycle]\nBackgroundGraceSec=0\n")
        #expect(try client.explain(path)["suspension-deadline"] == deadline)
        try client.setFocus(app.pid)
        try client.setFocus(0)
        try client.setMinimized(app.pid, true)
        try client.wait(for: path, toBe: "suspended")
    }
}
