import Desktop
import Foundation
import Glibc
import TestSupport
import Testing
import Windows

/// A Wayland compositor without a screen. It ends when it is released.
final class Compositor {
    /// The installed ones that report windows by zwlr_foreign_toplevel_manager_v1.
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case labwc
        case sway

        static let present = allCases.filter(\.isPresent)

        var isPresent: Bool { desktop.isPresent }
        var desktop: TestDesktop { self == .sway ? .sway : .labwc }
        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// In the form of WAYLAND_DISPLAY, with its directories.
    let display: String
    /// The display of its Xwayland, which starts with its first client.
    let x11Display: String
    let uid: UInt32?
    private let directory: String
    private let process: Child

    static let isAvailable = !Kind.present.isEmpty
    static let whatIsMissing: Comment =
        "needs Xwayland, and labwc, or sway, as root with programs that nobody can run: scripts/setup test"

    init(_ kind: Kind) throws {
        self.kind = kind
        uid = kind.desktop.uid
        directory = try TestDesktop.directory(for: uid)
        (process, display, x11Display) = try kind.desktop.startCompositor(in: directory)
    }

    deinit {
        try? process.end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    var pid: Int32 { process.pid }

    /// The environment of its clients, and of an agent that watches it by this protocol.
    var environment: [String: String?] {
        [
            "XDG_RUNTIME_DIR": directory, "WAYLAND_DISPLAY": display, "DISPLAY": x11Display, "SWAYSOCK": nil,
            "I3SOCK": nil,
        ]
    }

    /// A Wayland application, as WaylandActor/Main.swift describes it.
    ///
    /// - Parameter name: the name of its program, by which its windows are recognised.
    func app(_ name: String = "WaylandActor", prefix: [String] = []) throws -> WindowApp {
        let program = "\(directory)/\(name)"
        if access(program, F_OK) != 0, let built = Programs.built("WaylandActor") {
            try FileManager.default.createSymbolicLink(atPath: program, withDestinationPath: built)
        }
        return try WindowApp(environment: environment, prefix: prefix, uid: uid, program: program)
    }

    /// An application on its X server.
    func x11App() throws -> WindowApp { try WindowApp(environment: environment, uid: uid) }

    /// An observer of its windows.
    func watch() throws -> Watch {
        let entries = DesktopEntries()
        return try Watch.patiently {
            try ForeignToplevelObserver(display: display, x11Display: x11Display) { entries.command(of: $0) }
        }
    }

    /// Ends it.
    func end(_ signal: Int32 = SIGTERM) throws { try process.end(signal) }
}
