import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// Common clients work with the service as with any other: busctl, gdbus, python3-dbus, and GLib's proxies, whose
/// caches stay correct although they call no method of the service.
@Suite(
    "Ready-made clients", .enabled(if: TestDaemon.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct ProxyTests {
    private static let needsGI: Comment = "needs python3-gi"

    /// The standard interfaces that every object has.
    private static let standard: Set<String> = [
        "org.freedesktop.DBus.Peer", "org.freedesktop.DBus.Introspectable", BusNames.properties,
    ]

    // MARK: busctl

    /// The rows of `busctl introspect`: interface, member (`.Suspend`), kind, signature, result or value, flags.
    private func rows(_ daemon: TestDaemon, _ path: String) throws -> [(interface: String, words: [String])] {
        let (output, status) = try daemon.busctl(["introspect", BusNames.service, path])
        #expect(status == .exited(0), "\(output)")
        var interface = ""
        var rows: [(interface: String, words: [String])] = []
        for line in output.split(separator: "\n").dropFirst() {
            let words = line.split(separator: " ").map(String.init)
            if words[1] == "interface" { interface = words[0] }
            rows.append((interface, words))
        }
        return rows
    }

    /// `kind name` of every member of an interface in dbus/.
    private func members(_ interface: String) throws -> Set<String> {
        Set(
            try Description.documented(interface).map {
                $0.split(whereSeparator: { " (".contains($0) }).prefix(2).joined(separator: " ")
            })
    }

    @Test(
        "busctl introspect lists every interface, with every member and the values of the properties",
        .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
    func busctlIntrospect() throws {
        let stage = try Stage()
        for (path, own) in [
            (BusNames.root, [BusNames.manager, BusNames.reporter, BusNames.objectManager]),
            (stage.path, [BusNames.application]),
        ] {
            let rows = try rows(stage.daemon, path)
            let interfaces = rows.filter { $0.words[1] == "interface" }.map(\.interface)
            #expect(Set(interfaces) == Self.standard.union(own))
            for interface in own where interface != BusNames.objectManager {
                let listed = rows.filter { $0.interface == interface && $0.words[1] != "interface" }
                let names = Set(listed.map { "\($0.words[1]) \($0.words[0].dropFirst())" })
                #expect(try names == members(interface), "\(interface)")
            }
        }
        let values = try rows(stage.daemon, stage.path).filter { $0.words[1] == "property" }
        func value(_ name: String) -> [String]? { values.first { $0.words[0] == name }?.words }
        #expect(value(".State") == [".State", "property", "s", "\"active\"", "emits-change"])
        #expect(value(".PID") == [".PID", "property", "u", "\(stage.process.pid)", "const"])
    }

    @Test(
        "busctl tree shows each application while it is there, and nothing else",
        .enabled(if: Programs.inPath("busctl") != nil, "needs busctl"))
    func busctlTree() throws {
        let stage = try Stage()
        func tree() throws -> Set<Substring> {
            Set(try stage.daemon.busctl(["--list", "tree", BusNames.service]).output.split(separator: "\n"))
        }
        let other = try Child("sleep", ["1000"])
        let path = try stage.client.register("org.example.Other", other.pid)
        let present = try tree()
        for node in [BusNames.root, stage.path, path] { #expect(present.contains(Substring(node))) }
        other.kill(SIGKILL)
        try stage.client.waitForRemoval(of: path)
        #expect(try tree().contains(Substring(stage.path)))
        #expect(try !tree().contains(Substring(path)))
    }

    // MARK: gdbus

    private func gdbus(_ daemon: TestDaemon, _ arguments: [String]) throws -> String {
        let child = try Child("gdbus", arguments, environment: daemon.bus.environment)
        #expect(try child.waitForExit() == .exited(0), "\(arguments): \(child.errors)")
        return child.output
    }

    @Test(
        "the output of gdbus introspect --xml matches the files in dbus/",
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"))
    func gdbusXML() throws {
        let stage = try Stage()
        for (path, own) in [
            (BusNames.root, [BusNames.manager, BusNames.reporter]), (stage.path, [BusNames.application]),
        ] {
            let text = try gdbus(
                stage.daemon,
                ["introspect", "--system", "--dest", BusNames.service, "--object-path", path, "--xml"])
            let live = try Description.interfaces(in: text)
            #expect(Self.standard.union(own).isSubset(of: live.keys))
            for interface in own {
                #expect(try live[interface] == Description.documented(interface), "\(interface)")
            }
        }
    }

    @Test(
        "gdbus introspect --recurse finds the applications, and gdbus call can register one",
        .enabled(if: Programs.inPath("gdbus") != nil, "needs gdbus"))
    func gdbusCall() throws {
        let stage = try Stage()
        let destination = ["--system", "--dest", BusNames.service, "--object-path"]
        let text = try gdbus(stage.daemon, ["introspect", "--recurse"] + destination + [BusNames.root])
        #expect(text.contains("node \(stage.path) {"), "\(text)")
        #expect(text.contains("readonly s State = 'active';"), "\(text)")
        let other = try Child("sleep", ["1000"])
        let path = try gdbus(
            stage.daemon,
            ["call"] + destination
                + [
                    BusNames.root, "--method", "\(BusNames.manager).Register", "org.example.Other",
                    "\(other.pid)", "{'suspension': <'never'>, 'background-modes': <@as []>}",
                ])
        #expect(try path == "(objectpath '\(stage.client.application(ofPID: other.pid))',)\n")
    }

    // MARK: python3-dbus

    @Test(
        "a python3-dbus program can register and read, gets refusals, and receives every edge",
        .enabled(if: Scripts.haveDBus, "needs python3-dbus and python3-gi"))
    func pythonDBus() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let script = try Scripts.start("life.py", ["\(child.pid)"], on: daemon.bus)
        try script.waitForLine(containing: "focused ")
        let path = try client.application(ofPID: child.pid)
        let names = try members(BusNames.application).compactMap { member in
            member.hasPrefix("property ") ? String(member.dropFirst("property ".count)) : nil
        }
        let said = script.output.split(separator: "\n").filter { !$0.hasPrefix("edge ") }.map(String.init)
        #expect(
            said == [
                "registered \(path)", "known \(path) org.example.Python", "state background",
                "every property \(names.sorted().joined(separator: " "))", "explained org.example.Python",
                "refused missing \(ErrorName.noSuchApplication.rawValue)",
                "refused twice \(ErrorName.alreadyRegistered.rawValue)",
                "refused option \(ErrorName.invalidArgs.rawValue)",
                "refused delegate \(ErrorName.notDelegate.rawValue)", "focused \(path)",
            ])
        child.kill(SIGSTOP)
        try client.wait(for: path, toBe: "suspended")
        child.kill(SIGCONT)
        try client.wait(for: path, toBe: "active")
        try client.setMinimized(child.pid, true)
        child.kill(SIGKILL)
        #expect(try script.waitForExit() == .exited(0), "\(script.errors)")
        try client.waitForRemoval(of: path)
        // It subscribed after the application was registered, so it did not get the first edge.
        let edges = zip(client.edges(of: path), client.reasons(of: path)).map { "edge \($0) \($1)" }
        let lines = script.output.split(separator: "\n").map(String.init)
        #expect(lines.filter { $0.hasPrefix("edge ") } == Array(edges.dropFirst()))
        #expect(lines.last?.hasPrefix("removed \(path) ") == true)
        #expect(script.errors == "")
    }

    // MARK: GLib

    private static let followed = ["State", "StateTimestamp", "Focused", "Minimized", "SuspendHolds"]

    /// The line that a script prints when its cache matches the service.
    private func truth(_ client: Client, _ path: String, of object: String? = nil) throws -> String {
        let values = try Self.followed.map { try client.property(path, $0).printed }
        return (["cached"] + (object.map { [$0] } ?? []) + values).joined(separator: " | ")
    }

    /// Focuses, minimizes, stops and continues; runs `check` once each has taken effect.
    private func live(
        _ client: Client, _ path: String, _ process: Child, check: (String) throws -> Void
    ) throws {
        func step(_ state: String, _ act: () throws -> Void) throws {
            try act()
            try client.wait(for: path, toBe: state)
            #expect(try client.state(path) == state)
            try check(state)
        }
        try step("active") { try client.setFocus(process.pid) }
        try step("suspended") { process.kill(SIGSTOP) }
        try step("active") { process.kill(SIGCONT) }
        try step("background") { try client.setMinimized(process.pid, true) }
        try step("suspended") { try client.application(path, "Suspend") }
        try step("background") { try client.application(path, "Resume") }
    }

    @Test(
        "an unsubscribed GDBusProxy keeps a correct cache through focus, minimize, stop and continue",
        .enabled(if: Scripts.haveGI, needsGI))
    func proxy() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        let script = try Scripts.start(
            "proxy.py", [path, BusNames.application] + Self.followed, on: daemon.bus)
        try script.waitForLine(containing: truth(client, path))
        try live(client, path, child) { _ in try script.waitForLine(containing: truth(client, path)) }
        #expect(script.errors == "")
    }

    @Test(
        "a GDBusProxy of the Manager caches which application has the focus",
        .enabled(if: Scripts.haveGI, needsGI))
    func managerProxy() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let script = try Scripts.start(
            "proxy.py", [BusNames.root, BusNames.manager, "FocusedApplication"], on: daemon.bus)
        try script.waitForLine(containing: "cached | '/'")
        for _ in 0..<2 {
            let child = try Child("sleep", ["1000"])
            let path = try client.register("org.example.Editor", child.pid)
            try client.setFocus(child.pid)
            try script.waitForLine(containing: "cached | '\(path)'")
            child.kill(SIGKILL)
            try client.waitForRemoval(of: path)
        }
        let next = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Next", next.pid)
        try client.setFocus(next.pid)
        try script.waitForLine(containing: "cached | '\(path)'")
        // Between two focused applications nothing had the focus.
        let lines = script.output.split(separator: "\n").map(String.init)
        #expect(lines.count == 6)
        #expect(lines.enumerated().allSatisfy { ($0.offset % 2 == 0) == ($0.element == "cached | '/'") })
        #expect(script.errors == "")
    }

    @Test(
        "an unsubscribed GDBusObjectManagerClient follows all objects with correct properties",
        .enabled(if: Scripts.haveGI, needsGI))
    func objectManager() throws {
        let stage = try Stage()
        let client = stage.client
        let script = try Scripts.start("objects.py", Self.followed, on: stage.daemon.bus)
        try script.waitForLine(containing: "ready")
        #expect(script.output.contains("added \(stage.path)\n"))
        #expect(script.output.contains(try truth(client, stage.path, of: stage.path)))
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Later", child.pid)
        try script.waitForLine(containing: "added \(path)")
        try script.waitForLine(containing: truth(client, path, of: path))
        try live(client, path, child) { _ in
            for path in [path, stage.path] {
                try script.waitForLine(containing: truth(client, path, of: path))
            }
        }
        // The service sends to each client in order.
        try client.application(stage.path, "Unregister")
        child.kill(SIGKILL)
        try script.waitForLine(containing: "removed \(path)")
        try script.waitForLine(containing: "removed \(stage.path)")
        #expect(script.errors == "")
    }
}
