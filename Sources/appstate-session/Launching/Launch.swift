import AppStateBus
import AppStateContract
import Desktop
import Glibc
import Linux
import Systemd
import Windows

/// The daemon's request for a launch: the options of `Start`, `Open` and `Present`, which the daemon has checked.
struct LaunchRequest {
    var urls: [String] = []
    /// The application must not show a window.
    var isBackground = false
    /// The activation token of the user's action.
    var token: String?

    /// Reads `a{sv}`.
    init(reading options: [(key: String, value: Variant)]) {
        for (key, value) in options {
            switch (key, value) {
            case ("urls", .strings(let urls)): self.urls = urls
            case ("launch-mode", let mode): isBackground = mode == .string("background")
            case ("activation-token", .string(let text)): token = text.isEmpty ? nil : text
            default: break
            }
        }
    }
}

/// The parts of the agent that a launch needs.
struct LaunchTools {
    let starter: ProgramStarter
    let notices: StartupNotices
    let session: SessionBus
    let loop: EventLoop
    let journal: Journal
}

/// One start of a desktop entry, from the first question to the end of its process.
final class Launch {
    let number: UInt64
    /// The process, at its gate and afterwards; nil: there is none yet.
    private(set) var program: StartedProgram?
    /// Whether the process waits at its gate.
    private(set) var isHeld = false
    private let id: String
    private let request: LaunchRequest
    private let tools: LaunchTools
    private let isGated: Bool
    private let answered: (MethodError?) -> Void
    private var isCancelled = false
    private var token: String?
    /// The programs to start in addition when the launch proceeds.
    private var rest: [ProgramRequest] = []
    /// The call on the session bus.
    private var call: Slot?

    /// - Parameters:
    ///   - isGated: the process waits until it may proceed; otherwise it never waits.
    ///   - answered: called once, after `begin`, with the reason why it was not started; nil: it was started.
    init(
        _ number: UInt64, _ id: String, _ request: LaunchRequest, isGated: Bool, tools: LaunchTools,
        _ answered: @escaping (MethodError?) -> Void
    ) {
        (self.number, self.id, self.request, self.isGated) = (number, id, request, isGated)
        (self.tools, self.answered) = (tools, answered)
    }

    func begin() {
        do throws(MethodError) {
            let entry = try DesktopEntry(id, opening: request.urls)
            if entry.isDBusActivatable, RunningApplication.isBusName(id),
                let bus = try? tools.session.connection()
            {
                announce(entry, program: nil) { [self] in activate(entry, RunningApplication(id, on: bus)) }
            } else {
                execute(entry)
            }
        } catch {
            answer(error)
        }
    }

    private func answer(_ error: MethodError?) {
        // If nothing of the application runs, it has no window and will have none.
        if program == nil { endNotice() }
        answered(error)
    }

    // MARK: By the session bus

    private func activate(_ entry: DesktopEntry, _ application: RunningApplication) {
        guard !isCancelled else { return answer(Self.cancelled) }
        attempt {
            call = try application.start { [unowned self] error in
                if let error {
                    guard RunningApplication.isAbsence(error) else { return failByBus("\(error)") }
                    return execute(entry, because: "\(error)")
                }
                attempt {
                    call = try application.bus.askHeldProcess(of: id) { [unowned self] owner in
                        take(owner, entry, application)
                    }
                }
            }
        }
    }

    private func take(
        _ owner: (pid: Int32, descriptor: Int32?)?, _ entry: DesktopEntry, _ application: RunningApplication
    ) {
        guard let owner else { return failByBus("it has ended, or the bus does not know its process") }
        attempt {
            guard let program = try running(owner) else {
                return execute(entry, because: "no process is found behind the Flatpak's proxy")
            }
            self.program = program
            // The application has not been asked for anything before.
            if !request.isBackground || !request.urls.isEmpty {
                call = try application.present(request.urls, token: token) { [tools, id] error in
                    if let error { tools.journal.log(.notice, "\(id) does not show itself: \(error)") }
                }
            }
            answer(nil)
        }
    }

