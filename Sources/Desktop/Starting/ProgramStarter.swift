public import AppStateBus
import Glibc
public import Linux

/// Starts programs. Each program runs in a transient unit of the user's service manager, or, if there is no service
/// manager, as a child in a session of its own. In both cases the process waits at a gate first.
///
/// If a service manager runs, no children are started: they would have the limits of our own unit.
public final class ProgramStarter {
    private let loop: EventLoop
    private let bus: Bus?
    private let executable: String
    private let directory: String?
    private var lastNumber: UInt64 = 0
    /// Starts in progress, and programs whose exit status is not known yet.
    private var starts: [UInt64: Start] = [:]

    /// - Parameters:
    ///   - loop: the loop on which all work is done.
    ///   - bus: the user's bus, attached to the loop, on which the service manager is reached; nil: there is none.
    ///   - executable: our own program, which runs `GateProgram` if it is called with `--gate`.
    ///   - directory: the user's runtime directory, which holds the gates and the service manager's socket; nil: there
    ///     is none, and gates have no place in the file system.
    public init(
        loop: EventLoop, bus: Bus?, executable: String, directory: String? = Environment["XDG_RUNTIME_DIR"]
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
        _ request: ProgramRequest, _ done: @escaping (Result<StartedProgram, DesktopFailure>) -> Void
    ) {
        lastNumber += 1
        let number = lastNumber
        let start = Start(
            request, number, loop: loop, over: { [weak self] in self?.starts[number] = nil }, done)
        starts[number] = start
        do {
            try start.begin(bus: bus, executable: executable, directory: directory)
        } catch {
            start.fail("\(error)")
        }
    }
}

/// One start, from the first call to the end of the program.
private final class Start {
    private let request: ProgramRequest
    private let number: UInt64
    private let loop: EventLoop
    private let over: () -> Void
    private var done: ((Result<StartedProgram, DesktopFailure>) -> Void)?
    private var gate: Gate?
    private var timer: Timer?
    private var call: UnitProgram.Call?
    private var unit: UnitProgram?
    private var child: ChildProgram?
    private var started: StartedProgram?
    private var end: Source?
    /// Processes that arrived at the gate before the unit that they must belong to is known.
    private var early: [WaitingProcess] = []
    /// The wait for the service manager. Nil: there has been none.
    private var arrival: ServiceManager.Arrival?
    private var isManagerRunning = false

    /// How long the program may take to reach its gate, in microseconds.
    private static let patience: UInt64 = 20_000_000
    /// How long the service manager may take to appear on the bus, in microseconds.
    private static let managerPatience: UInt64 = 3_000_000
    /// How long the service manager may take to report how a process ended, in microseconds.
    private static let endPatience: UInt64 = 10_000_000

    init(
        _ request: ProgramRequest, _ number: UInt64, loop: EventLoop, over: @escaping () -> Void,
        _ done: @escaping (Result<StartedProgram, DesktopFailure>) -> Void
    ) {
        self.request = request
        self.number = number
        self.loop = loop
        self.over = over
        self.done = done
    }

    func begin(bus: Bus?, executable: String, directory: String?) throws {
        let gate = try Gate(loop: loop, directory: directory) { [weak self] in self?.arrived($0) }
        self.gate = gate
        timer = try loop.timer { [weak self] in self?.late() }
        timer?.arm(at: Clock.monotonicMicroseconds + Self.patience)
        isManagerRunning = ServiceManager.isRunning(in: directory)
        guard let bus else { return try startChild(executable, gate, "there is no bus of the user") }
        startUnit(bus, executable, gate)
    }

    private func startUnit(_ bus: Bus, _ executable: String, _ gate: Gate) {
        let arguments = GateProgram.arguments(gate: gate.address, request.invocation, directory: nil)
        do {
            do throws(BusFailure) {
                call = try UnitProgram.start(request, (executable, arguments), number: number, bus: bus) {
                    [weak self] result in
                    self?.answered(result, bus, executable, gate)
                }
            } catch {
                // The connection is lost, or the bus cannot carry the message.
                try startChild(executable, gate, "\(error)")
            }
        } catch {
            fail("\(error)")
        }
    }

