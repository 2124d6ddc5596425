import AppStateBus
import Testing

@testable import appstatectl

/// What `doctor` says about machines and desktops of all kinds.
@Suite("appstatectl doctor")
struct DoctorTests {
    /// A GNOME desktop that has everything.
    private let whole = Surroundings(
        daemon: .success([
            "Version": .string("0.1.0"), "Mode": .string("enforce"), "RefusedLines": .uint32(0),
            "StopDetection": .string("events"), "MemoryPressure": .string("normal"),
        ]),
        agents: [Self.agent(1000)], uid: 1000,
        environment: ["WAYLAND_DISPLAY": "wayland-0", "XDG_CURRENT_DESKTOP": "GNOME"], isBooted: true,
        hasPSI: true,
        place: .init(path: "/user.slice/user-1000.slice/user@1000.service/app.slice", memory: .here),
        hasManager: true, names: ["org.freedesktop.systemd1", "org.gnome.Shell", "org.appstate1.Shell"],
        hasPortal: true)

    private static func agent(
        _ uid: UInt32, _ arguments: [String] = [], isConnected: Bool = true
    ) -> Surroundings.Agent {
        .init(
            pid: 42, uid: uid, start: .init(arguments: ["appstate-session"] + arguments, environment: [:]),
            isConnected: isConnected)
    }

    /// What is missing after a change of the whole desktop, and what is said of it.
    private func lacking(_ change: (inout Surroundings) -> Void) -> [Finding.Part: String] {
        var surroundings = whole
        change(&surroundings)
        return surroundings.findings.reduce(into: [:]) { lacking, finding in
            if let advice = finding.advice { lacking[finding.part] = "\(finding.found). \(advice)" }
        }
    }

    @Test("each part has one line, and nothing is missing where all is there")
    func everything() {
        #expect(whole.findings.map(\.part) == Finding.Part.allCases)
        #expect(lacking { _ in } == [:])
        let lines = whole.findings.flatMap { $0.lines(width: nil) }.map(\.text)
        #expect(lines[0] == "ok       daemon             appstated 0.1.0, Mode=enforce")
        #expect(
            lines[2]
                == "ok       reporter           appstate-session watches Wayland display wayland-0 (GNOME)")
    }

    @Test("each thing that is missing is said, with what to do about it")
    func missing() {
        let daemon = lacking {
            $0.daemon = .failure(Failure("appstated is not running; start it", .notRunning))
        }
        #expect(Set(daemon.keys) == [.daemon, .stopDetection])
        #expect(daemon[.daemon]?.hasPrefix("appstated is not running. ") == true)
        #expect(daemon[.daemon]?.hasSuffix("systemctl start appstated.") == true)

        let agent = lacking { $0.agents = [] }
        #expect(Set(agent.keys) == [.agent, .reporter])
        #expect(agent[.agent]?.contains("systemctl --user start appstate-session") == true)
        let elsewhere = lacking { $0.agents = [Self.agent(1000, isConnected: false)] }
        #expect(Set(elsewhere.keys) == [.agent, .reporter])
        #expect(elsewhere[.agent]?.contains("pid 42, is not on this bus") == true)
        #expect(Set(lacking { $0.agents = [Self.agent(1000, ["--launch-only"])] }.keys) == [.reporter])
        let gnome = lacking { $0.names?.remove("org.appstate1.Shell") }
        #expect(Set(gnome.keys) == [.reporter])
        #expect(gnome[.reporter]?.contains("gnome-extensions enable") == true)

        #expect(lacking { $0.hasPSI = false }[.psi]?.contains("psi=1") == true)
        #expect(lacking { $0.hasPortal = false }[.portal]?.contains("Install it") == true)
        let foreign = lacking { ($0.names, $0.hasPortal) = (nil, false) }
        #expect(Set(foreign.keys) == [.portal] && foreign[.portal]?.contains("as its user") == true)
        let manager = lacking { $0.names?.remove("org.freedesktop.systemd1") }
        #expect(manager[.serviceManager]?.hasSuffix("Install dbus-user-session.") == true)
    }

    @Test("a machine without systemd, or with old or read-only cgroups, is told what works instead")
    func cgroups() {
        let parts: Set<Finding.Part> = [.memoryController, .freezer, .cgroupKill]
        let none = lacking { $0.place = nil }
        #expect(Set(none.keys) == parts && none[.freezer]?.contains("SIGSTOP") == true)
        #expect(Set(lacking { $0.place?.memory = .versionOne }.keys) == [.memoryController])
        #expect(
            lacking { $0.place?.memory = .notHere }[.memoryController]?.contains("Delegate=memory") == true)
        #expect(lacking { $0.place?.canKill = false }[.cgroupKill]?.contains("Linux 5.14") == true)
        #expect(Set(lacking { $0.place?.isReadOnly = true }.keys) == [.freezer, .cgroupKill])
        let bare = lacking { ($0.isBooted, $0.hasManager, $0.names, $0.agents) = (false, false, nil, []) }
        #expect(Set(bare.keys) == [.agent, .reporter, .serviceManager])
        #expect(bare.values.allSatisfy { !$0.contains("systemctl") })
    }

    @Test("on a terminal nothing is cut off, and lines that go on begin under what was found")
    func terminal() {
        let lines = Finding(.psi, "one two three four five", "six seven").lines(width: 52).map(\.text)
        #expect(lines.count == 2)
        #expect(lines[0].hasPrefix("missing  psi ") && lines[0].hasSuffix("  one two three four five."))
        #expect(lines[1] == String(repeating: " ", count: 28) + "six seven")
    }
}
