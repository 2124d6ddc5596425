public import AppStateBus
public import Linux

/// Starts programs. Each program runs in a transient unit of the user's service manager, or, if there is no service
/// manager, as a child in a session of its own. In both cases the process waits at a gate first.
///
/// If a service manager runs, no children are started: they would have the limits of our own unit.
public struct ProgramStarter {
    fileprivate let loop: EventLoop
    fileprivate let bus: () -> Bus?
    fileprivate let executable: String
    fileprivate let directory: String?

    /// - Parameters:
    ///   - loop: the loop on which all work is done.
    ///   - bus: returns the user's bus, attached to the loop, on which the service manager is reached; nil: there is
    ///     none.
    ///   - executable: our own program, which runs `GateProgram` if it is called with `--gate`.
    ///   - directory: the user's runtime directory, which holds the gates and the service manager's socket; nil: there
    ///     is none.
    public init(
        loop: EventLoop, bus: @escaping @autoclosure () -> Bus?, executable: String,
        directory: String? = Environment["XDG_RUNTIME_DIR"]
    ) {
        (self.loop, self.bus, self.executable, self.directory) = (loop, bus, executable, directory)
    }

    /// Starts a program and stops it at its gate.
    ///
    /// - Parameter done: called once, from the loop, with the program that waits at its gate, or with the failure.
    public func start(
        _ request: ProgramRequest, _ done: @escaping (Result<StartedProgram, MethodError>) -> Void
    ) {
        Start(request, self, done).begin()
    }
}

/// One start, from the first call to the end of the program. It retains itself until then.
private final class Start {
    private let request: ProgramRequest
    private let starter: ProgramStarter
    private var done: ((Result<StartedProgram, MethodError>) -> Void)?
    private var gate: Gate?
    private var timer: Timer?
    private var manager: ServiceManager?
    private var unit: String?
    private var child: ChildProgram?
    private var program: StartedProgram?

    /// How long the process may take to reach its gate, in microseconds.
    private static let patience: UInt64 = 20_000_000

    init(
        _ request: ProgramRequest, _ starter: ProgramStarter,
        _ done: @escaping (Result<StartedProgram, MethodError>) -> Void
    ) {
        (self.request, self.starter, self.done) = (request, starter, done)
    }

    func begin() {
        attempt {
            gate = try Gate(in: starter.directory, loop: starter.loop) { [self] connection, pid in
                arrived(connection, pid)
            }
            timer = try starter.loop.timer { [self] in fail("it was not ready in time") }
            timer?.arm(at: starter.loop.now + Self.patience)
            let isManagerRunning = ServiceManager.isRunning(in: starter.directory)
            guard let bus = starter.bus() else {
                return try startChild(isManagerRunning, "there is no bus of the user")
            }
            let manager = ServiceManager(bus, starter.loop)
            self.manager = manager
            try manager.get("Environment", isRunning: isManagerRunning) { [self] result in
                attempt {
                    if case .failure(ServiceManager.absence) = result {
                        return try startChild(isManagerRunning, ServiceManager.absence.message)
                    }
                    try startUnit(by: manager, try? result.get())
                }
            }
        }
    }

    private func startUnit(by manager: ServiceManager, _ environment: Variant?) throws {
        let unit = UnitName.service(request.id)
        self.unit = unit
        try manager.start(unit, request.properties(gateCommand(in: nil), of: environment)) { [self] error in
            if let error { fail("\(error)") }
        }
    }

    /// - Parameter obstacle: why the program cannot be started as a unit.
    private func startChild(_ isManagerRunning: Bool, _ obstacle: String) throws {
        guard !isManagerRunning else {
            return fail("the service manager of the user cannot be asked for a unit: \(obstacle)")
        }
        child = try ChildProgram(
            starter.executable, gateCommand(in: Environment["HOME"]),
            environment: ProgramEnvironment.ofChild(request.environment), loop: starter.loop
        ) { [self] status in
            if let program { program.ended(status) } else { fail("it ended before it could wait: \(status)") }
        }
    }

    /// - Parameter home: where it runs if the request names no directory; nil: where it is.
    private func gateCommand(in home: String?) -> [String] {
        [
            starter.executable, GateProgram.option, gate?.path ?? "",
            request.command.directory ?? home ?? "", request.command.program,
        ] + request.command.arguments
    }

    private func arrived(_ connection: Int32, _ pid: Int32) {
        do {
            let program = try StartedProgram(pid, at: connection, unit: unit, loop: starter.loop)
            if let unit, let manager {
                try program.watchEnd {
                    manager.askEnding(of: unit) { status in
                        manager.release(unit)
                        program.ended(status)
                    }
                }
            }
            self.program = program
            let done = done
            (self.done, gate, timer) = (nil, nil, nil)
            done?(.success(program))
        } catch {
            fail("\(error)")
        }
    }

    private func attempt(_ body: () throws -> Void) {
        do { try body() } catch { fail("\(error)") }
    }

    private func fail(_ why: String) {
        guard let done else { return }
        // A process of a unit that is still starting ends by itself, because its gate is closed.
        (self.done, gate, timer) = (nil, nil, nil)
        child?.kill()
        if let unit { manager?.release(unit) }
        done(.failure(.failed("\(request.id) was not started: \(why)")))
    }
}

extension ProgramRequest {
    /// The properties of its transient service.
    ///
    /// Our connection references the unit (`AddRef`) until it is known how the process ended. Without the reference the
    /// unit would be gone before we could ask. The reference ends with our connection.
    ///
    /// - Parameters:
    ///   - gate: the file to run first, and its arguments.
    ///   - environment: the service manager's variables.
    fileprivate func properties(_ gate: [String], of environment: Variant?) -> [(String, Variant)] {
        // ExecStart would not do: the service manager would expand a dollar sign in an argument.
        let line = Variant.structure([.string(gate[0]), .strings(gate), .strings(["no-env-expand"])])
        var known: Set<String> = []
        if case .strings(let variables)? = environment {
            known = Set(variables.map { String($0.prefix { $0 != "=" }) })
        }
        let (set, unset) = ProgramEnvironment.ofUnit(self.environment, known: known)
        let program = command.program.split(separator: "/").last.map(String.init)
        let optional: [(String, String?)] = [
            ("SyslogIdentifier", program), ("SourcePath", entry),
        ]
        return [
            ("Description", .string(name)), ("Slice", .string("app.slice")), ("Type", .string("exec")),
            ("ExecStartEx", .array("(sasas)", [line])),
            // It ends with the last of its processes: many programs are scripts, or start another process and exit.
            ("ExitType", .string("cgroup")),
            // If the kernel kills one process for lack of memory, such as a browser tab, the rest of the application
            // must keep running.
            ("OOMPolicy", .string("continue")), ("IgnoreSIGPIPE", .bool(false)),
            ("CollectMode", .string("inactive-or-failed")), ("AddRef", .bool(true)),
            ("Environment", .strings(set)), ("UnsetEnvironment", .strings(unset)),
        ] + optional.compactMap { name, value in value.map { (name, .string($0)) } }
    }
}
