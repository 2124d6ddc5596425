import AppStateBus
import AppStateContract
import ArgumentParser
import Glibc
import Linux

struct Doctor: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Say what this machine and this desktop give and lack, and what to do about it.",
        discussion: """
            Without the daemon, the session agent and a reporter of windows, nothing works: if one of them is missing, \
            the exit status is 1. Whatever else is missing makes appstated do less, or do it worse.
            """)

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions

    func run() throws {
        let findings = try Surroundings(bus).findings
        let lacking = findings.filter { $0.advice != nil && $0.part.isEssential }.map(\.part.rawValue)
        if output.json {
            Terminal.emit(JSON.array(findings.map(\.json)))
        } else {
            for line in findings.flatMap({ $0.lines(width: Terminal.width) }) { Terminal.emit(line) }
            Terminal.emit(
                Line(
                    lacking.isEmpty
                        ? "Nothing essential is missing."
                        : "Essential, and missing: \(lacking.joined(separator: ", ")).", .bold))
        }
        if !lacking.isEmpty { throw ExitCode.failure }
    }
}

/// One line of `doctor`.
struct Finding {
    enum Part: String, CaseIterable {
        case daemon
        case agent
        case reporter
        case stopDetection = "stop-detection"
        case psi
        case memoryController = "memory-controller"
        case freezer
        case cgroupKill = "cgroup-kill"
        case serviceManager = "service-manager"
        case portal

        var isEssential: Bool { [.daemon, .agent, .reporter].contains(self) }
    }

    let part: Part
    let found: String
    /// What it means for the user that the part is missing, and what to do about it; nil: it is there.
    let advice: String?

    init(_ part: Part, _ found: String, _ advice: String? = nil) {
        (self.part, self.found, self.advice) = (part, found, advice)
    }

    var json: JSON {
        .object([
            ("name", .string(part.rawValue)), ("ok", .bool(advice == nil)),
            ("essential", .bool(part.isEssential)),
            ("found", .string(found)), ("advice", .string(advice ?? "")),
        ])
    }

    /// One line; on a terminal as many as it takes, so that nothing is cut off.
    func lines(width: Int?) -> [Line] {
        let column = (Part.allCases.map(\.rawValue.count).max() ?? 0) + 2
        let state = advice == nil ? Line("ok", .ok) : Line("missing", part.isEssential ? .missing : .lacking)
        let start = state.padded(to: 9) + Line(part.rawValue).padded(to: column)
        let text = advice.map { "\(found). \($0)" } ?? found
        let rest = width.map { text.wrapped(to: max($0 - start.width, 24)) } ?? [text]
        return rest.enumerated().map { index, piece in
            (index == 0 ? start : Line("").padded(to: start.width)) + Line(piece)
        }
    }
}

/// What `doctor` has seen of the machine and of the desktop.
struct Surroundings {
    struct Agent {
        let pid: Int32
        let uid: UInt32
        let start: SessionAgent.Start
        /// Whether it has a connection to the bus that the daemon is looked for on.
        let isConnected: Bool
    }

    /// The cgroup around the user's applications.
    struct Place {
        enum Memory {
            case here
            /// The hierarchy has the controller, but this cgroup has not.
            case notHere
            case versionOne
            case nowhere
        }

        let path: String
        var memory: Memory
        var isReadOnly = false
        var canFreeze = true
        var canKill = true
    }

    /// The daemon's properties, or why it does not answer.
    var daemon: Result<[String: Variant], Failure>
    /// The user's; for root, if none of its own is connected, everybody's.
    var agents: [Agent]
    /// Whose session this is about, and its environment.
    var uid: UInt32
    var environment: [String: String]
    /// Whether systemd has booted the machine.
    var isBooted: Bool
    var hasPSI: Bool
    /// nil: no cgroup of version 2 is mounted.
    var place: Place?
    /// Whether the socket of the user's service manager is there.
    var hasManager: Bool
    /// The names that have an owner on the session's bus, or on the user's; nil: no bus answers.
    var names: Set<String>?
    /// Whether the portal runs, or can be started.
    var hasPortal: Bool
}

// MARK: - What is found, and what it means

