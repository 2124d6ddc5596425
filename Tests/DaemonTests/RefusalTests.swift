import AppStateBus
import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Calls that are refused: each gets its own named error, and nothing changes. dbus/*.xml gives the methods, their
/// arguments and who may call them, so that a new method is tested without a line here.
@Suite("Refused calls", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct RefusalTests {
    private static let long = String(repeating: "x", count: 1_025)

    /// A call that must be refused with an error whose text contains this word.
    private func refuses(
        _ stage: Stage, _ error: ErrorName = .invalidArgs, naming word: String, _ what: String,
        _ call: () throws -> Void
    ) throws {
        try stage.refuses(error, "\(word): \(what)") {
            do {
                try call()
            } catch let failure as BusFailure {
                #expect(failure.message?.contains(word) == true, "\(failure)")
                throw failure
            }
        }
    }

    private func ended() throws -> Int32 {
        let child = try Child("true")
        try child.waitForExit()
        return child.pid
    }

    private func zombie() throws -> Child {
        let child = try Child("true")
        var info = siginfo_t()
        waitid(P_PID, id_t(child.pid), &info, WEXITED | WNOWAIT)
        return child
    }

    // MARK: Every method

    @Test(
        "every method and property of an object that does not exist gives NoSuchApplication",
        arguments: ["99", "01", "x"])
    func noSuchObject(_ name: String) throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        let path = "\(BusNames.applications)/\(name)"
        for method in try Description.methods(BusNames.application) {
            let words = try #require(method.words(pid: app.pid))
            try stage.refuses(.noSuchApplication, "\(words) on \(path)") {
                try app.application(path, words)
            }
        }
        try stage.refuses(.noSuchApplication, "State of \(path)") { _ = try stage.client.state(path) }
    }

    @Test("a message with the wrong signature for its method gives InvalidArgs")
    func malformed() throws {
        let stage = try Stage()
        for (interface, path) in [
            (BusNames.application, stage.path), (BusNames.manager, BusNames.root),
            (BusNames.reporter, BusNames.root),
        ] {
            for method in try Description.methods(interface) {
                try stage.refuses(.invalidArgs, "\(method.name) with a double") {
                    try stage.client.call(path, interface, method.name) { try $0.append(0.5) }
                }
                if method.arguments.isEmpty { continue }
                try stage.refuses(.invalidArgs, "\(method.name) without arguments") {
                    try stage.client.call(path, interface, method.name)
                }
            }
        }
    }

    @Test(
        "the delegate's methods give NotDelegate to every other caller, including root",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func delegateMethods() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let path = try nobody.register()
        let root = try App(stage.daemon.bus)
        let methods = try Description.methods(BusNames.application).filter {
            $0.text.contains("NotDelegate:")
        }
        #expect(methods.count > 10)
        for method in methods {
            let words = try #require(method.words(pid: root.pid))
            for other in [path, stage.path] {
                try stage.refuses(.notDelegate, "\(words) of \(other)") {
                    try root.application(other, words)
                }
            }
        }
    }

    @Test("a call on an ended application gives NoSuchApplication, and its number is not used again")
    func endedObject() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let path = try stage.client.register("org.example.Brief", child.pid)
        child.kill(SIGKILL)
        try stage.client.waitForRemoval(of: path)
        try stage.refuses(.noSuchApplication, "one that has ended") {
            try stage.client.application(path, "Suspend")
        }
        let next = try Child("sleep", ["1000"])
        #expect(try stage.client.register("org.example.Brief", next.pid) != path)
    }

    @Test("unknown paths and unknown members get the standard D-Bus errors")
    func unknown() throws {
        let stage = try Stage()
        let client = stage.client
        for path in ["/", "/org/appstate1/Application/1", "/other"] {
            try stage.refuses(ErrorName.unknownObject, path) { try client.application(path, "Suspend") }
        }
        try stage.refuses(ErrorName.unknownMethod, "a method of nobody's") {
            try client.application(stage.path, "Freeze")
        }
        try stage.refuses(ErrorName.unknownMethod, "the parent of all applications, which is none") {
            try client.application(BusNames.applications, "Suspend")
        }
        try stage.refuses(ErrorName.unknownProperty, "a property of nobody's") {
            _ = try client.property(stage.path, "Colour")
        }
        try stage.refuses(ErrorName.propertyReadOnly, "State, to be written") {
            try client.call(stage.path, BusNames.properties, "Set") { message in
                try message.append(BusNames.application)
                try message.append("State")
                try message.append(Variant.string("background"))
            }
        }
    }

    // MARK: Registration

    @Test("what cannot be an application is not registered")
    func registration() throws {
        let stage = try Stage()
        let (zombie, other) = (try self.zombie(), try Child("sleep", ["1000"]))
        for pid in [UInt32(try ended()), UInt32(zombie.pid), 1 << 31, .max] {
            try stage.refuses(.noSuchProcess, "pid \(pid)") {
                try stage.client.manager("Register") { message in
                    try message.append("org.example.App")
                    try message.append(pid)
                    try message.appendDictionary([])
                }
            }
        }
        for id in [
            "", "org/example", String(repeating: "a", count: 256), "org example", "orgé", "org\nexample", "*",
        ] {
            try stage.refuses(.invalidArgs, "id \(id)") { try stage.client.register(id, other.pid) }
        }
        try stage.refuses(.invalidArgs, "the daemon") {
            try stage.client.register("org.example.App", stage.daemon.process.pid)
        }
        // The test is its parent, not its descendant.
        try stage.refuses(.accessDenied, "delegate of another process") {
            try stage.client.register("org.example.App", other.pid, [("delegate", .bool(true))])
        }
        try stage.refuses(.alreadyRegistered, "it is registered") {
            try stage.client.register("org.example.App", stage.process.pid)
        }
        let pipe = try PipeEnds()
        try refuses(stage, naming: "not a pidfd", "a pipe") {
            try stage.client.registerProcess("org.example.App", pipe.read)
        }
        let descriptor = try PidFD(pid: zombie.pid)
        try stage.refuses(.noSuchProcess, "a zombie's pidfd") {
            try stage.client.registerProcess("org.example.App", descriptor.rawValue)
        }
        let longest = String(repeating: "a", count: 255)
        let path = try stage.client.register(longest, other.pid)
        #expect(try stage.client.property(path, "ID") == .string(longest))
    }

    @Test(
        "another user's process is registered by root only; init, kernel threads and mixed rights by nobody",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func others() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let free = try Child("sleep", ["1000"])
        for pid in [free.pid, stage.process.pid, 1] {
            try stage.refuses(.accessDenied, "pid \(pid)") {
                try nobody.manager("Register s:org.example.App u:\(pid) {}")
            }
        }
        try stage.refuses(.accessDenied, "root's pidfd") {
            try nobody.manager("RegisterProcess s:org.example.App h:\(free.pid) {}")
        }
        let proc = Proc()
        let kernel = try proc.processes().first { (try? proc.stat($0))?.isKernelThread == true }
        let mixed = try Child(
            "setpriv", ["--ruid=\(App.nobody)", "--", "sh", "-p", "-c", "echo ready; exec sleep 1000"])
        try mixed.waitForLine(containing: "ready")
        for pid in [1, kernel, mixed.pid].compactMap(\.self) {
            try stage.refuses(.invalidArgs, "pid \(pid)") {
                try stage.client.register("org.example.App", pid)
            }
        }
        let path = try stage.client.register("org.example.App", nobody.pid)
        #expect(try stage.client.property(path, "UID") == .uint32(App.nobody))
        // One that gave up root after it connected.
        let changed = try App(stage.daemon.bus)
        try changed.ask("setuid \(App.nobody)")
        try stage.refuses(.accessDenied, "delegate of another user's process") { _ = try changed.register() }
    }

    // MARK: Values

    @Test("an option of Register that is unknown, wrong or too large is refused by name")
    func options() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        let wrong: [(RegisterOption, Variant)] = [
            (.delegate, .string("true")), (.launchMode, .string("sideways")), (.suspension, .uint32(0)),
            (.suspension, .string("Automatic")), (.reclaimable, .int32(1)),
            (.backgroundModes, .string("audio")), (.backgroundModes, .array("u", [])),
            (.launchOptions, .array("{ss}", [])), (.adopted, .uint32(1)),
        ]
        #expect(Set(wrong.map(\.0)) == Set(RegisterOption.allCases))
        let large: [(RegisterOption, Variant)] = [
            (.launchOptions, .dictionary(["payload": .bytes([UInt8](repeating: 0, count: 70_000))])),
            (.backgroundModes, .strings((0...64).map { "mode\($0)" })),
            (.backgroundModes, .strings([Self.long])),
        ]
        for (option, value) in wrong {
            try refuses(stage, naming: option.rawValue, "\(value)") {
                try stage.client.register("org.example.App", child.pid, [(option.rawValue, value)])
            }
        }
        for (option, value) in large {
            try stage.refuses(.limitsExceeded, option.rawValue) {
                try stage.client.register("org.example.App", child.pid, [(option.rawValue, value)])
            }
        }
        for key in ["colour", "Delegate"] {
            try refuses(stage, naming: "\"\(key)\"", "unknown") {
                try stage.client.register("org.example.App", child.pid, [(key, .bool(true))])
            }
        }
    }

    @Test("an entry of a rule that is unknown, wrong or too large is refused by name, and the rule stays")
    func rules() throws {
        let stage = try Stage()
        func configure(_ key: String, _ value: Variant) throws {
            try stage.client.application(stage.path, "Configure") { try $0.appendDictionary([(key, value)]) }
        }
        try stage.client.application(stage.path, "Configure") {
            try $0.appendDictionary([("rule", .string("mine")), ("suspension", .string("never"))])
        }
        let wrong: [(RuleKey, Variant)] = [
            (.rule, .bool(true)), (.suspension, .string("often")), (.reclaimable, .string("yes")),
            (.backgroundGrace, .uint32(5)), (.keepWhile, .string("audio")), (.keepWhile, .strings(["Audio"])),
            (.drainEvery, .string("5")), (.drainFor, .uint64(.max)), (.suspendWhen, .string("active")),
            (.unsavedMark, .string("yes")), (.relaunchReclaimed, .string("yes")),
            (.backgroundCPUQuota, .uint32(0)), (.backgroundCPUQuota, .uint32(1_000_001)),
        ]
        #expect(Set(wrong.map(\.0)) == Set(RuleKey.allCases))
        for (key, value) in wrong {
            try refuses(stage, naming: key.rawValue, "\(value)") { try configure(key.rawValue, value) }
        }
        try refuses(stage, naming: "colour", "unknown") { try configure("colour", .bool(true)) }
        for (key, value) in [
            ("rule", .string(Self.long)), ("keep-while", .strings(Array(repeating: "x", count: 65))),
        ] as [(String, Variant)] {
            try stage.refuses(.limitsExceeded, key) { try configure(key, value) }
        }
        #expect(try stage.client.explain(stage.path)["rule"] == .string("mine"))
        #expect(try stage.client.explain(stage.path)["suspension"] == .string("never"))
    }

    @Test("a serial that no signal carried gives InvalidArgs, a task that does not run NoSuchTask")
    func numbers() throws {
        let stage = try Stage()
        let app = try App(stage.daemon.bus)
        let path = try app.register("org.example.Actor", "launch-mode=s:background,suspension=s:manual")
        try app.application(path, "FinishLaunching")
        let serial = try #require(UInt64(try app.last("DidEnterBackground", of: path).first ?? ""))
        for wrong in [serial + 1, UInt64.max] {
            try stage.refuses(.invalidArgs, "serial \(wrong)") {
                try app.application(path, "Acknowledge t:\(wrong)")
            }
        }
        let task = try app.application(path, "BeginBackgroundTask s:upload")
        try app.application(path, "EndBackgroundTask t:\(task)")
        for wrong in [task, "0", "\(UInt64.max)"] {
            for call in [
                "EndBackgroundTask t:\(wrong)", "CancelTask t:\(wrong)", "SetTaskProgress t:\(wrong) t:1",
            ] {
                try stage.refuses(.noSuchTask, call) { try app.application(path, call) }
            }
        }
        try stage.refuses(.limitsExceeded, "a name of more than a KiB") {
            try app.application(path, "BeginBackgroundTask s:\(Self.long)")
        }
    }

    @Test("what has no recipient is refused, and so are invalid URLs, ids and sessions")
    func sent() throws {
        let stage = try Stage()
        func application(
            _ error: ErrorName, _ member: String, _ word: String, _ options: [(String, Variant)] = []
        ) throws {
            try stage.refuses(error, "\(member) \(word)") {
                try stage.client.application(stage.path, member) { message in
                    if member == "Open" {
                        try message.append(strings: word.split(separator: " ").map(String.init))
                    } else {
                        try message.append(word)
                    }
                    try message.appendDictionary(options)
                }
            }
        }
        // There is no delegate, and no session agent in its place.
        try application(.noSessionAgent, "Open", "https://example.org")
        try application(.notSupported, "SendMessage", "hello")
        try application(.notSupported, "ContinueActivity", "org.example.editing")
        for urls in ["", "/tmp/file", ":", "https:"] { try application(.invalidArgs, "Open", urls) }
        let large = [UInt8](repeating: 0, count: 65_537)
        try application(.limitsExceeded, "SendMessage", "hello", [("text", .bytes(large))])
        for (member, id, error) in [
            ("Launch", "org.example.Other", .noSessionAgent), ("Launch", "org/example", .invalidArgs),
            ("GetHistory", "org.example.Editor", .notSupported), ("GetHistory", "org/example", .invalidArgs),
            ("ForgetApplication", "org.example.Editor", .notSupported),
            ("ForgetApplication", "org/example", .invalidArgs), ("RegisterLauncher", "c1", .invalidArgs),
        ] as [(String, String, ErrorName)] {
            try stage.refuses(error, "\(member) \(id)") {
                try stage.client.manager(member) { message in
                    try message.append(id)
                    if member == "Launch" { try message.appendDictionary([]) }
                }
            }
        }
    }

    // MARK: Reports

    private func replace(_ client: Client, _ rows: [(UInt64, UInt32, [(String, Variant)])]) throws {
        try client.reporter("ReplaceWindows") { message in
            try message.withContainer(.array, "(tua{sv})") {
                for row in rows {
                    try message.withContainer(.struct, "tua{sv}") {
                        try message.append(row.0)
                        try message.append(row.1)
                        try message.appendDictionary(row.2)
                    }
                }
            }
        }
    }

    @Test("a report about nobody, of a wrong type or of an unknown session is refused, and the windows stay")
    func reports() throws {
        let stage = try Stage()
        let (client, pid) = (stage.client, UInt32(stage.process.pid))
        let gone = try ended()
        for wrong in [UInt32(gone), .max] {
            try stage.refuses(.noSuchProcess, "SetFocus \(wrong)") {
                try client.reporter("SetFocus") { try $0.append(wrong) }
            }
        }
        let stranger = try Child("sleep", ["1000"])
        for (wrong, error) in [(gone, .noSuchProcess), (stranger.pid, .noSuchApplication)]
            as [(Int32, ErrorName)]
        {
            try stage.refuses(error, "SetMinimized \(wrong)") { try client.setMinimized(wrong, true) }
        }
        let wrong: [(WindowKeyName, Variant)] = [
            (.focused, .string("yes")), (.visible, .int32(1)), (.minimized, .string("")),
            (.unsavedChanges, .string("yes")), (.title, .bytes([65])), (.appID, .objectPath("/")),
        ]
        #expect(Set(wrong.map(\.0)) == Set(WindowKeyName.allCases))
        for (key, value) in wrong {
            try refuses(stage, naming: key.rawValue, "\(value)") {
                try client.updateWindow(
                    7, stage.process.pid, [("visible", .bool(false)), (key.rawValue, value)])
            }
        }
        for rows in [
            [(1, pid, []), (1, pid, [])], [(1, pid, []), (2, 0, [])],
            [(1, pid, []), (2, pid, [("colour", .bool(true))])],
        ] as [[(UInt64, UInt32, [(String, Variant)])]] {
            try stage.refuses(.invalidArgs, "\(rows)") { try replace(client, rows) }
        }
        try stage.refuses(.limitsExceeded, "more windows than a message may have") {
            try replace(client, (0..<4_097).map { (UInt64($0), pid, []) })
        }
        for session in ["no-such-session", "", "../c1", Self.long] {
            try stage.refuses(.invalidArgs, "session \(session)") {
                try client.reporter("SetSession") { try $0.append(session) }
            }
        }
        // Windows of ended processes are left out.
        try replace(client, [(1, UInt32(gone), [("focused", .bool(true))]), (2, pid, [])])
        try client.wait(for: stage.path, toBe: "inactive")
    }
}
