import Foundation
import TestSupport
import Testing

@testable import Windows

/// niri and Hyprland, which need a GPU: sockets that answer with what their sources write (niri-ipc 25.11, Hyprland 0.57).
@Suite("niri and Hyprland")
struct NiriTests {
    private let scratch: Scratch

    init() throws { scratch = try Scratch() }

    // MARK: niri

    private static func window(_ id: Int, _ appID: String, _ workspace: Int, focused: Bool = false) -> String
    {
        #"{"id":\#(id),"title":"Title \#(id)","app_id":"\#(appID)","pid":\#(100 + id),"workspace_id":\#(workspace),"#
            + #""is_focused":\#(focused),"is_floating":false,"is_urgent":false,"layout":{"pos_in_scrolling_layout":[1,1],"#
            + #""tile_size":[640.5,480.0],"window_size":[640,480],"tile_pos_in_workspace_view":null}}"#
    }

    private static func workspace(_ id: Int, _ output: String, active: Bool) -> String {
        #"{"id":\#(id),"idx":1,"name":null,"output":"\#(output)","is_urgent":false,"is_active":\#(active),"#
            + #""is_focused":\#(id == 1),"active_window_id":null}"#
    }

    @Test("niri: each output shows a workspace; what its events change is seen")
    func niri() throws {
        let path = scratch.path + "/niri"
        let first = [
            #"{"Ok":"Handled"}"#,
            #"{"WorkspacesChanged":{"workspaces":[\#(Self.workspace(1, "DP-1", active: true)),"#
                + #"\#(Self.workspace(2, "DP-1", active: false)),\#(Self.workspace(3, "HDMI-A-1", active: true))]}}"#,
            #"{"WindowsChanged":{"windows":[\#(Self.window(1, "Alpha", 1, focused: true)),"#
                + #"\#(Self.window(2, "Beta", 2)),\#(Self.window(3, "Gamma", 3))]}}"#,
            #"{"OverviewOpenedOrClosed":{"is_open":false}}"#,
        ].map { $0 + "\n" }.joined()
        let niri = try SocketStandIn(path: path) {
            $0 == "\"EventStream\"\n" ? first : "{\"Ok\":\"Handled\"}\n"
        }
        let watch = Watch(try NiriObserver(path: path))
        try watch.wait(for: ["Alpha focused", "Beta hidden", "Gamma"])
        #expect(try watch.window("Alpha").process == 101 && watch.window("Alpha").title == "Title 1")
        // An event may arrive in two parts.
        try niri.push(#"{"WorkspaceActivated":{"id":2,"focused":true}}"# + "\n" + #"{"WindowFocus"#)
        try watch.wait(for: ["Alpha hidden", "Beta", "Gamma"])
        try niri.push(#"Changed":{"id":2}}"# + "\n")
        try watch.wait(for: ["Alpha hidden", "Beta focused", "Gamma"])
        try niri.push(
            #"{"WindowOpenedOrChanged":{"window":\#(Self.window(4, "Delta", 2, focused: true))}}"# + "\n")
        try niri.push(#"{"WindowClosed":{"id":3}}"# + "\n")
        try watch.wait(for: ["Alpha hidden", "Beta", "Delta focused"])
        try niri.push(#"{"WindowFocusChanged":{"id":null}}"# + "\n")
        try watch.wait(for: ["Alpha hidden", "Beta", "Delta"])
        try watch.observer.activate([1], token: nil)
        #expect(eventually { niri.requests.last == #"{"Action":{"FocusWindow":{"id":1}}}"# + "\n" })
        #expect(throws: ObserverFailure.self) { try watch.observer.minimize([1]) }
        try niri.push("no JSON\n")
        try watch.waitForEnd()
    }

    // MARK: Hyprland

    private final class Screen: @unchecked Sendable {
        private let lock = NSLock()
        private var clients: [String] = []
        private var monitors: [(String, String)] = []
        private var active = "{}"

        func set(_ clients: [String], monitors: [(String, String)], active: String) {
            lock.withLock { (self.clients, self.monitors, self.active) = (clients, monitors, active) }
        }

        var answer: String {
            lock.withLock {
                let shown = monitors.map { active, special in
                    #"{"id": 0, "name": "DP-1", "refreshRate": 59.99700, "activeWorkspace": {"address": "0x1", "type": "numbered","#
                        + #""name": "\#(active)"}, "specialWorkspace": {"address": "", "type": "", "name": "\#(special)"}, "reserved": [0, 0, 0, 0], "focused": true}"#
                }
                return
                    "[\(clients.joined(separator: ","))]\n\n\n[\(shown.joined(separator: ","))]\n\n\n\(active)\n\n\n"
            }
        }
    }

    private static func client(
        _ address: String, _ name: String, _ workspace: String, hidden: Bool = false
    ) -> String {
        #"{"address": "\#(address)", "mapped": true, "hidden": \#(hidden), "visible": true, "at": [0, 0], "size": [640, 480],"#
            + #""workspace": {"address": "0x1", "type": "", "name": "\#(workspace)"}, "floating": false, "monitor": 0,"#
            + #""class": "\#(name)", "title": "A \"title\"", "initialClass": "", "initialTitle": "", "pid": 77,"#
            + #""xwayland": false, "pinned": false, "fullscreen": 0, "grouped": [], "tags": [], "focusHistoryID": 0}"#
    }

    @Test("Hyprland: each monitor shows a workspace, and a special one; its windows are minimized otherwise")
    func hyprland() throws {
        let screen = Screen()
        let (alpha, gamma) = ("0x55d0c0ffee10", "0x55d0c0ffee30")
        let clients = [
            Self.client(alpha, "Alpha", "1"), Self.client("0x55d0c0ffee20", "Beta", "2"),
            Self.client(gamma, "Gamma", "special:magic"),
            Self.client("0x55d0c0ffee40", "Delta", "1", hidden: true),
            Self.client("0x55d0c0ffee50", "Epsilon", "3"),
        ]
        screen.set(
            clients, monitors: [("1", ""), ("3", "")], active: #"{"address": "\#(alpha)", "pid": 77}"#)
        let events = try SocketStandIn(path: scratch.path + "/.socket2.sock") { _ in nil }
        let requests = try SocketStandIn(path: scratch.path + "/.socket.sock", closes: true) {
            $0.hasPrefix("[[BATCH]]j/") ? screen.answer : "ok\n\n\nok\n\n\n"
        }
        let watch = Watch(try HyprlandObserver(directory: scratch.path))
        try watch.wait(for: ["Alpha focused", "Beta hidden", "Gamma minimized", "Delta hidden", "Epsilon"])
        #expect(try watch.window("Alpha").process == 77 && watch.window("Alpha").title == "A \"title\"")
        screen.set(clients, monitors: [("2", "special:magic"), ("3", "")], active: "{}")
        try events.push("workspacev2>>2,2\n")
        try watch.wait(for: ["Alpha hidden", "Beta", "Gamma", "Delta hidden", "Epsilon"])
        let asked = requests.requests.count
        try events.push("windowtitle>>\(gamma.dropFirst(2))\nwindowtitlev2>>\(gamma.dropFirst(2)),One, two\n")
        try watch.wait("the title") { $0.contains { $0.title == "One, two" } }
        #expect(requests.requests.count == asked)
        try watch.observer.minimize([try watch.window("Beta").number])
        try watch.observer.activate([try watch.window("Gamma").number], token: nil)
        #expect(eventually { requests.requests.count == asked + 2 })
        #expect(
            Set(requests.requests.suffix(2)) == [
                "[[BATCH]]dispatch movetoworkspacesilent special:minimized,address:0x55d0c0ffee20;dispatch "
                    + #"hl.dsp.window.move({ workspace = "special:minimized", follow = false, window = "address:0x55d0c0ffee20" })"#,
                #"[[BATCH]]dispatch focuswindow address:\#(gamma);dispatch hl.dsp.focus({ window = "address:\#(gamma)" })"#,
            ])
    }
}
