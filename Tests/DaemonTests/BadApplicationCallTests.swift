import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Calls on applications that are invalid or that the caller may not make: each gets its own named error, and nothing
/// changes.
@Suite(
    "Calls on applications that are refused",
    .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct BadApplicationCallTests {
    /// Every method, with valid arguments.
    private var methods: [(String, (borrowing Message) throws -> Void)] {
        [
            ("FinishLaunching", { _ in }), ("BecomeDelegate", { _ in }),
            ("Acknowledge", { try $0.append(UInt64(1)) }),
            ("BeginBackgroundTask", { try $0.append("upload") }), ("AnswerPings", { _ in }),
            (
                "BeginContinuedTask",
                { message in
                    try message.append("export")
                    try message.appendDictionary([("total", .uint64(1))])
                }
            ),
            (
                "ScheduleLaunch",
                { message in
                    try message.append("time")
                    try message.appendDictionary([("after", .uint64(1))])
                }
            ),
            ("CancelLaunch", { try $0.append("name") }),
            ("SetUnsavedChanges", { try $0.append(true) }),
            ("SaveState", { try $0.append(bytes: [1, 2]) }), ("LoadState", { _ in }),
            ("SaveStateFile", { try $0.append(descriptor: STDIN_FILENO) }), ("LoadStateFile", { _ in }),
            (
                "SetTaskProgress",
                { message in
                    try message.append(UInt64(1))
                    try message.append(UInt64(1))
                }
            ),
            ("CancelTask", { try $0.append(UInt64(1)) }),
            ("EndBackgroundTask", { try $0.append(UInt64(1)) }), ("BackgroundTimeRemaining", { _ in }),
            ("Configure", { try $0.appendDictionary([]) }),
            ("Suspend", { _ in }), ("Resume", { _ in }), ("Toggle", { try $0.appendDictionary([]) }),
            ("ListObjections", { _ in }),
            ("Terminate", { try $0.append(true) }), ("Unregister", { _ in }), ("Explain", { _ in }),
            ("Activate", { try $0.appendDictionary([]) }), ("ListWindows", { _ in }),
            (
                "Inhibit",
                { message in
                    try message.append("make")
                    try message.append("a build")
                }
            ),
        ]
    }

    private var sendingMethods: [(String, (borrowing Message) throws -> Void)] {
        [
            (
                "Open",
                { message in
                    try message.append(strings: ["https://example.org"])
                    try message.appendDictionary([])
                }
            ),
            (
                "SendMessage",
                { message in
                    try message.append("hello")
                    try message.appendDictionary([])
                }
            ),
            (
                "SetUserActivity",
                { message in
                    try message.append("org.example.editing")
                    try message.appendDictionary([])
                }
            ),
            (
                "ContinueActivity",
                { message in
                    try message.append("org.example.editing")
                    try message.appendDictionary([])
                }
            ),
        ]
    }

    @Test(
        "every method and property of an object that does not exist gives NoSuchApplication",
        arguments: ["99", "01", "0", "4294967296", "x", "1x", "_31"])
    func noSuchObject(_ name: String) throws {
        let stage = try Stage()
        let path = "\(BusNames.applications)/\(name)"
        for (member, body) in methods + sendingMethods {
            try stage.refuses(.noSuchApplication, "\(member) on \(path)") {
                try stage.client.call(path, BusNames.application, member, body)
            }
        }
        try stage.refuses(.noSuchApplication, "State of \(path)") { _ = try stage.client.state(path) }
        try stage.refuses(.noSuchApplication, "GetAll of \(path)") {
            try stage.client.call(path, BusNames.properties, "GetAll") { try $0.append(BusNames.application) }
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
    func strangePaths() throws {
        let stage = try Stage()
        let client = stage.client
        for path in ["/", "/org", "/org/appstate1/Application/1", "/other"] {
            try stage.refuses(ErrorName.unknownObject, path) { try client.application(path, "Suspend") }
        }
        try stage.refuses(ErrorName.unknownMethod, "a method of nobody's") {
            try client.application(stage.path, "Freeze")
        }
        try stage.refuses(ErrorName.unknownMethod, "the parent of all applications, which is none") {
            try client.application(BusNames.applications, "Suspend")
        }
        try stage.refuses(ErrorName.unknownMethod, "the Manager's method on an application") {
            try client.call(stage.path, BusNames.manager, "ListApplications")
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

    @Test(
        "the delegate's methods give NotDelegate to every other caller, including root",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func delegateMethods() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let path = try nobody.register()
        let calls: [(String, (borrowing Message) throws -> Void)] = Array(methods.prefix(10))
        for (member, body) in calls {
            try stage.refuses(.notDelegate, "\(member) by root, of nobody's") {
                try stage.client.call(path, BusNames.application, member, body)
            }
            try stage.refuses(.notDelegate, "\(member) by another process of root's") {
                try stage.client.call(stage.path, BusNames.application, member, body)
            }
        }
    }

    @Test("a serial that no signal carried gives InvalidArgs, a task that does not run NoSuchTask")
    func unknownNumbers() throws {
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
        try stage.refuses(.noSuchTask, "task 1, which was never begun") {
            try app.application(path, "EndBackgroundTask t:1")
        }
        let task = try app.application(path, "BeginBackgroundTask s:upload")
        try app.application(path, "EndBackgroundTask t:\(task)")
        for wrong in [task, "0", "\(UInt64.max)"] {
            for words in [
                "EndBackgroundTask t:\(wrong)", "CancelTask t:\(wrong)", "SetTaskProgress t:\(wrong) t:1",
            ] {
                try stage.refuses(.noSuchTask, words) { try app.application(path, words) }
            }
        }
        try stage.refuses(.limitsExceeded, "a name of more than a KiB") {
            try app.application(path, "BeginBackgroundTask s:\(String(repeating: "x", count: 1_025))")
        }
    }

    @Test("requests without a recipient are refused, and so are invalid URLs, ids and sessions")
    func sent() throws {
        let stage = try Stage()
        let errors: [String: ErrorName] = [
            // There is no delegate, and no session agent in its place.
            "Open": .noSessionAgent, "SendMessage": .notSupported, "ContinueActivity": .notSupported,
            "SetUserActivity": .notDelegate,
        ]
        for (member, body) in sendingMethods {
            try stage.refuses(try #require(errors[member]), member) {
                try stage.client.call(stage.path, BusNames.application, member, body)
            }
        }
        for urls in [[], ["/tmp/file"], ["no:blank here"], [":"], ["https:"], ["https://example.org", ""]] {
            try stage.refuses(.invalidArgs, "Open of \(urls)") {
                try stage.client.application(stage.path, "Open") {
                    try $0.append(strings: urls)
                    try $0.appendDictionary([])
                }
            }
        }
        try stage.refuses(.limitsExceeded, "SendMessage of 64 KiB") {
            try stage.client.application(stage.path, "SendMessage") {
                try $0.append("hello")
                try $0.appendDictionary([("text", .bytes([UInt8](repeating: 0, count: 65_537)))])
            }
        }
        for (id, error) in [("org.example.Other", ErrorName.noSessionAgent), ("org/example", .invalidArgs)] {
            try stage.refuses(error, "Launch of \(id)") {
                try stage.client.manager("Launch") { message in
                    try message.append(id)
                    try message.appendDictionary([])
                }
            }
        }
        for member in ["GetHistory", "ForgetApplication"] {
            try stage.refuses(.notSupported, "\(member) without STATE_DIRECTORY") {
                try stage.client.manager(member) { try $0.append("org.example.Editor") }
            }
            try stage.refuses(.invalidArgs, "\(member) of no id") {
                try stage.client.manager(member) { try $0.append("org/example") }
            }
        }
        try stage.refuses(.invalidArgs, "RegisterLauncher of no session") {
            try stage.client.manager("RegisterLauncher") { try $0.append("c1") }
        }
    }

    @Test("a message with the wrong signature for its method gives InvalidArgs")
    func malformedMessages() throws {
        let stage = try Stage()
        for (member, _) in methods + sendingMethods {
            try stage.refuses(.invalidArgs, "\(member) with a double") {
                try stage.client.application(stage.path, member) { try $0.append(0.5) }
            }
        }
        for member in [
            "Acknowledge", "BeginBackgroundTask", "EndBackgroundTask", "Terminate", "SaveState", "Open",
        ] {
            try stage.refuses(.invalidArgs, "\(member) without arguments") {
                try stage.client.application(stage.path, member)
            }
        }
        try stage.refuses(.invalidArgs, "Terminate of type u") {
            try stage.client.application(stage.path, "Terminate") { try $0.append(UInt32(1)) }
        }
    }
}
