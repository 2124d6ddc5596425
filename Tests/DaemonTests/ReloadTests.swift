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

    /// The lines `Key=default` below each section of the manual page.
    private func manual() throws -> [(section: String, keys: [(name: String, value: String)])] {
        let page = try String(contentsOfFile: Programs.root + "/man/appstated.conf.5", encoding: .utf8)
        return page.components(separatedBy: "\n.Sh ").filter { $0.hasPrefix("[") }.map { text in
            let lines = text.split(separator: "\n")
            let items = lines.filter { $0.hasPrefix(".It Li ") }.flatMap { line in
                line.dropFirst(".It Li ".count).components(separatedBy: " , Li ")
            }
            let keys = items.map { item in
                let words = item.components(separatedBy: "= Ns Ar ")
                return words.count == 2
                    ? (name: words[0], value: words[1]) : (name: String(item.dropLast()), value: "")
            }
            let section = String(lines[0].prefix { $0 != "," })
            return (section.replacingOccurrences(of: " ID]", with: " org.example.App]"), keys)
        }
    }

    @Test("every key of the manual page is accepted with its default, and refused with nonsense")
    func keys() throws {
        let sections = try manual()
        let count = sections.reduce(0) { $0 + $1.keys.count }
        #expect(count > 30)
        func text(_ value: (String) -> String?) -> String {
            sections.map { section, keys in
                let lines = keys.compactMap { key in value(key.value).map { "\(key.name)=\($0)" } }
                return ([section] + lines).joined(separator: "\n") + "\n"
            }.joined()
        }
        let stage = try Stage(configuration: text { $0 })
        func refused() throws -> Variant {
            try stage.client.property(BusNames.root, BusNames.manager, "RefusedLines")
        }
        #expect(try refused() == .uint32(0))
        try write(text { _ in "?" }, stage.daemon)
        stage.daemon.process.kill(SIGHUP)
        // Any word may be a background mode.
        try stage.client.wait("the complaints") { try refused() == .uint32(UInt32(count - 1)) }
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
}