    private func running(_ owner: (pid: Int32, descriptor: Int32?)) throws -> StartedProgram? {
        // From the bus's point of view, a Flatpak's proxy owns the name.
        if let unit = Proc().flatpakUnit(ofProxy: owner.pid) {
            if let descriptor = owner.descriptor { close(descriptor) }
            return try Proc().mainProcess(ofFlatpak: unit).map { main in
                try StartedProgram(running: try PidFD(pid: main.pid), pid: main.pid, loop: tools.loop)
            }
        }
        return try StartedProgram(running: try Self.hold(owner), pid: owner.pid, loop: tools.loop)
    }

    /// Without a descriptor from the bus the PID is opened: a moment ago the process owned its name.
    private static func hold(_ owner: (pid: Int32, descriptor: Int32?)) throws(KernelFailure) -> PidFD {
        guard let descriptor = owner.descriptor else { return try PidFD(pid: owner.pid) }
        return try PidFD(adopting: Descriptor(owning: descriptor))
    }

    private func attempt(_ body: () throws -> Void) {
        do { try body() } catch { failByBus("\(error)") }
    }

    private func failByBus(_ why: String) {
        answer(.failed("\(id) was not started by the session bus: \(why)"))
    }

    /// The bus has nothing to start for the name, or there is no bus.
    private func execute(_ entry: DesktopEntry, because why: String) {
        guard entry.obstacle == nil else { return failByBus(why) }
        tools.journal.log(.info, "\(id) is started with its Exec line: \(why)")
        endNotice()
        execute(entry)
    }

    // MARK: By its command line

    private func execute(_ entry: DesktopEntry) {
        guard let first = entry.commands.first else {
            return answer(.failed(entry.obstacle ?? "there is nothing to start"))
        }
        rest = entry.commands.dropFirst().map { ProgramRequest(entry, $0) }
        announce(entry, program: first.arguments.first) { [self] in
            guard !isCancelled else { return answer(Self.cancelled) }
            let environment = token.map { token in Self.tokenNames.map { (name: $0, value: token) } }
            tools.starter.start(ProgramRequest(entry, first, environment: environment ?? [])) {
                [self] result in
                switch result {
                case .failure(let failure): answer(failure)
                case .success(let program): take(program)
                }
            }
        }
    }

    /// The variables in which a program finds its token. On X11 it removes only the second: what it starts later would
    /// find a token in the first that is used up.
    private static var tokenNames: [String] {
        (Environment["WAYLAND_DISPLAY"] == nil ? [] : ["XDG_ACTIVATION_TOKEN"]) + ["DESKTOP_STARTUP_ID"]
    }

    private func take(_ program: StartedProgram) {
        guard !isCancelled else {
            program.cancel()
            return answer(Self.cancelled)
        }
        (self.program, isHeld) = (program, true)
        program.onEnd { [weak self] _ in self?.endNotice() }
        if isGated { answer(nil) } else { proceed { [self] in answer($0) } }
    }

    private static let cancelled = MethodError.failed("the launch was cancelled")

    // MARK: Outcome

    /// Opens the gate if it is not open.
    ///
    /// - Parameter done: called once: when the program runs, or with the reason why it does not.
    func proceed(_ done: @escaping (MethodError?) -> Void) {
        guard let program, !program.hasExited, !isCancelled else {
            return done(
                MethodError(ErrorName.noSuchProcess.rawValue, "there is no process of launch \(number)"))
        }
        guard isHeld else { return done(nil) }
        isHeld = false
        program.proceed { [self] why in
            if let why { return done(.failed("\(id) was not started: \(why)")) }
            startRest()
            done(nil)
        }
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
        guard isHeld || program == nil else { return }
        (isHeld, isCancelled) = (false, true)
        program?.cancel()
        endNotice()
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
        if let token, tools.notices.isShown(token), let program, hasWindow(program.pid) { endNotice() }
    }

    private func endNotice() { if let token { tools.notices.end(token) } }
}
