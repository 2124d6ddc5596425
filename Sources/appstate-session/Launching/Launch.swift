import AppStateBus
import AppStateContract
import Desktop
import Linux
import Systemd
import Windows

/// The parts of the agent that a launch needs.
struct LaunchTools {
    let starter: ProgramStarter
    let notices: StartupNotices
    let session: SessionBus
    let journal: Journal
}

/// One start of a desktop entry, from the first question to the end of its process.
final class Launch {
    let id: String
    /// The time at which the launch is cancelled if it is not settled by then.
    var deadline: UInt64?
    /// Whether the launch no longer waits for anything: the process may run, or will never run.
    private(set) var isSettled = false
    private let request: LaunchRequest
    private let tools: LaunchTools
    private let isGated: Bool
    private var answered: ((MethodError?) -> Void)?
    private var isCancelled = false
    private var program: StartedProgram?
    private var activation: BusActivation?
    private var activated: BusActivation.Running?
    private var token: String?
    /// The programs to start in addition when the launch proceeds.
    private var rest: [ProgramRequest] = []

    /// - Parameters:
    ///   - isGated: the process waits until it may proceed; otherwise it never waits.
    init(_ id: String, _ request: LaunchRequest, isGated: Bool, tools: LaunchTools) {
        self.id = id
        self.request = request
        self.isGated = isGated
        self.tools = tools
    }

    /// Whether the launch is answered and the desktop does not show it.
    var isOver: Bool { answered == nil && !isShown }
    private var isShown: Bool { token.map(tools.notices.isShown) ?? false }

    /// A pidfd of the process, owned by this object.
    var descriptor: Int32? { program?.descriptor ?? activated?.process.rawValue }
    /// Whether the process waits at its gate.
    var isHeld: Bool { program != nil && !isSettled }
    /// The unit of the process; empty: it has none.
    var unit: String { program?.unit ?? "" }

    /// Starts the application.
    ///
    /// - Parameter answered: called once with the reason why it was not started; nil: it was started.
    func begin(_ answered: @escaping (MethodError?) -> Void) {
        self.answered = answered
        do throws(MethodError) {
            let entry = try DesktopEntry(id, opening: request.urls)
            if let bus = bus(for: entry) {
                announce(entry, program: nil) { [self] in activate(entry, on: bus) }
            } else {
                execute(entry)
            }
        } catch {
            finish(error)
        }
    }

    private func finish(_ error: MethodError?) {
        if error != nil { settle() }
        let answered = answered
        self.answered = nil
        answered?(error)
    }

    private func settle() {
        isSettled = true
        // If nothing of the application runs, it has no window and will have none.
        if program == nil, activated == nil { endNotice() }
    }

    // MARK: By the session bus

    /// Nil if the bus is not to start the application.
    private func bus(for entry: DesktopEntry) -> Bus? {
        guard entry.isDBusActivatable, RunningApplication.isBusName(id) else { return nil }
        return try? tools.session.connection()
    }

    private func activate(_ entry: DesktopEntry, on bus: Bus) {
        guard !isCancelled else { return finish(Self.cancelled) }
        do throws(BusFailure) {
            activation = try BusActivation(
                id, request, token: token, on: bus, complain: { [tools] in tools.journal.log(.notice, $0) },
                done: { [unowned self] in take($0, entry) })
        } catch {
            finish(.failed("\(id) was not started: \(error)"))
        }
    }

    private func take(_ outcome: BusActivation.Outcome, _ entry: DesktopEntry) {
        switch outcome {
        case .started(let running):
            activated = running
            isSettled = true
            finish(nil)
        case .failed(let why): finish(.failed("\(id) was not started by the session bus: \(why)"))
        case .notActivatable(let why):
            guard entry.obstacle == nil else {
                return finish(.failed("\(id) was not started by the session bus: \(why)"))
            }
            tools.journal.log(.info, "\(id) is started with its Exec line: \(why)")
            endNotice()
            execute(entry)
        }
    }

    // MARK: By its command line

    private func execute(_ entry: DesktopEntry) {
        guard let first = entry.commands.first else {
            return finish(.failed(entry.obstacle ?? "there is nothing to start"))
        }
        rest = entry.commands.dropFirst().map { ProgramRequest(entry, $0) }
        announce(entry, program: first.arguments.first) { [self] in
            guard !isCancelled else { return finish(Self.cancelled) }
            let environment = token.map { token in Self.tokenNames.map { (name: $0, value: token) } }
            tools.starter.start(ProgramRequest(entry, first, environment: environment ?? [])) {
                [self] in take($0)
            }
        }
    }