extension Surroundings {
    var findings: [Finding] {
        [
            service, agent, reporter, stopDetection, psi, memoryController,
            cgroup(
                .freezer, place?.canFreeze, "cgroup.freeze", since: "5.2",
                "Applications are stopped with SIGSTOP instead, which their parents notice."),
            cgroup(
                .cgroupKill, place?.canKill, "cgroup.kill", since: "5.14",
                "The processes of an application are killed one by one instead."),
            serviceManager, portal,
        ]
    }

    private func property(_ name: ManagerProperty) -> Variant? { (try? daemon.get())?[name.rawValue] }

    private var service: Finding {
        if case .failure(let failure) = daemon {
            let start =
                isBooted ? "systemctl start appstated" : "/usr/libexec/appstated as root, on a system bus"
            // The failure's own advice takes systemd for granted.
            return Finding(
                .daemon, String(failure.sentence.prefix { $0 != ";" }),
                "Applications are not followed, suspended or protected. Start it with \(start).")
        }
        let mode = property(.mode)?.words ?? ""
        var found = "appstated \(property(.version)?.words ?? ""), Mode=\(mode)"
        if mode == "observe" { found += " (policy says what it would do, and does nothing)" }
        if case .uint32(let count)? = property(.refusedLines), count > 0 {
            found += "; invalid lines in its configuration: \(count)"
            if isBooted { found += " (journalctl -u appstated)" }
        }
        return Finding(.daemon, found)
    }

    private var connected: Agent? { agents.first(where: \.isConnected) }

    private var agent: Finding {
        let meaning = "Windows are not reported, rules have no effect, applications are not launched."
        if let agent = connected ?? agents.first {
            let found = "appstate-session of \(userName(agent.uid)), pid \(agent.pid)"
            if agent.isConnected { return Finding(.agent, found) }
            return Finding(
                .agent, "\(found), is not on this bus",
                "\(meaning) Start it with the bus of the daemon in DBUS_SYSTEM_BUS_ADDRESS.")
        }
        let start =
            isBooted
            ? "Start it with systemctl --user start appstate-session; systemctl --user status appstate-session "
                + "says why it has ended."
            : "Start /usr/libexec/appstate-session in the session of the desktop."
        return Finding(
            .agent, "appstate-session does not run\(uid == 0 ? "" : " for \(userName(uid))")",
            "\(meaning) \(start)")
    }

    /// What the session agent watches: the first of these, unless that does not answer.
    private var display: String? {
        if environment["SWAYSOCK"] != nil { return "sway" }
        let desktop = environment["XDG_CURRENT_DESKTOP"].map { " (\($0))" } ?? ""
        if let name = environment["WAYLAND_DISPLAY"] { return "Wayland display \(name)\(desktop)" }
        return environment["DISPLAY"].map { "X11 display \($0)\(desktop)" }
    }

    private var reporter: Finding {
        let meaning = "It is not known which application is in front, visible or minimized."
        guard let connected else {
            return Finding(
                .reporter, display.map { "no session agent watches \($0)" } ?? "there is no display here",
                "\(meaning) Start the session agent in the session of the desktop.")
        }
        if connected.start.isLaunchOnly {
            return Finding(
                .reporter, "appstate-session runs with --launch-only",
                "\(meaning) Start it without that option, if the desktop can be watched.")
        }
        // The agent runs without it, and reports nothing.
        if environment["WAYLAND_DISPLAY"] != nil, names?.contains("org.gnome.Shell") == true,
            names?.contains(BusNames.shell) == false
        {
            return Finding(
                .reporter, "GNOME Shell runs without the extension appstate@appstate1.org",
                "\(meaning) gnome-extensions enable appstate@appstate1.org; if it was just installed, log out "
                    + "and in first.")
        }
        return Finding(.reporter, "appstate-session watches \(display ?? "a display that it does not tell")")
    }

    private var stopDetection: Finding {
        switch property(.stopDetection)?.words {
        case nil: return Finding(.stopDetection, "not known without the daemon", "Start the daemon.")
        case "events": return Finding(.stopDetection, "tracepoints")
        default:
            let why = isBooted ? "journalctl -u appstated -g 'not handed over' says why" : "systemd would"
            return Finding(
                .stopDetection, "polling",
                "What other programs stop or continue is noticed up to a second late. Nobody has handed the "
                    + "kernel's tracepoints to the daemon (\(why)); in containers there are none.")
        }
    }

