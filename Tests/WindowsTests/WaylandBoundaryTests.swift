import Foundation
import Glibc
import Linux
import TestSupport
import Testing

@testable import Windows

/// Servers that are not there, not compositors, or lack what is needed.
@Suite("Wayland, boundaries", .serialized)
struct WaylandBoundaryTests {
    @Test("a server that accepts connections and never answers is an error")
    func silent() throws {
        let server = try Listener()
        do throws(ObserverFailure) {
            _ = try WaylandConnection(display: server.path, patience: 10_000)
            Issue.record("it answered")
        } catch {
            guard case .unreachable(let why) = error else { throw error }
            #expect(why.contains("does not answer"))
        }
    }

    @Test(
        "a server that sends invalid messages is an error",
        arguments: [
            [UInt8](repeating: 0xFF, count: 4_096), [UInt8](repeating: 0, count: 64), [1], [],
            // wl_display.error about no object; wl_registry.global whose text is longer than its message.
            [1, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [2, 0, 0, 0, 0, 0, 20, 0, 1, 0, 0, 0, 255, 255, 0, 0, 0, 0, 0, 0],
        ])
    func nonsense(_ bytes: [UInt8]) throws {
        let server = try Listener()
        server.serve(bytes)
        guard case .unreachable? = Self.failure(server.path) else {
            Issue.record("\(bytes)")
            return
        }
    }

    @Test(
        "a compositor without the protocol is unsupported",
        .enabled(if: Cage.isAvailable, Cage.whatIsMissing))
    func unsupported() throws {
        let cage = try Cage()
        var failure: (any Error)?
        do {
            _ = try Watch.patiently { try ForeignToplevelObserver(display: cage.display) }
        } catch {
            failure = error
        }
        guard case .unsupported(let why)? = failure as? ObserverFailure else {
            Issue.record("\(String(describing: failure))")
            return
        }
        #expect(why.contains("lacks zwlr_foreign_toplevel_manager_v1"))
    }

    private static func failure(_ display: String) -> ObserverFailure? {
        do throws(ObserverFailure) {
            _ = try ForeignToplevelObserver(display: display)
            return nil
        } catch {
            return error
        }
    }
}

/// How the windows of a compositor are reported.
@Suite("Toplevels")
struct ToplevelTests {
    private func toplevel(
        _ number: UInt64, _ appID: String, _ owners: [Int32], minimized: Bool = false,
        activated: Bool = false,
        _ activations: inout UInt64
    ) -> Toplevel {
        var toplevel = Toplevel(number: number)
        toplevel.pending.appID = appID
        toplevel.pending.isMinimized = minimized
        toplevel.pending.isActivated = activated
        toplevel.commit(&activations)
        toplevel.owners = owners.map { ProcessIdentity(pid: $0, startTime: 1) }
        return toplevel
    }

    @Test("changes of a window take effect with done")
    func done() {
        var activations: UInt64 = 0
        var window = Toplevel(number: 1)
        window.pending.appID = "a"
        #expect([window].picture() == [])
        window.commit(&activations)
        window.pending.appID = "b"
        #expect([window].picture().map(\.appID) == ["a"])
        window.commit(&activations)
        #expect([window].picture().map(\.appID) == ["b"])
    }

    @Test("a window that may belong to several processes counts for all of them but has no focus")
    func doubt() {
        var activations: UInt64 = 0
        let sure = toplevel(1, "a", [10], minimized: true, &activations)
        let visible = toplevel(2, "a", [10, 20], activated: true, &activations)
        let minimized = toplevel(3, "b", [20, 30], minimized: true, &activations)
        let nobody = toplevel(4, "c", [], &activations)
        let picture = [sure, visible, minimized, nobody].picture()
        #expect(picture.map(\.process) == [10, nil, 10, 20, 30])
        #expect(picture.map(\.appID) == ["a", "c", "a", "", "b"])
        #expect(picture.map(\.visible) == [false, true, true, true, false])
        #expect(picture.map(\.minimized) == [true, false, false, false, true])
        #expect(!picture.contains { $0.focused })
        #expect(Set(picture.map(\.number)).count == 5 && picture.allSatisfy { $0.number < 1 << 48 })
    }
}

/// Which processes may own windows.
@Suite("Window owners")
struct WindowOwnersTests {
    @Test(
        "clients of the socket that Flatpak makes for a sandbox are candidates",
        .enabled(if: access(ListeningApp.python, X_OK) == 0, "needs python3"))
    func sandbox() throws {
        let directory = try TestDesktop.directory()
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let path = directory + "/.flatpak/wl/wayland-Ab12Cd"
        func start(_ script: String) throws -> Child {
            let child = try Child(
                ListeningApp.python,
                ["-c", "import os, socket, sys\nend = socket.socket(socket.AF_UNIX)\n" + script, path])
            try child.waitForLine(containing: "ready")
            return child
        }
        let compositor = try start(
            """
            os.makedirs(os.path.dirname(sys.argv[1]))
            end.bind(sys.argv[1])
            end.listen()
            print("ready", flush=True)
            kept = [end.accept(), end.accept()]
            """)
        var owners = WindowOwners(services: ["/nonexistent"], runtime: directory)
        try owners.refresh()
        #expect(owners.clients == [])
        let client = try start("end.connect(sys.argv[1])\nprint('ready', flush=True)\nend.recv(1)")
        // The compositor accepts the connection a moment later.
        let isFound = try eventually {
            try owners.refresh()
            return owners.clients.map(\.pid) == [client.pid]
        }
        #expect(isFound)
        withExtendedLifetime(compositor) {}
    }
}

/// How a process is recognised as an application.
@Suite("Program names")
struct ProgramNameTests {
    @Test(
        "names, units and commands identify a process",
        arguments: [
            ("foot", "foot", "", nil, ProgramName.Match.program), ("Foot", "foot", "", nil, .program),
            ("org.gnome.Nautilus", "nautilus", "", nil, .program),
            ("org.gnome.Nautilus", "python3", "", nil, .none),
            ("org.example.App", "python3", "org.example.app", nil, .unit),
            ("org.example.App", "example-app", "", "example-app", .program),
            ("org.example.Longer", "org.example.lon", "", nil, .program), ("", "foot", "", nil, .none),
            ("org.example.", "foot", "", nil, .none), ("foot", "footclient", "", nil, .none),
        ])
    func match(
        _ appID: String, _ name: String, _ unit: String, _ command: String?, _ match: ProgramName.Match
    ) {
        #expect(ProgramName(names: [name], unit: unit).match(appID, command: command) == match)
    }
}
