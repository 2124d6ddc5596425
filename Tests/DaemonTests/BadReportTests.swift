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
}
