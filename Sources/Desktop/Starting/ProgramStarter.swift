public import AppStateBus
import Glibc
public import Linux

/// Starts programs. Each program runs in a transient unit of the user's service manager, or, if there is no service
/// manager, as a child in a session of its own. In both cases the process waits at a gate first.
///
/// If a service manager runs, no children are started: they would have the limits of our own unit.
public final class ProgramStarter {
    private let loop: EventLoop
    private let bus: () -> Bus?
    private let executable: String
    private let directory: String?
    private var lastNumber: UInt64 = 0
    /// Starts in progress, and programs whose exit status is not known yet.
    private var starts: [UInt64: Start] = [:]

    /// - Parameters:
    ///   - loop: the loop on which all work is done.
    ///   - bus: returns the user's bus, attached to the loop, on which the service manager is reached; nil: there is
    ///     none.
    ///   - executable: our own program, which runs `GateProgram` if it is called with `--gate`.
    ///   - directory: the user's runtime directory, which holds the gates and the service manager's socket; nil: there
    ///     is none, and gates have no place in the file system.
    public init(
        loop: EventLoop, bus: @escaping @autoclosure () -> Bus?, executable: String,
        directory: String? = Environment["XDG_RUNTIME_DIR"]
    ) {
        self.loop = loop
        self.bus = bus
        self.executable = executable
        self.directory = directory
    }

    /// Starts a program and stops it at its gate.
    ///
    /// - Parameter done: called once, from the loop, with the program that waits at its gate, or with the failure.
    public func start(
        _ request: ProgramRequest, _ done: @escaping (Result<StartedProgram, MethodError>) -> Void
    ) {
        lastNumber += 1
        let number = lastNumber
        let start = Start(
            request, number, loop: loop, bus: bus(), executable: executable,
            isManagerRunning: ServiceManager.isRunning(in: directory),
            over: { [weak self] in self?.starts[number] = nil }, done)
        starts[number] = start
        start.begin(directory)
    }
}

/// One start, from the first call to the end of the program.
private final class Start {
    private let request: ProgramRequest
    private let number: UInt64
    private let loop: EventLoop
    private let bus: Bus?
    private let executable: String
    private let isManagerRunning: Bool
    private let over: () -> Void
    private var done: ((Result<StartedProgram, MethodError>) -> Void)?
    private var gate: Gate?
    /// Processes at the gate. Any program of the user can connect to it.
    private var waiting: [StartedProgram] = []
    private var timer: Timer?
    private var deadline: UInt64 = 0
    /// The call to the service manager that is in progress.
    private var call: Slot?
    /// The wait for the service manager. Nil: there has been none.
    private var arrival: ServiceManager.Arrival?
    private var unit: UnitProgram?
    /// The service manager's signals of the unit, as long as it is asked for the process, or how that ended.
    private var changes: Slot?
    /// The service manager has started the unit.
    private var isStarted = false
    private var child: ChildProgram?
    private var program: StartedProgram?
    private var end: Source?

    /// How long the program may take to reach its gate, in microseconds.
    private static let patience: UInt64 = 20_000_000
    /// How long the service manager may take to appear on the bus, in microseconds.
    private static let managerPatience: UInt64 = 3_000_000
    /// How long the service manager may take to report how a process ended, in microseconds.
    private static let endPatience: UInt64 = 10_000_000

    init(
        _ request: ProgramRequest, _ number: UInt64, loop: EventLoop, bus: Bus?, executable: String,
        isManagerRunning: Bool, over: @escaping () -> Void,
        _ done: @escaping (Result<StartedProgram, MethodError>) -> Void
    ) {
        self.request = request
        self.number = number
        self.loop = loop
        self.bus = bus
        self.executable = executable
        self.isManagerRunning = isManagerRunning
        self.over = over
        self.done = done
    }

    func begin(_ directory: String?) {
        attempt {
            gate = try Gate(loop: loop, directory: directory, id: request.id) { [weak self] process in
                self?.waiting.append(process)
                self?.find()
            }
            timer = try loop.timer { [weak self] in self?.find() }
            deadline = loop.now + Self.patience
            timer?.arm(at: deadline)
            if let bus { try askManager(bus) } else { try startChild("there is no bus of the user") }
        }
    }

    // MARK: As a unit, or as a child