    private var psi: Finding {
        let level = property(.memoryPressure).map { "; MemoryPressure is \($0.words)" } ?? ""
        return hasPSI
            ? Finding(.psi, "/proc/pressure/memory\(level)")
            : Finding(
                .psi, "the kernel has no /proc/pressure/memory",
                "Memory is not watched: no application is warned or ended when it is short. Boot with psi=1, or "
                    + "use a kernel with CONFIG_PSI.")
    }

    private static let manager = "org.freedesktop.systemd1"
    private static let noHierarchy = "no cgroup v2 is mounted"
    private var unify: String {
        isBooted
            ? "Boot with systemd.unified_cgroup_hierarchy=1." : "Boot with cgroup_no_v1=all, and mount it."
    }

    private var memoryController: Finding {
        let (found, remedy) =
            switch place?.memory {
            case .here: ("memory.low in \(place?.path ?? "")", "")
            case .notHere: ("not enabled for \(place?.path ?? "")", "Set Delegate=memory for user@.service.")
            case .versionOne: ("only in cgroup v1", unify)
            case .nowhere:
                ("not in cgroup v2", "Boot with cgroup_enable=memory; a container must be given it.")
            case nil: (Self.noHierarchy, unify)
            }
        return Finding(
            .memoryController, found,
            remedy.isEmpty
                ? nil
                : "MemoryLow= does not protect the application in front, and memory is counted by process. "
                    + remedy)
    }

    private func cgroup(
        _ part: Finding.Part, _ isThere: Bool?, _ file: String, since version: String, _ meaning: String
    ) -> Finding {
        guard let isThere else { return Finding(part, Self.noHierarchy, "\(meaning) \(unify)") }
        if !isThere {
            return Finding(part, "no \(file)", "\(meaning) Linux \(version) and newer have it.")
        }
        guard place?.isReadOnly == true else { return Finding(part, file) }
        return Finding(
            part, "cgroups are mounted read-only", "\(meaning) Let the container write to its cgroups.")
    }

    private var serviceManager: Finding {
        let found = "systemd --user of \(userName(uid))"
        // As root, its bus does not answer.
        if names?.contains(Self.manager) ?? hasManager {
            return Finding(.serviceManager, names == nil ? found : "\(found): scopes can be made")
        }
        let remedy =
            hasManager
            ? "Install dbus-user-session."
            : isBooted ? "Log in through logind: install libpam-systemd." : "It needs a machine with systemd."
        return Finding(
            .serviceManager, hasManager ? "\(found) is not on the bus" : "\(found) does not run",
            "An application that shares its unit, as in a terminal, gets none of its own: it is stopped by "
                + "signals, and has no weights. \(remedy)")
    }

    private var portal: Finding {
        if hasPortal { return Finding(.portal, "xdg-desktop-portal") }
        let meaning = "Flatpak applications cannot say that they must go on."
        return names == nil
            ? Finding(
                .portal, "no session bus answers \(userName(geteuid()))",
                "\(meaning) Run appstatectl doctor in the session of the desktop, as its user.")
            : Finding(
                .portal, "xdg-desktop-portal is not on the session bus",
                "\(meaning) Install it, and the one for the desktop.")
    }
}

// MARK: - Looking

