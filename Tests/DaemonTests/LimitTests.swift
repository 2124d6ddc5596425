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

    @Test("a user's background tasks are limited, and one that ends makes room")
    func tasks() throws {
        let stage = try Stage(configuration: "[Limits]\nBackgroundTasksPerUser=2\n")
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
}
