import AppStateBus
import AppStateContract
import Foundation
import Glibc
import TestSupport
import Testing

/// The transfer program on a bus, with a real server.
@Suite(
    "Background transfers",
    .enabled(
        if: PrivateBus.isAvailable && Programs.built("appstate-transfer") != nil
            && access(Programs.python, X_OK) == 0,
        "needs dbus-daemon, python3, and appstate-transfer built beside"))
struct TransferTests {
    private static let scripts = Programs.root + "/Tests/Transfers"
    private static let hasModules = Programs.pythonHas("dbus") && Programs.pythonHas("gi")

    /// The server of server.py.
    private final class Server {
        private let process: Child
        let port: String

        init() throws {
            process = try Child(Programs.python, [TransferTests.scripts + "/server.py"])
            try process.waitForLine(containing: "port")
            port = String(process.output.split(whereSeparator: \.isWhitespace)[1])
        }

        func url(_ name: String, _ query: String) -> String { "http://127.0.0.1:\(port)/\(name)?\(query)" }

        /// What the server answers.
        func answer(_ name: String, _ query: String) throws -> Data {
            let client = try Child(
                Programs.python,
                [
                    "-c",
                    "import base64, sys, urllib.request as r; "
                        + "print(base64.b64encode(r.urlopen(sys.argv[1]).read()).decode())",
                    url(name, query),
                ])
            guard try client.waitForExit() == .exited(0) else { throw TestFailure(client.errors) }
            return Data(base64Encoded: client.output.filter { !$0.isWhitespace }) ?? Data()
        }

        /// The bytes of a seed.
        func content(_ name: String, seed: Int, size: Int) throws -> Data {
            try answer(name, "size=\(size)&seed=\(seed)")
        }
    }

    /// A bus that is both buses, the program, and a client.
    private final class Desk {
        let bus: PrivateBus
        let client: Bus
        let server: Server
        private var program: Child?
        private let arguments: [String]
        let files: String

        init(_ arguments: [String] = ["--stall-sec", "1", "--attempts", "3"]) throws {
            bus = try PrivateBus(
                policy:
                    "<policy context=\"default\"><allow own=\"*\"/><allow send_destination=\"*\"/></policy>")
            client = try Bus.open(address: bus.address)
            server = try Server()
            self.arguments = arguments
            files = bus.directory + "/files"
            mkdir(files, 0o755)
            try start()
        }

        var environment: [String: String?] {
            [
                "DBUS_SESSION_BUS_ADDRESS": bus.address, "DBUS_SYSTEM_BUS_ADDRESS": bus.address,
                "XDG_STATE_HOME": bus.directory + "/state",
            ]
        }

        func start() throws {
            let child = try Child(
                Programs.built("appstate-transfer") ?? "", arguments, environment: environment)
            program = child
            let isThere = try eventually {
                try client.owner(of: TransferNames.service) != nil || child.advance() != nil
            }
            guard isThere, child.advance() == nil else {
                throw TestFailure("it does not start: \(child.errors)")
            }
        }

        func kill(_ signal: Int32 = SIGKILL) throws {
            try program?.end(signal)
            guard try eventually({ try client.owner(of: TransferNames.service) == nil }) else {
                throw TestFailure("the name is still owned")
            }
        }

        func begin(_ url: String, _ options: [(TransferOption, Variant)]) throws -> String {
            let message = try client.newCall(
                destination: TransferNames.service, path: TransferNames.root,
                interface: TransferNames.manager, member: TransfersMethod.begin.rawValue)
            try message.append(url)
            try message.appendDictionary(options.map { ($0.0.rawValue, $0.1) })
            return try client.call(message).readObjectPath()
        }

        func call(_ method: TransferMethod, _ path: String) throws {
            _ = try client.call(
                try client.newCall(
                    destination: TransferNames.service, path: path, interface: TransferNames.transfer,
                    member: method.rawValue))
        }

        func value(_ property: TransferProperty, _ path: String) throws -> Variant {
            let message = try client.newCall(
                destination: TransferNames.service, path: path, interface: BusNames.properties, member: "Get")
            try message.append(TransferNames.transfer)
            try message.append(property.rawValue)
            return try client.call(message).readVariant()
        }

