import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// A call that exceeds a limit gets LimitsExceeded, and nothing changes.
@Suite("Limits", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct LimitTests {
    @Test("a user's applications are limited, and one that ends makes room")
    func applications() throws {
        let stage = try Stage(configuration: "[Limits]\nApplicationsPerUser=2\n")
        let client = stage.client
        let children = try (0..<3).map { _ in try Child("sleep", ["1000"]) }
        let path = try client.register("org.example.A", children[0].pid)
        try stage.refuses(.limitsExceeded, "the third") {
            try client.register("org.example.B", children[1].pid)
        }
        children[0].kill(SIGKILL)
        try client.waitForRemoval(of: path)
        try client.register("org.example.B", children[1].pid)
        try stage.refuses(.limitsExceeded, "the fourth") {
            try client.register("org.example.C", children[2].pid)
        }
    }

    @Test("applications are counted for each user", .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func applicationsOfOthers() throws {
        let stage = try Stage(configuration: "[Limits]\nApplicationsPerUser=1\n")
        let first = try App(stage.daemon.bus, uid: App.nobody)
        let second = try App(stage.daemon.bus, uid: App.nobody)
        _ = try first.register()
        try stage.client.settle()
        try stage.refuses(.limitsExceeded, "nobody's second") { _ = try second.register() }
        // The owner of the process counts, not the caller.
        try stage.refuses(.limitsExceeded, "nobody's second, by root") {
            try stage.client.register("org.example.App", second.pid)
        }
    }

    @Test("a user's subscribers are limited, and one that unsubscribes or leaves makes room")
    func subscribers() throws {
        let stage = try Stage(configuration: "[Limits]\nSubscribersPerUser=2\n")
        let app = try App(stage.daemon.bus)
        try app.manager("Subscribe")
        try app.manager("Subscribe")
        let third = try stage.daemon.client()
        try stage.refuses(.limitsExceeded, "the third") { try third.manager("Subscribe") }
        try app.manager("Unsubscribe")
        try third.manager("Subscribe")
        try stage.refuses(.limitsExceeded, "the one that was") { try app.manager("Subscribe") }
        try third.manager("Unsubscribe")
        try app.manager("Subscribe")
        let name = try app.ask("name")
        try stage.client.waitForDeparture(of: name) { app.tell("exit 0") }
        try third.manager("Subscribe")
    }

    @Test("a user's windows are limited, whichever reporter reports them")
    func windows() throws {
        // The stage has one window reported by number, and the process as a whole.
        let stage = try Stage(configuration: "[Limits]\nWindowsPerUser=3\n")
        let pid = stage.process.pid
        var taken = 0
        var error: String?
        for number in UInt64(100)...200 where error == nil {
            error = stage.client.error { try stage.client.updateWindow(number, pid, []) }
            if error == nil { taken += 1 }
        }
        #expect(error == ErrorName.limitsExceeded.rawValue)
        #expect((1...2).contains(taken))
        // A known window may still change.
        try stage.client.updateWindow(7, pid, [("title", .string("Saved"))])
        try stage.client.reporter("RemoveWindow") { try $0.append(UInt64(100)) }
        try stage.client.updateWindow(300, pid, [])
        try stage.client.settle()
        let other = try stage.daemon.client()
        try stage.refuses(.limitsExceeded, "another reporter's") { try other.updateWindow(1, pid, []) }
    }

    @Test("a reporter's windows are limited")
    func windowsOfReporter() throws {
        let stage = try Stage()
        let stranger = try Child("sleep", ["1000"])
        let pid = UInt32(stranger.pid)
        func replace(_ count: UInt64, _ state: [(String, Variant)] = []) throws {
            try stage.client.reporter("ReplaceWindows") { message in
                try message.withContainer(.array, "(tua{sv})") {
                    for number in 0..<count {
                        try message.withContainer(.struct, "tua{sv}") {
                            try message.append(number)
                            try message.append(pid)
                            try message.appendDictionary(state)
                        }
                    }
                }
            }
        }
        try stage.refuses(.limitsExceeded, "1025") { try replace(1_025) }
        try replace(1_024)
        let flags = ["focused", "visible", "minimized", "unsaved-changes"]
        let texts = ["title", "app-id"]
        let state =
            flags.map { ($0, Variant.bool(false)) }
            + texts.map { ($0, Variant.string(String(repeating: "x", count: 300))) }
        try replace(1_024, state)
        let many = (0..<17).map { ("\($0)", Variant.bool(false)) }
        try stage.refuses(.invalidArgs, "17 keys") { try replace(1, many) }
        let empty = Variant.array("as", Array(repeating: .strings([]), count: 60_000))
        try stage.refuses(.invalidArgs, "60,000 arrays") { try replace(1, [("title", empty)]) }
        let numbers = Variant.array("n", Array(repeating: .int16(0), count: 60_000))
        try stage.refuses(.invalidArgs, "60,000 numbers") { try replace(1, [("title", numbers)]) }
    }

    @Test(
        "a descendant reported by SetFocus or SetMinimized counts as a window"
    )
    func wholeProcesses() throws {
        let daemon = try TestDaemon(configuration: "[Limits]\nWindowsPerUser=256\n")
        let client = try daemon.client()
        let before = try daemon.heldProcesses()
        // The shell's children belong to its application.
        let shell = try Child(
            "sh", ["-c", "for i in $(seq 300); do sleep 1000 & echo \"child $!\"; done; echo end; wait"])
        try shell.waitForLine(containing: "end")
        let children = shell.output.split(separator: "\n").compactMap { line in
            line.hasPrefix("child ") ? Int32(line.dropFirst(6)) : nil
        }
        #expect(children.count == 300)
        defer { for child in children { kill(child, SIGKILL) } }
        let path = try client.register("org.example.App", shell.pid)
        // The daemon may still hold some of its processes, because it sets their resources.
        func waitForHeld(_ count: Int) throws {
            try client.wait("\(count) processes held") { try daemon.heldProcesses() == before + count }
        }
        var refused = 0
        for (index, child) in children.enumerated() {
            let error = client.error {
                if index % 2 == 0 {
                    try client.setFocus(child)
                } else {
                    try client.setMinimized(child, true)
                }
            }
            if let error {
                #expect(error == ErrorName.limitsExceeded.rawValue)
                refused += 1
            }
        }
        #expect(refused == 300 - 256)
        try waitForHeld(1 + 256)
        guard case .strings(let windows)? = try client.explain(path)["windows"] else {
            throw TestFailure("Explain has no windows")
        }
        #expect(windows.count == 256)
        for child in children[..<256] { kill(child, SIGKILL) }
        try waitForHeld(1)
        // There is room again.
        try client.setFocus(children[299])
    }

    @Test("a long set of windows is applied as a whole, and a connection's calls are carried out in order")
    func longSet() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let processes = try (0..<40).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes[..<20].map { try client.register("org.example.App", $0.pid) }
        func set(_ numbers: Range<UInt64>, title: String = "") throws -> Message {
            let call = try client.bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.reporter,
                member: "ReplaceWindows")
            try call.withContainer(.array, "(tua{sv})") {
                for number in numbers {
                    try call.withContainer(.struct, "tua{sv}") {
                        try call.append(number)
                        try call.append(UInt32(processes[Int(number) % 40].pid))
                        try call.appendDictionary([
                            ("visible", .bool(number % 3 == 0)), ("title", .string(title)),
                        ])
                    }
                }
            }
            return call
        }
        var answers: [String] = []
        var slots: [Slot] = []
        func begin(_ name: String, _ call: borrowing Message) throws {
            slots.append(
                try client.bus.callAsync(call, timeout: 300_000_000) { reply in
                    answers.append(name + (reply.isError ? " failed" : ""))
                })
        }
        func update(_ title: String) throws -> Message {
            let call = try client.bus.newCall(
                destination: BusNames.service, path: BusNames.root, interface: BusNames.reporter,
                member: "UpdateWindow")
            try call.append(UInt64(0))
            try call.append(UInt32(processes[0].pid))
            try call.appendDictionary([("title", .string(title)), ("focused", .bool(true))])
            return call
        }
        let list = try client.bus.newCall(
            destination: BusNames.service, path: BusNames.root, interface: BusNames.manager,
            member: "ListApplications")
        try begin("first", set(0..<600))
        try begin("early", update("early"))
        try begin("list", list)
        try begin("second", set(0..<300))
        try begin("large", set(0..<800, title: String(repeating: "x", count: 200)))
        try begin("third", set(0..<300))
        try begin("late", update("late"))
        try client.wait("the answers") { answers.count == 7 }
        #expect(answers == ["first", "early", "list", "second", "large", "third", "late"])
        guard case .strings(let windows)? = try client.explain(paths[0])["windows"] else {
            throw TestFailure("Explain has no windows")
        }
        #expect(windows.count == 8)
        #expect(windows.contains { $0.hasSuffix("focused visible \"late\"") }, "\(windows)")
        #expect(try client.property(paths[0], BusNames.application, "State") == .string("active"))
        // One window too many: the set is refused as a whole.
        try daemon.reconfigure("[Limits]\nWindowsPerUser=10\n")
        let before = try client.picture()
        let error = client.error { _ = try client.bus.call(set(0..<600), timeout: 300_000_000) }
        #expect(error == ErrorName.limitsExceeded.rawValue)
        #expect(try client.picture() == before)
    }

    @Test("a long set of exemptions is applied completely, and holds only registered processes")
    func longExemptions() throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let before = try daemon.heldProcesses()
        let processes = try (0..<40).map { _ in try Child("sleep", ["1000"]) }
        let paths = try processes[..<20].map { try client.register("org.example.App", $0.pid) }
        func replace(_ processes: some Sequence<Child>) throws {
            try client.reporter("ReplaceExemptions") { message in
                try message.withContainer(.array, "(us)") {
                    for process in processes {
                        try message.withContainer(.struct, "us") {
                            try message.append(UInt32(process.pid))
                            try message.append("audio")
                        }
                    }
                }
            }
        }
        try replace(processes)
        try client.wait("all processes held") { try daemon.heldProcesses() == before + 40 }
        for path in paths { #expect(try client.canSuspend(path).contains("reported audio")) }
        let error = client.error { try replace(Array(repeating: processes[0], count: 257)) }
        #expect(error == ErrorName.limitsExceeded.rawValue)
        try replace(processes[5..<6])
        try client.wait("the others let go") { try daemon.heldProcesses() == before + 20 }
        for (index, path) in paths.enumerated() {
            #expect(try client.canSuspend(path).contains("reported audio") == (index == 5))
        }
    }

    @Test("an application's background tasks are limited, and one that ends makes room")
    func tasks() throws {
        let stage = try Stage(configuration: "[Limits]\nBackgroundTasksPerApplication=2\n")
        let app = try App(stage.daemon.bus)
        let path = try app.register()
        try app.application(path, "FinishLaunching")
        let first = try app.application(path, "BeginBackgroundTask s:one")
        try app.application(path, "BeginBackgroundTask s:two")
        try stage.client.settle()
        try stage.refuses(.limitsExceeded, "the third") {
            try app.application(path, "BeginBackgroundTask s:three")
        }
        try app.application(path, "EndBackgroundTask t:\(first)")
        let third = try app.application(path, "BeginBackgroundTask s:three")
        #expect(third != first)
    }

    @Test("strings are limited to the bytes in the configuration")
    func strings() throws {
        let stage = try Stage()
        try stage.daemon.reconfigure("[Limits]\nStringBytes=4\n")
        try stage.client.updateWindow(7, stage.process.pid, [("title", .string("four"))])
        try stage.refuses(.limitsExceeded, "a title of five") {
            try stage.client.updateWindow(7, stage.process.pid, [("title", .string("fives"))])
        }
        // The limit counts bytes, not letters.
        try stage.refuses(.limitsExceeded, "a title of three letters") {
            try stage.client.updateWindow(7, stage.process.pid, [("title", .string("äöü"))])
        }
    }

    @Test("lowering a limit takes nothing away")
    func lowered() throws {
        let stage = try Stage()
        let child = try Child("sleep", ["1000"])
        try stage.client.register("org.example.A", child.pid)
        try stage.daemon.reconfigure(
            "[Limits]\nApplicationsPerUser=1\nSubscribersPerUser=1\nWindowsPerUser=1\n")
        #expect(try stage.client.list().count == 2)
        try stage.client.settle()
        let next = try Child("sleep", ["1000"])
        try stage.refuses(.limitsExceeded, "one more") {
            try stage.client.register("org.example.B", next.pid)
        }
    }

    @Test(
        "a message of megabytes is refused before it is decoded",
        arguments: ["as", "av", "ay", "aas", "ay, the longest"])
    func megabytes(_ kind: String) throws {
        let daemon = try TestDaemon()
        let client = try daemon.client()
        let process = try Child("sleep", ["1000"])
        let value: Variant =
            switch kind {
            case "as": .strings(Array(repeating: String(repeating: "x", count: 60), count: 50_000))
            case "aas": .array("as", Array(repeating: .strings([]), count: 200_000))
            case "av": .array("v", Array(repeating: .variant(.byte(1)), count: 200_000))
            // dbus-daemon(1): by default, a message has at most 32 MiB.
            case "ay, the longest": .bytes(Array(repeating: 0, count: 32_000_000))
            default: .bytes(Array(repeating: 0, count: 3_000_000))
            }
        let before = try daemon.anonymousMemory()
        for _ in 0..<5 {
            let error = client.error {
                try client.register(
                    "org.example.App", process.pid, [("launch-options", .dictionary(["x": value]))])
            }
            #expect(error == ErrorName.limitsExceeded.rawValue)
        }
        #expect(try client.list() == [])
        // libsystemd has freed what it received, and the heap has not kept it.
        #expect(try daemon.anonymousMemory() - before < 4_096)
    }

    @Test("the windows that one user's reporters report are limited in total")
    func windowsOfOneUser() throws {
        let daemon = try TestDaemon()
        let processes = try (0..<16).map { _ in try Child("sleep", ["1000"]) }
        let client = try daemon.client()
        for process in processes { try client.register("org.example.App", process.pid) }
        func report(_ reporter: Client, _ first: UInt64) throws {
            try reporter.reporter("ReplaceWindows") { message in
                try message.withContainer(.array, "(tua{sv})") {
                    for number in first..<(first + 1_000) {
                        try message.withContainer(.struct, "tua{sv}") {
                            try message.append(UInt64(number))
                            try message.append(UInt32(processes[Int(number % 16)].pid))
                            try message.appendDictionary([])
                        }
                    }
                }
            }
        }
        let first = try daemon.client()
        try report(first, 0)
        let second = try daemon.client()
        try report(second, 10_000)
        let third = try daemon.client()
        #expect(client.error { try report(third, 20_000) } == ErrorName.limitsExceeded.rawValue)
        // A reporter may replace its own.
        try report(second, 10_000)
    }

}

extension TestDaemon {
    /// How many processes the daemon holds by pidfd. Other descriptors come and go with each look.
    fileprivate func heldProcesses() throws -> Int {
        try descriptors().count { $0.contains("pidfd") }
    }
}