extension Surroundings {
    init(_ options: BusOptions) throws {
        var connections: Set<Int32> = []
        do {
            let client = try options.connect()
            connections = client.bus.processes
            daemon = .success(try client.properties(of: BusNames.root, BusNames.manager))
        } catch {
            daemon = .failure(try Failure(error))
        }
        let all = try SessionAgent.processes(ofEverybody: geteuid() == 0).map { pid, uid in
            Agent(
                pid: pid, uid: uid, start: SessionAgent.start(of: pid), isConnected: connections.contains(pid)
            )
        }
        let own = all.filter { $0.uid == getuid() }
        agents = own.contains(where: \.isConnected) ? own : all
        // One that watches comes first.
        agents.sort { !$0.start.isLaunchOnly && $1.start.isLaunchOnly }
        let agent = agents.first(where: \.isConnected)
        uid = agent?.uid ?? getuid()
        let ours = Environment.variables(of: "self").filter { !$0.value.isEmpty }.map { ($0.name, $0.value) }
        environment = agent?.start.environment ?? [:]
        if environment.isEmpty { environment = Dictionary(ours) { first, _ in first } }
        isBooted = access("/run/systemd/system", F_OK) == 0
        hasPSI = (try? PressureFile(path: "/proc/pressure/memory").read()) != nil
        place = Place(of: uid)
        let runtime = environment["XDG_RUNTIME_DIR"]
        hasManager = runtime.map { access("\($0)/systemd/private", F_OK) == 0 } ?? false
        let addresses = [environment["DBUS_SESSION_BUS_ADDRESS"], runtime.map { "unix:path=\($0)/bus" }]
        let buses = Set(addresses.compactMap { $0 }).compactMap { try? Bus.open(address: $0) }
        names = nil
        for _ in 0..<10 {
            let owned = buses.compactMap { try? $0.names("ListNames") }
            names = owned.isEmpty ? nil : Set(owned.joined())
            // It comes to a bus that our connection has just started.
            guard hasManager, names?.contains(Self.manager) == false else { break }
            usleep(100_000)
        }
        let startable = buses.compactMap { try? $0.names("ListActivatableNames") }
        hasPortal = ([Array(names ?? [])] + startable).joined().contains("org.freedesktop.portal.Desktop")
    }
}

extension Bus {
    fileprivate func names(_ method: String) throws(BusFailure) -> [String] {
        try call(try newDriverCall(method)).readStrings()
    }

    /// The processes of all connections.
    fileprivate var processes: Set<Int32> {
        let connections = (try? names("ListNames"))?.filter { $0.hasPrefix(":") } ?? []
        return Set(connections.compactMap { try? processID(ofOwner: $0) })
    }
}

extension Surroundings.Place {
    /// The slice that the user's service manager has for applications, or else that of the user's sessions, or else the
    /// cgroup of this process.
    fileprivate init?(of uid: UInt32) {
        guard let hierarchy = UnifiedHierarchy.find() else { return nil }
        let sessions = "/user.slice/user-\(uid).slice"
        let slices = ["\(sessions)/user@\(uid).service/app.slice", sessions]
            .compactMap { Cgroup(path: $0, in: hierarchy) }.filter { access($0.directory, F_OK) == 0 }
        guard
            let cgroup = slices.first ?? (try? .of(getpid(), in: hierarchy))
                ?? Cgroup(path: "/", in: hierarchy)
        else { return nil }
        path = cgroup.path
        let controllers = (try? WholeFile.read("\(hierarchy.mountPoint)/cgroup.controllers")) ?? []
        let isKnown = String(decoding: controllers, as: UTF8.self).split(whereSeparator: \.isWhitespace)
            .contains("memory")
        let isOld = access("\(hierarchy.mountPoint)/../memory/memory.stat", F_OK) == 0
        // The root of a hierarchy has none of these files.
        let isHere = cgroup.isRoot ? isKnown : cgroup.has("memory.low")
        memory = isHere ? .here : isKnown ? .notHere : isOld ? .versionOne : .nowhere
        canFreeze = cgroup.isRoot ? Self.kernel >= (5, 2) : cgroup.has("cgroup.freeze")
        canKill = cgroup.isRoot ? Self.kernel >= (5, 14) : cgroup.has("cgroup.kill")
        var mount = statvfs()
        isReadOnly = statvfs(hierarchy.mountPoint, &mount) == 0 && mount.f_flag & UInt(ST_RDONLY) != 0
    }

    /// The first two numbers of the kernel's version.
    private static var kernel: (Int, Int) {
        let release = (try? WholeFile.read("/proc/sys/kernel/osrelease")) ?? []
        let numbers = String(decoding: release, as: UTF8.self).split { !$0.isNumber }.compactMap { Int($0) }
        return numbers.count > 1 ? (numbers[0], numbers[1]) : (0, 0)
    }
}