        func text(_ property: TransferProperty, _ path: String) throws -> String {
            guard case .string(let text) = try value(property, path) else { return "" }
            return text
        }

        func wait(_ path: String, for state: TransferState) throws {
            var last = ""
            let isDone = try eventually {
                last = try text(.state, path)
                return last == state.rawValue || TransferState(rawValue: last)?.isEnd == true
            }
            guard isDone, last == state.rawValue else {
                throw TestFailure("\(path) is \(last), not \(state): \(try text(.error, path))")
            }
        }
    }

    @Test("a file arrives whole, with the caller's umask, under each fault that a server can have")
    func whole() throws {
        let desk = try Desk(["--stall-sec", "1", "--attempts", "5"])
        let size = 300_000
        var paths: [(fault: String, path: String)] = []
        // The program takes it from this process.
        let mask = umask(0o027)
        defer { umask(mask) }
        for fault in ["none", "cut", "stall", "change", "promise", "redirect", "noranges", "weak", "busy"] {
            let url = desk.server.url("whole-\(fault)", "size=\(size)&seed=5&fault=\(fault)")
            let options: [(TransferOption, Variant)] = [(.target, .string("\(desk.files)/\(fault)"))]
            paths.append((fault, try desk.begin(url, options)))
        }
        let first = try desk.server.content("first", seed: 5, size: size)
        let second = try desk.server.content("second", seed: 6, size: size)
        for (fault, path) in paths {
            try desk.wait(path, for: .finished)
            let found = try Data(contentsOf: URL(fileURLWithPath: "\(desk.files)/\(fault)"))
            #expect(found == first || fault == "change" && found == second, "\(fault)")
            var status = stat()
            #expect(stat("\(desk.files)/\(fault)", &status) == 0 && status.st_mode & 0o777 == 0o640)
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: desk.files).count == paths.count)
    }

    @Test("what cannot be transferred ends with a word that says why, and leaves no file")
    func named() throws {
        let desk = try Desk()
        let expected: [(fault: String, option: (TransferOption, Variant)?, word: TransferError)] = [
            ("missing", nil, .http), ("redirect-loop", nil, .http), ("auth", nil, .credentials),
            ("promise-always", nil, .network), ("garbage", nil, .network),
            ("short", (.size, .uint64(9_000)), .size),
            ("none", (.sha256, .string(String(repeating: "0", count: 64))), .hash),
        ]
        for (number, (fault, option, word)) in expected.enumerated() {
            let url = desk.server.url("named-\(fault)", "size=9000&seed=\(number)&fault=\(fault)")
            let target = "\(desk.files)/\(fault)"
            let options = [(TransferOption.target, Variant.string(target))] + [option].compactMap(\.self)
            let path = try desk.begin(url, options)
            try desk.wait(path, for: .failed)
            let error = try desk.text(.error, path)
            #expect(error.hasPrefix("\(word.rawValue): "), "\(fault)")
            if fault == "garbage" { #expect(error.hasSuffix(": the answer is not HTTP")) }
            #expect(access(target, F_OK) != 0, "\(fault)")
        }
        let lost = try desk.begin("http://127.0.0.1:1/x", [(.target, .string("\(desk.files)/lost"))])
        try desk.wait(lost, for: .failed)
        #expect(try desk.text(.error, lost).hasPrefix("network: "))
    }

    @Test("only the rest is requested after it was asked to end, and after an interruption and a crash")
    func rest() throws {
        let size = 4 << 20
        for (arguments, signal) in [
            (["--stall-sec", "600"], SIGTERM), (["--stall-sec", "1", "--attempts", "1"], SIGKILL),
        ] {
            let desk = try Desk(arguments)
            let url = desk.server.url("rest", "size=\(size)&seed=3&fault=halves")
            let path = try desk.begin(url, [(.target, .string("\(desk.files)/rest"))])
            // If the first half were requested again, half of the whole would be received again.
            for part in [size / 2, size / 4 * 3] {
                if signal == SIGKILL { try desk.wait(path, for: .failed) }
                #expect(try eventually { try desk.value(.received, path) == .uint64(UInt64(part)) })
                try desk.kill(signal)
                try desk.start()
                if signal == SIGKILL { try desk.call(.retry, path) }
            }
            try desk.wait(path, for: .finished)
            #expect(try desk.value(.status, path) == .uint32(206))
            let found = try Data(contentsOf: URL(fileURLWithPath: "\(desk.files)/rest"))
            let content = try desk.server.content("rest-whole", seed: 3, size: size)
            #expect(found == content)
        }
    }

    @Test("nothing is written through a symbolic link, and no file is replaced unasked")
    func links() throws {
        let desk = try Desk()
        let url = desk.server.url("links", "size=1000&seed=1")
        mkdir("\(desk.files)/other", 0o755)
        mkdir("\(desk.files)/real", 0o755)
        symlink("\(desk.files)/real", "\(desk.files)/link")
        symlink("\(desk.files)/other/victim", "\(desk.files)/real/dangling")
        // A link above the name is resolved when the transfer begins.
        let resolved = try desk.begin(url, [(.target, .string("\(desk.files)/link/file"))])
        #expect(try desk.text(.target, resolved) == "\(desk.files)/real/file")
        try desk.wait(resolved, for: .finished)
        for name in ["real/file", "real/dangling"] {
            #expect(throws: BusFailure.self) {
                _ = try desk.begin(url, [(.target, .string("\(desk.files)/\(name)"))])
            }
        }
        // A link that is the target itself is replaced, not followed.
        let replaced = try desk.begin(
            url, [(.target, .string("\(desk.files)/real/dangling")), (.replace, .bool(true))])
        try desk.wait(replaced, for: .finished)
        #expect(access("\(desk.files)/other/victim", F_OK) != 0)
        // One that appears later is not followed.
        let slow = desk.server.url("links-slow", "size=1000000&seed=1&fault=slow")
        let late = try desk.begin(slow, [(.target, .string("\(desk.files)/real/late"))])
        try desk.wait(late, for: .running)
        rename("\(desk.files)/real", "\(desk.files)/moved")
        symlink("\(desk.files)/other", "\(desk.files)/real")
        try desk.wait(late, for: .failed)
        #expect(try desk.text(.error, late).hasPrefix("file: "))
        #expect(try FileManager.default.contentsOfDirectory(atPath: "\(desk.files)/other") == [])
    }

    @Test("what the server answers to an upload becomes a file, and is not taken for the upload")
    func answer() throws {
        let desk = try Desk()
        let content = try desk.server.content("answered", seed: 2, size: 300_000)
        try content.write(to: URL(fileURLWithPath: "\(desk.files)/sent"))
        let path = try desk.begin(
            desk.server.url("answer", ""),
            [(.upload, .string("\(desk.files)/sent")), (.target, .string("\(desk.files)/answer"))])
        try desk.wait(path, for: .finished)
        let answer = try String(contentsOfFile: "\(desk.files)/answer", encoding: .utf8)
        let own = try Child("sha256sum", ["\(desk.files)/sent"])
        _ = try own.waitForExit()
        #expect(answer.utf8.count == 64 && own.output.hasPrefix(answer))
        for property in [TransferProperty.received, .total] {
            #expect(try desk.value(property, path) == .uint64(300_000))
        }
    }

    @Test("a file is sent, and sent again from its beginning when it was cut off")
    func upload() throws {
        let desk = try Desk()
        let content = try desk.server.content("sent", seed: 2, size: 2 << 20)
        try content.write(to: URL(fileURLWithPath: "\(desk.files)/sent"))
        let path = try desk.begin(
            desk.server.url("upload", "fault=cut"), [(.upload, .string("\(desk.files)/sent"))])
        try desk.wait(path, for: .finished)
        let sum = String(decoding: try desk.server.answer("put/upload", ""), as: UTF8.self)
        let own = try Child("sha256sum", ["\(desk.files)/sent"])
        _ = try own.waitForExit()
        #expect(!sum.isEmpty && own.output.hasPrefix(sum))
    }

    @Test("bad arguments are refused by name, and nothing has begun")
    func refused() throws {
        let desk = try Desk()
        let url = desk.server.url("refused", "size=1")
        let target = (TransferOption.target, Variant.string("\(desk.files)/refused"))
        let wrong: [(String, [(TransferOption, Variant)])] = [
            ("file:///etc/passwd", [target]), ("http:x", [target]), ("http://a b/", [target]), (url, []),
            ("http:///x", [target]), ("http://127.0.0.1:99999/x", [target]),
            (url, [(.target, .string("relative"))]), (url, [(.target, .string("/nonexistent/x"))]),
            (url, [(.target, .bool(true))]), (url, [target, (.headers, .strings(["X: a\r\nY: b"]))]),
            (url, [target, (.headers, .strings(["Range: bytes=0-"]))]),
            (url, [target, (.sha256, .string("abc"))]), (url, [target, (.application, .string("a/b"))]),
            (url, [target, target]),
        ]
        for (url, options) in wrong {
            do {
                _ = try desk.begin(url, options)
                Issue.record("\(url) \(options) has begun")
            } catch let error as BusFailure {
                #expect(error.name == ErrorName.invalidArgs.rawValue, "\(error)")
            }
        }
        let list = try desk.client.call(
            try desk.client.newCall(
                destination: TransferNames.service, path: TransferNames.root,
                interface: BusNames.objectManager, member: "GetManagedObjects"))
        var transfers = 0
        try list.withEntered(.array, "{oa{sa{sv}}}") {
            while try list.enter(.dictEntry, "oa{sa{sv}}") {
                if TransferNames.number(inPath: try list.readObjectPath()) != nil { transfers += 1 }
                try list.skip("a{sa{sv}}")
                try list.exit()
            }
        }
        #expect(transfers == 0)
    }

    @Test("a transfer that is cancelled leaves nothing behind; one that has failed can be tried again")
    func cancelled() throws {
        let desk = try Desk()
        let slow = desk.server.url("cancelled", "size=9000000&seed=1&fault=slow")
        let path = try desk.begin(slow, [(.target, .string("\(desk.files)/cancelled"))])
        try desk.wait(path, for: .running)
        try desk.call(.cancel, path)
        #expect(throws: BusFailure.self) { try desk.call(.cancel, path) }
        #expect(try eventually { try FileManager.default.contentsOfDirectory(atPath: desk.files) == [] })
        // The third request of this URL succeeds.
        let busy = desk.server.url("again", "size=1000&seed=1&fault=busy")
        try desk.kill()
        let impatient = try Desk(["--attempts", "1"])
        let again = try impatient.begin(
            busy.replacingOccurrences(of: ":\(desk.server.port)/", with: ":\(impatient.server.port)/"),
            [(.target, .string("\(impatient.files)/again"))])
        for id in ["1", "1.1"] {
            try impatient.wait(again, for: .failed)
            #expect(try impatient.text(.id, again) == id)
            try impatient.call(.retry, again)
        }
        try impatient.wait(again, for: .finished)
    }

    @Test(
        "nothing is transferred while the machine is offline, and some not while the connection is metered",
        .enabled(if: hasModules, "needs python3-dbus and python3-gi"))
    func offline() throws {
        let desk = try Desk()
        // A stand-in for NetworkManager, in a process of its own: the loop of this one waits for answers.
        let manager = try Child(
            Programs.python,
            [
                "-c",
                """
                import sys, dbus, dbus.service, dbus.mainloop.glib
                from gi.repository import GLib
                dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
                bus = dbus.SystemBus()
                name = dbus.service.BusName("org.freedesktop.NetworkManager", bus)
                values = {"State": dbus.UInt32(20), "Metered": dbus.UInt32(1)}
                class Manager(dbus.service.Object):
                    @dbus.service.method("org.freedesktop.DBus.Properties", "s", "a{sv}")
                    def GetAll(self, interface): return values
                    @dbus.service.method("org.example.Set", "su")
                    def Set(self, key, value):
                        values[key] = dbus.UInt32(value)
                        self.PropertiesChanged("org.freedesktop.NetworkManager", {key: values[key]}, [])
                    @dbus.service.signal("org.freedesktop.DBus.Properties", "sa{sv}as")
                    def PropertiesChanged(self, interface, changed, invalidated): pass
                manager = Manager(bus, "/org/freedesktop/NetworkManager")
                print("ready", flush=True)
                GLib.MainLoop().run()
                """,
            ], environment: desk.environment)
        try manager.waitForLine(containing: "ready")
        func set(_ key: String, _ value: UInt32) throws {
            let message = try desk.client.newCall(
                destination: "org.freedesktop.NetworkManager", path: "/org/freedesktop/NetworkManager",
                interface: "org.example.Set", member: "Set")
            try message.append(key)
            try message.append(value)
            _ = try desk.client.call(message)
        }
        func needs(_ path: String, _ need: TransferNeed) throws -> Bool {
            try eventually { try desk.text(.waitsFor, path) == need.rawValue }
        }
        let slow = desk.server.url("offline", "size=2000000&seed=1&fault=slow")
        let any = try desk.begin(slow, [(.target, .string("\(desk.files)/any"))])
        #expect(try needs(any, .network))
        let small = desk.server.url("metered", "size=1000&seed=1")
        let choosy = try desk.begin(
            small, [(.target, .string("\(desk.files)/choosy")), (.onlyUnmetered, .bool(true))])
        try set("State", 70)
        try desk.wait(any, for: .running)
        #expect(try needs(choosy, .unmetered))
        // It is interrupted, and goes on.
        try set("State", 20)
        #expect(try needs(any, .network))
        try set("State", 70)
        try desk.wait(any, for: .finished)
        try set("Metered", 2)
        try desk.wait(choosy, for: .finished)
    }

    @Test("appstatectl begins a transfer, and lists its progress in plain lines and in JSON")
    func command() throws {
        let desk = try Desk()
        func run(_ arguments: [String]) throws -> String {
            let child = try Child(
                Programs.built("appstatectl") ?? "appstatectl", arguments, environment: desk.environment)
            guard try child.waitForExit() == .exited(0) else { throw TestFailure(child.errors) }
            return child.output
        }
        let shown = desk.server.url("command", "size=1048576&seed=1")
        let url = shown.replacingOccurrences(of: "http://", with: "http://name:password@")
        #expect(try run(["transfer", url, "\(desk.files)/command"]) == "1\n")
        try desk.wait(TransferNames.path(of: 1), for: .finished)
        #expect(try run(["transfers"]) == "1 100% 1024 KiB of 1024 KiB finished \(desk.files)/command\n")
        let rows = try JSONSerialization.jsonObject(with: Data(try run(["transfers", "--json"]).utf8))
        let row = try #require((rows as? [[String: Any]])?.first)
        #expect(row["State"] as? String == "finished" && row["Received"] as? Int == 1_048_576)
        #expect(row["URL"] as? String == shown)
        #expect(try run(["transfer", "cancel", "1"]) == "")
        #expect(try run(["transfers", "--json"]) == "[]\n")
        let other = try Child(
            Programs.built("appstatectl") ?? "appstatectl", ["transfer", "cancel", "99"],
            environment: desk.environment)
        #expect(try other.waitForExit() == .exited(1))
        #expect(other.errors.contains("there is no transfer 99"))
    }

    @Test(
        "under faults and kills each file is whole or its error named, and no application is told twice of one end",
        .enabled(
            if: hasModules, "needs python3-dbus and python3-gi"))
    func trial() throws {
        let bus = try PrivateBus.forDaemon()
        let programs = URL(fileURLWithPath: Programs.built("appstate-transfer") ?? "")
            .deletingLastPathComponent()
        var environment = bus.environment
        environment["APPSTATED_PROGRAMS"] = programs.path
        environment["TMPDIR"] = bus.directory
        let trial = try Child(
            Programs.python, ["-B", Self.scripts + "/trial.py", "--short"], environment: environment)
        #expect(try trial.waitForExit() == .exited(0), "\(trial.errors)")
    }
}
