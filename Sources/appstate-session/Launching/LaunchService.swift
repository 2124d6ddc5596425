import AppStateBus
import AppStateContract
import Desktop
import Linux
import Systemd

/// org.appstate1.Launcher and org.appstate1.Presenter, through which the daemon starts and shows applications and gives
/// them scopes. No other caller is obeyed.
final class LaunchService {
    /// Makes an application leave the front, by its main process.
    typealias Leave = (_ process: Int32, _ isMinimizing: Bool, _ done: @escaping () -> Void) -> Void

    private let daemon: DaemonConnection
    private let launcher: Launcher
    private let presenting: Presenting
    private let loop: EventLoop
    private let user: SessionBus
    private let leave: Leave
    private var objects: [Slot] = []

    /// - Parameters:
    ///   - daemon: the caller that is obeyed; it has registered this agent.
    ///   - session: the session bus.
    ///   - raise: brings a window to the front.
    ///   - leave: makes an application leave the front.
    init(
        loop: EventLoop, journal: Journal, daemon: DaemonConnection, session: SessionBus,
        raise: @escaping Presenting.Raise, leave: @escaping Leave
    ) throws(BusFailure) {
        self.daemon = daemon
        // If each login has a bus of its own, the service manager is still on the user's bus.
        user =
            SessionBus.userAddress == SessionBus.ownAddress
            ? session : SessionBus(address: SessionBus.userAddress, loop: loop, journal: journal)
        self.loop = loop
        launcher = Launcher(loop: loop, journal: journal, session: session, user: user)
        presenting = Presenting(session: session, launcher: launcher, journal: journal, raise: raise)
        self.leave = leave
    }

    /// - Parameter bus: the system bus.
    func start(on bus: Bus) throws(BusFailure) {
        objects = [
            try bus.add(Interface(BusNames.launcher, methods: launcherMethods), at: BusNames.agentPath),
            try bus.add(Interface(BusNames.presenter, methods: presenterMethods), at: BusNames.agentPath),
        ]
    }

    func stop() {
        objects = []
        cancelAll()
    }

    /// Cancels all launches that wait, because the daemon that has asked for them is gone.
    func cancelAll() { launcher.cancelAll() }

    /// Takes the current windows.
    func look(at windows: [ReportedWindow]) { presenting.look(at: windows) }

    // MARK: Methods

    private var launcherMethods: [Method] {
        [
            method(
                LauncherMethod.start, in: [("app_id", "s"), ("options", "a{sv}")],
                out: [("launch", "t"), ("pidfd", "h"), ("held", "b"), ("unit", "s")]
            ) { [unowned self] in try start($0) },
            method(LauncherMethod.proceed, in: [("launch", "t")]) { [unowned self] call in
                try launch(in: call).proceed(Self.answer(to: call))
            },
            method(LauncherMethod.cancel, in: [("launch", "t")]) { [unowned self] call in
                try launch(in: call).cancel()
                try call.reply()
            },
            method(
                LauncherMethod.open, in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")]
            ) { [unowned self] call in
                let ((id, pid), request) = (try Self.application(in: call), try Self.request(in: call))
                presenting.open(id, pid, request, Self.answer(to: call))
            },
            method(LauncherMethod.getExit, in: [("launch", "t")], out: [("how", "s"), ("status", "i")]) {
                [unowned self] in try tellExit($0)
            },
            method(
                LauncherMethod.makeScope, in: [("app_id", "s"), ("main", "h"), ("others", "au")],
                out: [("unit", "s")]
            ) { [unowned self] in try makeScope($0) },
        ]
    }

    private var presenterMethods: [Method] {
        [
            method(
                PresenterMethod.present, in: [("app_id", "s"), ("pid", "u"), ("options", "a{sv}")],
                out: [("raised", "b")]
            ) { [unowned self] call in
                let ((_, pid), request) = (try Self.application(in: call), try Self.request(in: call))
                let isRaised = presenting.present(pid, request.token)
                try call.reply { try $0.append(isRaised) }
            },
            method(PresenterMethod.leave, in: [("app_id", "s"), ("pid", "u"), ("minimize", "b")]) {
                [unowned self] call in
                let (_, pid) = try Self.application(in: call)
                let isMinimizing = try call.read { try $0.readBool() }
                let answer = Self.answer(to: call)
                leave(pid, isMinimizing) { answer(nil) }
            },
        ]
    }