    private func answered(
        _ result: Result<UnitProgram, ServiceManager.Failure>, _ bus: Bus, _ executable: String, _ gate: Gate
    ) {
        call = nil
        do {
            switch result {
            case .success(let unit):
                self.unit = unit
                try unit.watch { [weak self] in self?.ended($0) }
                let early = early
                self.early = []
                for process in early { arrived(process) }
            case .failure(.noManager) where arrival == nil && isManagerRunning:
                try awaitManager(bus, executable, gate)
            case .failure(.noManager): try startChild(executable, gate, Self.absence)
            case .failure(.refused(let why)): fail(why)
            }
        } catch {
            fail("\(error)")
        }
    }

    private func awaitManager(_ bus: Bus, _ executable: String, _ gate: Gate) throws {
        arrival = try ServiceManager.Arrival(on: bus, loop, within: Self.managerPatience) {
            [weak self] isThere in
            guard let self, done != nil else { return }
            do {
                if !isThere { return try startChild(executable, gate, Self.absence) }
                startUnit(bus, executable, gate)
            } catch {
                fail("\(error)")
            }
        }
    }

    private static let absence = "it is not on the bus of the user"

    /// - Parameter obstacle: why the program cannot be started as a unit.
    private func startChild(_ executable: String, _ gate: Gate, _ obstacle: String) throws {
        guard !isManagerRunning else {
            return fail("the service manager of the user cannot be asked for a unit: \(obstacle)")
        }
        let place = request.invocation.directory ?? Environment["HOME"]
        child = try ChildProgram(
            executable,
            [executable]
                + GateProgram.arguments(gate: gate.address, request.invocation, directory: place),
            environment: ProgramEnvironment.ofChild(request.environment), loop: loop
        ) { [weak self] in self?.ended($0) }
    }

    // MARK: At the gate

    private func arrived(_ process: WaitingProcess) {
        if let child { return check(process, child.pid, unit: nil) }
        // The process may arrive before the answer to the call that started it.
        guard let unit else { return early.append(process) }
        unit.askProcess { [weak self] pid in self?.check(process, pid, unit: unit.unit) }
    }

    /// Checks the PID, because any program of the user can connect to the gate.
    private func check(_ process: WaitingProcess, _ pid: Int32?, unit: String?) {
        guard process.pid == pid, let done else { return }
        let started = StartedProgram(request, process, unit: unit)
        do throws(BusFailure) {
            if unit != nil {
                end = try loop.watch(process.descriptor) { [weak self] _ in self?.processEnded() }
            }
        } catch {
            return fail("\(error)")
        }
        self.started = started
        self.done = nil
        gate?.close()
        gate = nil
        timer?.disarm()
        done(.success(started))
    }

    /// The kernel has reported the end; the service manager reports how the process ended.
    private func processEnded() {
        end?.cancel()
        end = nil
        unit?.ask()
        timer = try? loop.timer { [weak self] in self?.ended(.unknown) }
        if let timer { timer.arm(at: loop.now + Self.endPatience) } else { ended(.unknown) }
    }

    private func ended(_ status: ExitStatus) {
        guard let started else {
            switch status {
            case .exited(let code): return fail("it ended with \(code) before it could wait")
            case .signalled(let signal, _):
                return fail("it was killed by signal \(signal) before it could wait")
            case .unknown: return fail("the service manager could not run it")
            }
        }
        end?.cancel()
        (end, timer) = (nil, nil)
        unit?.release()
        started.ended(status)
        over()
    }

    private func late() { fail("it was not ready in time") }

    func fail(_ why: String) {
        guard let done else { return }
        self.done = nil
        gate?.close()
        gate = nil
        timer = nil
        child?.kill()
        call?.abandon()
        unit?.stop()
        done(.failure(.notStarted(id: request.id, why: why)))
        over()
    }
}
