import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// Invalid reports: each gets its own named error, and nothing changes.
@Suite("Reports that are refused", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct BadReportTests {
    private func gone() throws -> Int32 {
        let child = try Child("true")
        try child.waitForExit()
        return child.pid
    }

    @Test("SetFocus to a process that does not exist gives NoSuchProcess, and the focus stays")
    func focusOfNobody() throws {
        let stage = try Stage()
        for pid in [UInt32(try gone()), .max, 1 << 31] {
            try stage.refuses(.noSuchProcess, "pid \(pid)") {
                try stage.client.reporter("SetFocus") { try $0.append(pid) }
            }
        }
        #expect(try stage.client.state(stage.path) == "active")
    }

    @Test("SetMinimized gives NoSuchProcess for an ended process, NoSuchApplication for an unregistered one")
    func minimizedNobody() throws {
        let stage = try Stage()
        let gone = try gone()
        try stage.refuses(.noSuchProcess, "one that is gone") { try stage.client.setMinimized(gone, true) }
        try stage.refuses(.noSuchProcess, "pid 0") { try stage.client.setMinimized(0, true) }
        let stranger = try Child("sleep", ["1000"])
        try stage.refuses(.noSuchApplication, "one that is not registered") {
            try stage.client.setMinimized(stranger.pid, true)
        }
    }

    @Test(
        "a reporter can neither minimize another user's application nor report windows of it",
        .enabled(if: App.canBeOthers, App.whatOthersNeed))
    func anothersWindows() throws {
        let stage = try Stage()
        let nobody = try App(stage.daemon.bus, uid: App.nobody)
        let pid = stage.process.pid
        try stage.refuses(.noSuchApplication, "minimized by another user") {
            try nobody.reporter("SetMinimized u:\(pid) b:true")
        }
        let before = try stage.client.picture()
        try nobody.reporter("SetFocus u:\(pid)")
        try nobody.reporter("UpdateWindow t:7 u:\(pid) {minimized=b:true,focused=b:true}")
        try nobody.reporter("SetFocus u:0")
        try stage.client.settle()
        #expect(stage.client.received == [])
        #expect(try stage.client.picture() == before)
    }

    @Test("SetFocus with pid 0 takes the focus away from the active application")
    func focusOfOthers() throws {
        let stage = try Stage()
        #expect(try stage.client.state(stage.path) == "active")
        try stage.client.setFocus(0)
        try stage.client.wait(for: stage.path, toBe: "inactive")
    }

    private func wrong() -> [(String, Variant)] {
        [
            ("focused", .string("yes")), ("focused", .uint32(1)), ("visible", .int32(1)),
            ("minimized", .string("")), ("unsaved-changes", .string("yes")),
            ("title", .bool(true)), ("title", .bytes([65])), ("app-id", .objectPath("/")),
            ("app-id", .strings([])),
        ]
    }

    @Test("a window's key of a wrong type gives InvalidArgs, which names the key")
    func wrongTypes() throws {
        let stage = try Stage()
        #expect(Set(wrong().map(\.0)) == Set(WindowKeyName.allCases.map(\.rawValue)))
        for (key, value) in wrong() {
            try stage.refuses(.invalidArgs, "\(key)=\(value)") {
                do {
                    try stage.client.updateWindow(
                        7, stage.process.pid, [("visible", .bool(false)), (key, value)])
                } catch let failure as BusFailure {
                    #expect(failure.message?.contains(key) == true, "\(failure)")
                    throw failure
                }
            }
        }
    }

    @Test("an unknown key of a window gives InvalidArgs", arguments: ["colour", "", "Focused", "app_id"])
    func unknownKey(_ key: String) throws {
        let stage = try Stage()
        try stage.refuses(.invalidArgs, key) {
            try stage.client.updateWindow(
                8, stage.process.pid, [("focused", .bool(true)), (key, .bool(true))])
        }
    }

    @Test("a title or an app-id of more than a KiB gives LimitsExceeded; one of a KiB is accepted")
    func longStrings() throws {
        let stage = try Stage()
        for key in ["title", "app-id"] {
            try stage.refuses(.limitsExceeded, key) {
                try stage.client.updateWindow(
                    7, stage.process.pid, [(key, .string(String(repeating: "x", count: 1_025)))])
            }
            try stage.client.updateWindow(
                7, stage.process.pid, [(key, .string(String(repeating: "x", count: 1_024)))])
        }
    }

    @Test("UpdateWindow for a process that does not exist gives NoSuchProcess")
    func windowOfNobody() throws {
        let stage = try Stage()
        let gone = try gone()
        try stage.refuses(.noSuchProcess, "one that is gone") {
            try stage.client.updateWindow(8, gone, [("focused", .bool(true))])
        }
        try stage.refuses(.noSuchProcess, "pid 0") { try stage.client.updateWindow(8, 0, []) }
    }

    @Test("RemoveWindow of a window that was never reported changes nothing and is not an error")
    func unknownWindow() throws {
        let stage = try Stage()
        let before = try stage.client.picture()
        try stage.client.reporter("RemoveWindow") { try $0.append(UInt64(99)) }
        // Each connection has its own numbers: 7 is another window here.
        let other = try stage.daemon.client()
        try other.reporter("RemoveWindow") { try $0.append(UInt64(7)) }
        try stage.client.settle()
        #expect(stage.client.received == [])
        #expect(try stage.client.picture() == before)
    }

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

    @Test("ReplaceWindows is applied completely or not at all")
    func replaceAll() throws {
        let stage = try Stage()
        let pid = UInt32(stage.process.pid)
        try stage.refuses(.invalidArgs, "a number twice") {
            try replace(stage.client, [(1, pid, []), (1, pid, [])])
        }
        try stage.refuses(.invalidArgs, "pid 0") { try replace(stage.client, [(1, pid, []), (2, 0, [])]) }
        try stage.refuses(.invalidArgs, "an unknown key in the last") {
            try replace(stage.client, [(1, pid, []), (2, pid, [("colour", .bool(true))])])
        }
        try stage.refuses(.invalidArgs, "a wrong type in the last") {
            try replace(stage.client, [(1, pid, []), (2, pid, [("focused", .string("yes"))])])
        }
        try stage.refuses(.limitsExceeded, "more windows than a message may have") {
            try replace(stage.client, (0..<4_097).map { (UInt64($0), pid, []) })
        }
    }

    @Test("ReplaceWindows leaves out windows of ended processes and applies the others")
    func replaceWithGone() throws {
        let stage = try Stage()
        try replace(
            stage.client,
            [(1, UInt32(try gone()), [("focused", .bool(true))]), (2, UInt32(stage.process.pid), [])])
        try stage.client.wait(for: stage.path, toBe: "inactive")
        guard case .strings(let windows)? = try stage.client.explain(stage.path)["windows"] else {
            Issue.record("Explain has no windows")
            return
        }
        #expect(windows.contains { $0.hasPrefix("2 of ") })
        #expect(!windows.contains { $0.hasPrefix("1 of ") })
    }

    @Test("a session that logind does not know gives InvalidArgs")
    func unknownSession() throws {
        let stage = try Stage()
        for session in ["no-such-session", "", "../c1", String(repeating: "x", count: 2_000)] {
            try stage.refuses(.invalidArgs, "session \(session)") {
                try stage.client.reporter("SetSession") { try $0.append(session) }
            }
        }
    }

    @Test("a message with the wrong signature for its method gives InvalidArgs")
    func malformedMessages() throws {
        let stage = try Stage()
        for member in [
            "SetFocus", "SetMinimized", "UpdateWindow", "RemoveWindow", "ReplaceWindows", "SetSession",
        ] {
            try stage.refuses(.invalidArgs, "\(member) without arguments") {
                try stage.client.reporter(member)
            }
            try stage.refuses(.invalidArgs, "\(member) with a double") {
                try stage.client.reporter(member) { try $0.append(0.5) }
            }
        }
        try stage.refuses(.invalidArgs, "SetFocus of type s") {
            try stage.client.reporter("SetFocus") { try $0.append("\(stage.process.pid)") }
        }
        try stage.refuses(.invalidArgs, "SetFocus of type i") {
            try stage.client.reporter("SetFocus") { try $0.append(stage.process.pid) }
        }
        try stage.refuses(.invalidArgs, "SetMinimized without the flag") {
            try stage.client.reporter("SetMinimized") { try $0.append(UInt32(stage.process.pid)) }
        }
    }
}