    /// Asks for the service manager's variables first.
    private func askManager(_ bus: Bus) throws {
        call = try bus.callAsync(try ServiceManager.get("Environment", bus)) { [weak self] reply in
            guard let self else { return }
            call = nil
            attempt {
                if let error = reply.error, case .noManager = ServiceManager.Failure(error) {
                    return try awaitManager(bus)
                }
                var known: Set<String> = []
                if case .strings(let variables)? = try? reply.readVariant() {
                    known = Set(variables.map { String($0.prefix { $0 != "=" }) })
                }
                try startUnit(bus, number, known)
            }
        }
    }

    private func awaitManager(_ bus: Bus) throws {
        let absence = "it is not on the bus of the user"
        guard isManagerRunning, arrival == nil else { return try startChild(absence) }
        arrival = try ServiceManager.Arrival(on: bus, loop, within: Self.managerPatience) {
            [weak self] isThere in
            self?.attempt {
                if isThere { try self?.askManager(bus) } else { try self?.startChild(absence) }
            }
        }
    }

    /// - Parameter known: the names of the service manager's variables.
    private func startUnit(_ bus: Bus, _ number: UInt64, _ known: Set<String>) throws {
        let unit = UnitProgram(UnitName.service(request.id, number), bus: bus)
        self.unit = unit
        try follow(unit)
        call = try bus.callAsync(try unit.startCall(request, gateCommand(nil), known)) { [weak self] reply in
            guard let self else { return }
            call = nil
            attempt {
                if let error = reply.error {
                    self.unit = nil
                    guard error.name == ServiceManager.unitExists,
                        number < self.number + ServiceManager.attempts
                    else { throw error }
                    // An earlier agent may have left it.
                    return try startUnit(bus, number + 1, known)
                }
                isStarted = true
                find()
            }
        }
    }

    /// - Parameter obstacle: why the program cannot be started as a unit.
    private func startChild(_ obstacle: String) throws {
        guard !isManagerRunning else {
            return fail("the service manager of the user cannot be asked for a unit: \(obstacle)")
        }
        child = try ChildProgram(
            executable, gateCommand(request.command.directory ?? Environment["HOME"]),
            environment: ProgramEnvironment.ofChild(request.environment), loop: loop
        ) { [weak self] in self?.ended($0) }
    }

    private func follow(_ unit: UnitProgram) throws {
        changes = try unit.onChange(
            failed: { [weak self] in self?.fail("\($0)") }, changed: { [weak self] in self?.find() })
    }

    private func gateCommand(_ directory: String?) -> [String] {
        [executable]
            + GateProgram.arguments(gate: gate?.address ?? "", request.command, directory: directory)
    }

    // MARK: The process

    /// Finds the process among those at the gate, and how it ended.
    private func find() {
        guard loop.now < deadline else {
            return program == nil ? fail("it was not ready in time") : ended(.unknown)
        }
        if let child { return check(child.pid) }
        guard let unit, isStarted, call == nil else { return }
        attempt {
            call = try unit.ask { [weak self] pid, status in
                self?.call = nil
                if let status { self?.ended(status) } else { self?.check(pid) }
            }
        }
    }

    private func check(_ pid: Int32) {
        guard let done, let process = waiting.first(where: { $0.pid == pid }) else { return }
        attempt {
            if let unit {
                process.unit = unit.name
                end = try loop.watch(process.descriptor) { [weak self] _ in self?.processEnded() }
            }
            (program, self.done, gate, changes, waiting) = (process, nil, nil, nil, [])
            timer?.disarm()
            done(.success(process))
        }
    }

    /// The kernel has reported the end; the service manager reports how the process ended.
    private func processEnded() {
        end?.cancel()
        end = nil
        deadline = loop.now + Self.endPatience
        timer?.arm(at: deadline)
        attempt { if let unit { try follow(unit) } }
        find()
    }

    private func ended(_ status: ExitStatus) {
        guard let program else {
            switch status {
            case .exited(let code): return fail("it ended with \(code) before it could wait")
            case .signalled(let signal, _):
                return fail("it was killed by signal \(signal) before it could wait")
            case .unknown: return fail("the service manager could not run it")
            }
        }
        end?.cancel()
        (end, timer, changes) = (nil, nil, nil)
        unit?.release()
        program.ended(status)
        over()
    }

    private func attempt(_ body: () throws -> Void) {
        do { try body() } catch { fail("\(error)") }
    }

    private func fail(_ why: String) {
        guard let done else { return }
        (self.done, gate, timer, call, changes) = (nil, nil, nil, nil, nil)
        child?.kill()
        // A unit that is about to be started ends by itself, because its gate is closed. It is not stopped: one with
        // this name may have been left by an earlier agent.
        if isStarted { unit?.stop() } else { unit?.release() }
        done(.failure(.failed("\(request.id) was not started: \(why)")))
        over()
    }
}
