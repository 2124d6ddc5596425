import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// What clients have the daemon keep goes into messages to others, and stays in memory: it is bounded, and no message
/// becomes one that the bus does not take.
@Suite(
    "Values that are kept for clients",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct KeptValueTests {
    private static let limitsExceeded = ErrorName.limitsExceeded.rawValue

    /// A value of this many containers of one kind, one in the other.
    private func nested(_ kind: String, _ depth: Int) -> Variant {
        (1..<depth).reduce(Variant.dictionary(["x": .bool(true)])) { inner, _ in
            switch kind {
            case "dictionary": .dictionary(["x": inner])
            case "array": .array(inner.signature, [inner])
            case "structure": .structure([inner])
            default: .array("v", [.variant(inner)])
            }
        }
    }

    /// Every message that launch options go into.
    private func readAll(_ client: Client, _ path: String) throws {
        try client.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        try client.call(path, BusNames.properties, "GetAll") { try $0.append(BusNames.application) }
        try client.call(path, BusNames.properties, "GetAll") { try $0.append("") }
        _ = try client.property(path, "LaunchOptions")
        _ = try client.explain(path)
        try client.settle()
    }

    @Test(
        "launch options nested as deep as is allowed can be read, deeper ones are refused, and the daemon lives",
        arguments: ["dictionary", "array", "structure", "variant"])
    func depth(_ kind: String) throws {
        let daemon = try TestDaemon()
        // Follows objects: it is sent InterfacesAdded and WillFinishLaunching, too.
        let client = try daemon.subscriber()
        let process = try Child("sleep", ["1000"])
        for depth in 1...Variant.greatestDepth - 1 {
            let options = nested(kind, depth)
            guard case .dictionary = options else {
                // Inside of the options, which are a level.
                try register(client, process, .dictionary(["x": options]), isTaken: depth < 8)
                continue
            }
            try register(client, process, options, isTaken: depth <= 8)
        }
        #expect(try client.list() == [])
        #expect(daemon.process.advance() == nil)
    }

    /// Appends launch options of so many dictionaries, as whoever means harm does: our own layer refuses to.
    private func appendNested(_ depth: Int, to message: borrowing Message) throws {
        try message.withContainer(.dictEntry, "sv") {
            try message.append(depth == 0 ? "x" : "launch-options")
            if depth == 0 {
                try message.withContainer(.variant, "b") { try message.append(true) }
                return
            }
            try message.withContainer(.variant, "a{sv}") {
                try message.withContainer(.array, "{sv}") { try appendNested(depth - 1, to: message) }
            }
        }
    }

    @Test("launch options as deep as the bus lets through do not end the daemon")
    func deepest() throws {
        let daemon = try TestDaemon()
        let process = try Child("sleep", ["1000"])
        for depth in 15...20 {
            // The bus ends connections that go too far.
            let client = try daemon.client()
            let error = client.error {
                try client.manager("Register") { message in
                    try message.append("org.example.App")
                    try message.append(UInt32(process.pid))
                    try message.withContainer(.array, "{sv}") { try appendNested(depth, to: message) }
                }
            }
            #expect(error != nil, "\(depth)")
            let other = try daemon.client()
            try other.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
            #expect(try other.list() == [])
        }
        #expect(daemon.process.advance() == nil)
        #expect(!daemon.process.errors.contains("disconnected"))
    }

    private func register(_ client: Client, _ process: Child, _ options: Variant, isTaken: Bool) throws {
        var path: String?
        // What the bus does not let through is not ours to refuse.
        let error = client.error {
            path = try client.register("org.example.App", process.pid, [("launch-options", options)])
        }
        guard let path else {
            #expect(!isTaken, "depth \(options.depth): \(error ?? "")")
            #expect(error == Self.limitsExceeded, "depth \(options.depth)")
            return
        }
        #expect(isTaken, "depth \(options.depth)")
        try readAll(client, path)
        try client.application(path, "Unregister")
        try client.settle()
    }

    @Test("an empty array is as deep as its type")
    func emptyArray() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        for (element, isTaken) in [
            ("aaaaaas", true), ("aaaaaaas", false), ("a(a(a(s)))", true), ("a{sa{sa{sa{sas}}}}", true),
            ("(((((((s)))))))", false),
        ] {
            let options = Variant.dictionary(["x": .array(element, [])])
            try register(client, process, options, isTaken: isTaken)
        }
    }

    @Test("more than 1,024 values in launch options are refused")
    func values() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        for (count, isTaken) in [(500, true), (1_100, false)] {
            let options = Variant.dictionary([
                "x": .array("y", []), "y": .strings(Array(repeating: "", count: count)),
            ])
            try register(client, process, options, isTaken: isTaken)
        }
    }

    @Test("the launch options of all of a user's applications are bounded, and one that ends makes room")
    func launchOptionsOfUser() throws {
        let stage = try Stage()
        let client = stage.client
        let processes = try (0..<18).map { _ in try Child("sleep", ["1000"]) }
        let options: [(String, Variant)] = [
            ("launch-options", .dictionary(["x": .bytes([UInt8](repeating: 0, count: 60_000))]))
        ]
        var paths: [String] = []
        for process in processes.prefix(17) {
            paths.append(try client.register("org.example.App", process.pid, options))
        }
        let last = processes[17].pid
        try stage.refuses(.limitsExceeded, "the eighteenth") {
            try client.register("org.example.App", last, options)
        }
        // Without options it may.
        let path = try client.register("org.example.App", last)
        try client.application(path, "Unregister")
        try client.application(paths[0], "Unregister")
        try client.register("org.example.App", last, options)
    }

    @Test("text that a user has the daemon keep is bounded: modes, tasks, titles")
    func text() throws {
        let stage = try Stage(configuration: "[Limits]\nStringBytes=30000\n")
        let client = stage.client
        let app = try App(stage.daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        // All of the 1 MiB but 24,576 bytes, and what the stage has said; 64 KB a call.
        let modes = (0..<4).map { "\($0)" + String(repeating: "m", count: 15_999) }
        let processes = try (0..<16).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes.map {
            try client.register("org.example.Modes", $0.pid, [("background-modes", .strings(modes))])
        }
        let long = String(repeating: "t", count: 25_000)
        try stage.client.settle()
        try stage.refuses(.limitsExceeded, "a task") {
            try app.application(path, "BeginBackgroundTask s:\(long)")
        }
        try stage.refuses(.limitsExceeded, "a title") {
            try client.updateWindow(8, stage.process.pid, [("title", .string(long))])
        }
        let next = try Child("sleep", ["1000"])
        try stage.refuses(.limitsExceeded, "a mode") {
            try client.register("org.example.B", next.pid, [("background-modes", .strings([long]))])
        }
        for path in paths.prefix(2) { try client.application(path, "Unregister") }
        try app.application(path, "BeginBackgroundTask s:\(long)")
        try client.updateWindow(8, stage.process.pid, [("title", .string(long))])
        try client.register("org.example.B", next.pid, [("background-modes", .strings([long]))])
    }

    @Test("an error message repeats little of what it is about, whatever that is made of")
    func errorMessages() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        // One character to Swift.
        let long = "e" + String(repeating: "\u{301}", count: 15_000)
        let calls: [() throws -> Void] = [
            { try client.register(long, process.pid) },
            { try client.register("org.example.App", process.pid, [(long, .bool(true))]) },
            { try client.register("org.example.App", process.pid, [("suspension", .string(long))]) },
            { try client.updateWindow(1, process.pid, [(long, .bool(true))]) },
        ]
        for call in calls {
            do {
                try call()
                Issue.record("was not refused")
            } catch let failure as BusFailure {
                #expect((failure.message?.utf8.count ?? 0) < 1_024)
            }
        }
    }

    @Test(
        "another user doing the worst to it does not end it",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func attack() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let attacker = try App(daemon.bus, uid: App.nobody)
        let before = try daemon.anonymousMemory()
        let children = try (0..<40).map { _ in try attacker.make("fork") }
        // Whoever leaves too much unread is not answered any more: nothing is waited for.
        var registrations: [Int] = []
        for round in 0..<3 {
            for (index, child) in children.enumerated() {
                for value in ["nested:\(index % 16 + 1)", "large:\(64_000 - round)"] {
                    registrations.append(
                        try attacker.begin(
                            "\(BusNames.root) \(BusNames.manager) Register s:org.example.Attack u:\(child) {launch-options=\(value)}"
                        ))
                }
                for _ in 0..<3 {
                    _ = try attacker.begin("\(BusNames.root) \(BusNames.objectManager) GetManagedObjects")
                    _ = try attacker.begin("\(BusNames.root) \(BusNames.manager) ListApplications")
                }
            }
        }
        try client.wait("a registration") {
            registrations.contains { attacker.answer(to: $0)?.hasPrefix("ok") == true }
        }
        try client.call(BusNames.root, BusNames.objectManager, "GetManagedObjects")
        #expect(daemon.process.advance() == nil)
        #expect(try daemon.anonymousMemory() - before < 64 << 10)
        #expect(!daemon.process.errors.contains("disconnected"))
    }
}
