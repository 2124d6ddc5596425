import Foundation
import TestSupport
import Testing

@testable import Windows

/// COSMIC, which needs a GPU: a socket that speaks Wayland as its protocols describe it (cosmic-protocols, wayland-protocols).
@Suite("COSMIC")
struct CosmicTests {
    /// What the compositor has, and what it was asked.
    private final class Compositor: @unchecked Sendable {
        private let lock = NSLock()
        private var unread: [UInt8] = []
        private var bound: [String: UInt32] = [:]
        private var extensions: [UInt32: UInt32] = [:]
        private var asked: [String] = []
        private static let globals = [
            "wl_seat", "ext_foreign_toplevel_list_v1", "zcosmic_toplevel_info_v1",
            "zcosmic_toplevel_manager_v1",
            "ext_workspace_manager_v1",
        ]
        /// The numbers of the server's objects are given in order: two workspaces, then two windows.
        static let (workspace, window): (UInt32, UInt32) = (0xFF00_0000, 0xFF00_0002)

        var requests: [String] { lock.withLock { asked } }
        /// The cosmic object of a window.
        func more(_ window: UInt32) -> UInt32 { lock.withLock { extensions[Self.window + window] ?? 0 } }
        var info: UInt32 { lock.withLock { bound["zcosmic_toplevel_info_v1"] ?? 0 } }

        static func message(_ object: UInt32, _ event: UInt32, _ words: [UInt32] = []) -> [UInt8] {
            let all = [object, UInt32(8 + 4 * words.count) << 16 | event] + words
            return all.flatMap { word in withUnsafeBytes(of: word) { Array($0) } }
        }

        /// A string or an array as it is sent: its length, and its bytes padded to words.
        static func words(_ bytes: [UInt8]) -> [UInt32] {
            let padded = bytes + [UInt8](repeating: 0, count: (4 - bytes.count % 4) % 4)
            return [UInt32(bytes.count)]
                + stride(from: 0, to: padded.count, by: 4).map { start in
                    padded[start..<start + 4].withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
                }
        }

        static func words(_ text: String) -> [UInt32] { words(Array(text.utf8) + [0]) }

        static func states(_ window: UInt32, _ states: [UInt32]) -> [UInt8] {
            message(window, 8, words(states.flatMap { word in withUnsafeBytes(of: word) { Array($0) } }))
        }

        func answer(_ bytes: [UInt8]) -> [UInt8] {
            lock.withLock {
                unread += bytes
                var answer: [UInt8] = []
                while unread.count >= 8 {
                    let size = Int(word(1) >> 16)
                    guard unread.count >= size else { break }
                    answer += handle(word(0), word(1) & 0xFFFF, (2..<size / 4).map(word))
                    unread.removeFirst(size)
                }
                return answer
            }
        }

        private func word(_ index: Int) -> UInt32 {
            unread.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: 4 * index, as: UInt32.self) }
        }

        private func handle(_ object: UInt32, _ request: UInt32, _ words: [UInt32]) -> [UInt8] {
            switch (object, request) {
            case (1, 0): return Self.message(words[0], 0, [0]) + Self.message(1, 1, [words[0]])
            case (1, 1):
                bound["registry"] = words[0]
                return Self.globals.enumerated().flatMap { index, name in
                    Self.message(
                        words[0], 0, [UInt32(index)] + Self.words(name) + [name.contains("info") ? 3 : 1])
                }
            case (bound["registry"], 0): return bind(Self.globals[Int(words[0])], words[words.count - 1])
            case (bound["zcosmic_toplevel_info_v1"], 1): return extend(words[0], words[1])
            case (bound["zcosmic_toplevel_manager_v1"], _):
                let window = extensions.first { $0.value == words[0] }.map { $0.key - Self.window }
                asked.append("\(request) \(window.map(String.init) ?? "?")")
                return []
            default: return []
            }
        }

        private func bind(_ name: String, _ object: UInt32) -> [UInt8] {
            bound[name] = object
            var answer: [UInt8] = []
            switch name {
            case "ext_workspace_manager_v1":
                for index in [UInt32(0), 1] {
                    let workspace = Self.workspace + index
                    answer += Self.message(object, 1, [workspace])
                    answer += Self.message(workspace, 1, Self.words("\(index)"))
                    answer += Self.message(workspace, 3, [1 - index])
                }
                answer += Self.message(object, 2)
            case "ext_foreign_toplevel_list_v1":
                for (index, name) in [(UInt32(0), "Alpha"), (1, "Beta")] {
                    let window = Self.window + index
                    answer += Self.message(object, 0, [window])
                    answer += Self.message(window, 4, Self.words("id\(index)"))
                    answer += Self.message(window, 2, Self.words("Title"))
                    answer += Self.message(window, 3, Self.words(name))
                    answer += Self.message(window, 1)
                }
            default: break
            }
            return answer
        }

        /// Alpha is on the first workspace and active, Beta on the second.
        private func extend(_ more: UInt32, _ window: UInt32) -> [UInt8] {
            extensions[window] = more
            let index = window - Self.window
            return Self.message(more, 10, [Self.workspace + index]) + Self.states(more, index == 0 ? [2] : [])
                + Self.message(bound["zcosmic_toplevel_info_v1"] ?? 0, 2)
        }
    }

    @Test("what is on a workspace that is not shown is hidden; windows are minimized and activated")
    func windows() throws {
        let scratch = try Scratch()
        let compositor = Compositor()
        let path = scratch.path + "/wayland-1"
        let socket = try SocketStandIn(path: path, bytes: { (compositor.answer($0), false) })
        let watch = Watch(try ForeignToplevelObserver(display: path))
        try watch.wait(for: ["Alpha focused", "Beta hidden"])
        let (alpha, beta) = (compositor.more(0), compositor.more(1))
        let done = Compositor.message(compositor.info, 2)
        try socket.push(
            Compositor.message(Compositor.workspace, 3, [0])
                + Compositor.message(Compositor.workspace + 1, 3, [1])
                + Compositor.states(alpha, []) + Compositor.states(beta, [0, 2]) + done)
        try watch.wait(for: ["Alpha hidden", "Beta focused"])
        // A window that is on every workspace.
        try socket.push(Compositor.states(alpha, [4]) + Compositor.states(beta, [1]) + done)
        try watch.wait(for: ["Alpha", "Beta minimized"])
        try watch.observer.minimize([try watch.window("Alpha").number])
        try watch.observer.activate([try watch.window("Beta").number], token: nil)
        try watch.dispatch()
        #expect(eventually { compositor.requests == ["5 0", "6 1", "2 1"] })
        try socket.push(Compositor.message(Compositor.window, 0))
        try watch.wait(for: ["Beta minimized"])
        // An error of the display ends the connection.
        try socket.push(Compositor.message(1, 0, [1, 0] + Compositor.words("the end")))
        try watch.waitForEnd()
    }
}