    private func method(
        _ name: some MethodName, in arguments: [(String, String)], out results: [(String, String)] = [],
        _ handler: @escaping (borrowing Call) throws -> Void
    ) -> Method {
        Method(name.rawValue, in: arguments, out: results) { [unowned self] call in
            // Root, and any other caller that the bus permits, may send us a call.
            guard call.sender == daemon.daemon else {
                throw MethodError(
                    ErrorName.accessDenied.rawValue, "only the owner of \(BusNames.service) may call this")
            }
            try handler(call)
        }
    }

    private func start(_ call: borrowing Call) throws {
        let (id, request) = (try Self.id(in: call), try Self.request(in: call))
        let pending = call.deferred()
        launcher.start(id, request, isGated: true) { result in
            switch result {
            case .failure(let error): pending.fail(error)
            case .success(let launch):
                guard let program = launch.program else {
                    return pending.fail(.failed("\(id) has no process"))
                }
                pending.reply { reply in
                    try reply.append(launch.number)
                    try reply.append(descriptor: program.descriptor)
                    try reply.append(launch.isHeld)
                    try reply.append(program.unit ?? "")
                }
            }
        }
    }

    private func tellExit(_ call: borrowing Call) throws {
        let program = try launch(in: call).program
        let pending = call.deferred()
        program?.onEnd { status in
            let (how, number): (String, Int32) =
                switch status {
                case .exited(let code): ("exited", code)
                case .signalled(let signal, _): ("signaled", signal)
                case .unknown: ("unknown", 0)
                }
            pending.reply { reply in
                try reply.append(how)
                try reply.append(number)
            }
        }
    }

    private func makeScope(_ call: borrowing Call) throws {
        let id = try Self.id(in: call)
        let bus = try user.connection()
        let main = try Self.process(try call.read { try $0.readDescriptor() })
        let others = try call.read { try $0.readUInt32s() }.map(Self.pid)
        let pending = call.deferred()
        ScopeMaker.make(id, main: main, others: others, bus: bus, loop: loop) { result in
            switch result {
            case .success(let unit): pending.reply { try $0.append(unit) }
            case .failure(let error): pending.fail(error)
            }
        }
    }

    // MARK: Arguments and answers

    private static func answer(to call: borrowing Call) -> (MethodError?) -> Void {
        let pending = call.deferred()
        return { error in if let error { pending.fail(error) } else { pending.reply() } }
    }

    private func launch(in call: borrowing Call) throws -> Launch {
        try launcher.launch(try call.read { try $0.readUInt64() })
    }

    private static func request(in call: borrowing Call) throws -> LaunchRequest {
        LaunchRequest(reading: try call.read { try $0.readDictionary() })
    }

    /// The id of an application and its main process.
    private static func application(in call: borrowing Call) throws -> (String, Int32) {
        (try id(in: call), try pid(try call.read { try $0.readUInt32() }))
    }

    /// - Parameter descriptor: a pidfd; closed if it is refused.
    private static func process(_ descriptor: Int32) throws(MethodError) -> PidFD {
        do throws(KernelFailure) {
            return try PidFD(adopting: Descriptor(owning: descriptor))
        } catch {
            guard error.isNoSuchProcess else { throw .invalidArgs("main: \(error)") }
            throw MethodError(ErrorName.noSuchProcess.rawValue, "main: \(error)")
        }
    }

    private static func pid(_ number: UInt32) throws(MethodError) -> Int32 {
        guard let pid = Int32(exactly: number), pid > 0 else {
            throw .invalidArgs("\(number) is not a process")
        }
        return pid
    }

    private static func id(in call: borrowing Call) throws -> String {
        let text = try call.read { try $0.readString() }
        guard let id = ApplicationID(text) else {
            throw MethodError.invalidArgs("app_id: \"\(text)\" is not an application id")
        }
        return id.rawValue
    }
}