    /// The variables in which a program finds its token. On X11 it removes only the second: what it starts later would
    /// find a token in the first that is used up.
    private static var tokenNames: [String] {
        (Environment["WAYLAND_DISPLAY"] == nil ? [] : ["XDG_ACTIVATION_TOKEN"]) + ["DESKTOP_STARTUP_ID"]
    }

    private func take(_ result: Result<StartedProgram, MethodError>) {
        switch result {
        case .failure(let failure): finish(failure)
        case .success(let program):
            guard !isCancelled else {
                program.cancel()
                return finish(Self.cancelled)
            }
            self.program = program
            program.onEnd { [weak self] _ in self?.endNotice() }
            guard !isGated else { return finish(nil) }
            if !proceed({ [self] in finish($0) }) {
                finish(.failed("\(id) was not started: its process has ended"))
            }
        }
    }

    private static let cancelled = MethodError.failed("the launch was cancelled")

    // MARK: Outcome

    /// Opens the gate if it is not open.
    ///
    /// - Parameter done: called once, if there is a process that may run: when it runs, or with the reason why it
    ///   cannot.
    /// - Returns: whether there is one.
    func proceed(_ done: @escaping (MethodError?) -> Void) -> Bool {
        guard !isCancelled else { return false }
        let hasExited = program?.hasExited ?? activated?.process.hasExited
        guard hasExited == false else { return false }
        guard let program, !isSettled else {
            done(nil)
            return true
        }
        isSettled = true
        program.proceed { [self] why in
            if let why { return done(.failed("\(id) was not started: \(why)")) }
            startRest()
            done(nil)
        }
        return true
    }

    /// Starts the remaining programs one after the other: each is started when the one before has begun.
    private func startRest() {
        guard !rest.isEmpty else { return }
        tools.starter.start(rest.removeFirst()) { [self] result in
            switch result {
            case .success(let program): program.proceed()
            case .failure(let failure): tools.journal.log(.warning, "\(id): \(failure)")
            }
            startRest()
        }
    }

    /// Ends the process at the gate, even if it has not reached the gate yet.
    func cancel() {
        guard !isSettled else { return }
        (isSettled, isCancelled) = (true, true)
        program?.cancel()
        endNotice()
    }

    /// Reports how the process ended, as soon as that is known.
    func tellExit(_ answered: @escaping (LaunchExit) -> Void) {
        if let program {
            guard program.hasExited else { return answered(.running) }
            program.onEnd { answered(LaunchExit($0)) }
        } else if let activated {
            answered(activated.process.hasExited ? LaunchExit(activated.process.exitStatus()) : .running)
        } else {
            answered(LaunchExit(.unknown))
        }
    }

    // MARK: Startup notification

    private func announce(_ entry: DesktopEntry, program: String?, _ done: @escaping () -> Void) {
        token = request.token
        guard token == nil, !request.isBackground else { return done() }
        let start = StartupNotifier.Start(
            name: entry.name, program: program?.split(separator: "/").last.map(String.init), icon: entry.icon,
            windowClass: entry.startupWMClass, applicationID: id)
        tools.notices.begin(start, isShown: entry.startupNotify) { [self] token in
            self.token = token
            done()
        }
    }

    /// With the first window of the application, the start is over for the desktop.
    func endNotice(where hasWindow: (Int32) -> Bool) {
        if isShown, let process = program?.pid ?? activated?.pid, hasWindow(process) { endNotice() }
    }

    private func endNotice() { if let token { tools.notices.end(token) } }
}

/// How the process of a launch ended, as `GetExit` returns it.
struct LaunchExit: Equatable {
    let how: String
    /// The exit status, or the signal.
    let status: Int32

    static let running = LaunchExit(how: "running", status: 0)

    private init(how: String, status: Int32) {
        self.how = how
        self.status = status
    }

    init(_ status: ExitStatus) {
        switch status {
        case .exited(let code): self.init(how: "exited", status: code)
        case .signalled(let signal, _): self.init(how: "signaled", status: signal)
        case .unknown: self.init(how: "unknown", status: 0)
        }
    }
}
