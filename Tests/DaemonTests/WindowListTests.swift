import AppStateBus
import AppStateContract
import Glibc
import TestSupport
import Testing

/// ListWindows, WindowsChanged, Activate, and the properties that say what an application is and what awaits it.
@Suite("Windows of applications", .enabled(if: App.isAvailable, Comment(rawValue: TestDaemon.whatIsMissing)))
struct WindowListTests {
    /// The windows of an application, as `number state title`, and `minimized` if they are.
    private func windows(_ client: Client, _ path: String) throws -> [String] {
        let reply = try client.call(path, BusNames.application, "ListWindows")
        var rows: [String] = []
        try reply.withEntered(.array, "a{sv}") {
            while !reply.atEnd {
                let window = Dictionary(try reply.readDictionary().map { ($0.key, $0.value) }) { $1 }
                guard case .uint64(let number)? = window["window"],
                    case .string(let state)? = window["state"],
                    case .string(let title)? = window["title"], case .string? = window["session"]
                else {
                    Issue.record("\(window)")
                    return
                }
                let isMinimized = window["minimized"] == .bool(true)
                rows.append("\(number) \(state) \(title)\(isMinimized ? " minimized" : "")")
            }
        }
        return rows
    }

    @Test(
        "windows are listed with state and title, and subscribers are told of each change, but not the titles"
    )
    func list() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        #expect(try windows(client, path) == [])
        try client.updateWindow(1, child.pid, [("title", .string("One")), ("focused", .bool(true))])
        try client.updateWindow(2, child.pid, [("title", .string("Two"))])
        try client.updateWindow(3, child.pid, [("title", .string("Three")), ("minimized", .bool(true))])
        #expect(
            try windows(client, path) == [
                "1 foreground-active One", "2 foreground-inactive Two", "3 background Three minimized",
            ])
        try client.catchUp()
        try client.updateWindow(2, child.pid, [("title", .string("Zwei"))])
        try client.settle()
        let told = client.received.filter { $0.member == "WindowsChanged" }
        #expect(told.map(\.path) == [path] && told.allSatisfy { $0.arguments.isEmpty })
        client.forget()
        try client.updateWindow(2, child.pid, [("title", .string("Zwei"))])
        try client.settle()
        #expect(client.received == [])
        try client.application(path, "Suspend")
        #expect(try windows(client, path)[0] == "1 background One")
        try client.wait(for: path, toSay: "WindowsChanged")
        try daemon.end(SIGKILL)
        try daemon.start()
        #expect(try windows(client, path)[1] == "2 background Zwei")
    }

    @Test("Activate resumes an application, and has the session agent bring it to the front")
    func activate() throws {
        let daemon = try TestDaemon()
        let client = try daemon.subscriber()
        let child = try Child("sleep", ["1000"])
        let path = try client.register("org.example.Editor", child.pid)
        func activate(_ options: [(String, Variant)] = []) throws {
            try client.call(path, BusNames.application, "Activate") { try $0.appendDictionary(options) }
        }
        try client.application(path, "Suspend")
        #expect(errorName { try activate() } == ErrorName.noSessionAgent.rawValue)
        #expect(try client.state(path) == "suspended")
        let agent = try AgentStandIn(try daemon.client())
        func ask(_ options: [(String, Variant)] = []) throws {
            try agent.call(path, BusNames.application, "Activate") { try $0.appendDictionary(options) }
        }
        #expect(throws: MethodError.self) { try ask([("urls", .strings([]))]) }
        try ask([("activation-token", .string("token"))])
        #expect(agent.presented.count == 1)
        #expect(agent.presented.first?.id == "org.example.Editor")
        #expect(agent.presented.first?.pid == UInt32(child.pid))
        #expect(agent.presented.first?.options == ["activation-token": .string("token")])
        try client.wait(for: path, toBe: "background")
        agent.hasWindow = false
        do {
            try ask()
            Issue.record("it was not raised")
        } catch let error as MethodError {
            #expect(error.name == ErrorName.failed.rawValue)
        }
    }

    @Test("the properties tell what an application is, and follow it through its life")
    func properties() throws {
        let daemon = try TestDaemon(configuration: "[LifeCycle]\nBackgroundGraceSec=300\n")
        let client = try daemon.subscriber()
        let app = try App(daemon.bus)
        let path = try app.register("org.example.Editor")
        func value(_ name: String) throws -> Variant { try client.property(path, name) }
        #expect(try value("Launching") == .bool(true))
        #expect(try value("Objections") == .strings(["has a visible window", "is launching"]))
        #expect(try value("ReclaimRank") == .uint32(0))
        try app.application(path, "FinishLaunching")
        #expect(try value("Launching") == .bool(false))
        #expect(try value("Visible") == .bool(true))
        #expect(try value("Adopted") == .bool(false))
        #expect(try value("Terminating") == .bool(false))
        #expect(try value("ProtectedDataAvailable") == .bool(true))
        #expect(try value("SuspensionDeadline") == .uint64(.max))
        try client.setMinimized(app.pid, true)
        #expect(try value("Visible") == .bool(false))
        #expect(try value("Objections") == .strings([]))
        #expect(try value("ReclaimRank") == .uint32(3))
        let deadline = try client.explain(path)["suspension-deadline"]
        #expect(try deadline != nil && value("SuspensionDeadline") == deadline)
        try client.application(path, "Suspend")
        #expect(try value("ReclaimRank") == .uint32(2))
        #expect(try value("SuspensionDeadline") == .uint64(.max))
        try client.application(path, "Resume")
        try client.terminate(path)
        #expect(try value("Terminating") == .bool(true))
        #expect(try value("Objections") == .strings(["is being terminated"]))
        let child = try Child("sleep", ["1000"])
        let adopted = try client.register("org.example.Other", child.pid, [("adopted", .bool(true))])
        #expect(try client.property(adopted, "Adopted") == .bool(true))
    }
}
