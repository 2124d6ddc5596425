import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

/// Launching: the session agent starts the program and holds it at its gate, and the daemon registers the
/// process and then lets it proceed. The process is therefore an application before its program's first
/// instruction.
extension Daemon {
    /// Starts an application, or brings the running one to the front.
    ///
    /// - Parameters:
    ///   - session: the session whose agent is called.
    ///   - answer: gets the application, once.
    func launch(
        _ id: ApplicationID, of user: UInt32, in session: SessionKey, _ request: LaunchRequest,
        _ answer: @escaping Launches.Answer
    ) {
        let key = Launches.Key(user: user, id: id)
        let again = { [unowned self] in launch(id, of: user, in: session, request, answer) }
        let isUnderWay = launches.wait(for: key) { failure in
            if let failure { answer(.failure(failure)) } else { again() }
        }
        if isUnderWay { return }
        if let running = running(id, of: user, in: session) {
            return present(running, request, answer, orElse: again)
        }
        guard let agent = agent(.launcher, of: user, in: session) else {
            return answer(.failure(Self.noAgent(session)))
        }
        if let former = ending(id, of: user) { return wait(untilGone: former, answer, again) }
        let begun = Self.now
        launches.begin(key)
        let conclude = { [launches] (result: Result<ApplicationNumber, MethodError>) in
            answer(result)
            if case .failure(let error) = result { launches.end(key, error) } else { launches.end(key, nil) }
        }
        call(agent, LauncherMethod.start) { message throws(BusFailure) in
            try message.append(id.rawValue)
            try message.appendDictionary(request.startOptions)
        } answered: { [unowned self] reply in
            switch started(id, of: user, request, at: begun, by: agent, reply) {
            case .failure(let error): conclude(.failure(error))
            case .success((let number, nil)): conclude(.success(number))
            case .success((let number, let launch?)):
                openGate(of: launch, at: agent) { [unowned self] failure in
                    if let failure {
                        try? perform(.unregister(number))
                        conclude(.failure(failure))
                    } else {
                        conclude(.success(number))
                    }
                }
            }
        } failed: {
            conclude(.failure($0))
        }
    }

    /// The running application with this id. Of several, those in this session come first, and then the one registered
    /// last.
    func running(_ id: ApplicationID, of user: UInt32, in session: SessionKey) -> Application? {
        let all = applications(id, of: user).filter { !isEnding($0) }
        let here = all.filter { $0.session == session }
        return (here.isEmpty ? all : here).max { $0.registeredAt < $1.registeredAt }
    }

    /// An application with this id that is ending. A new process beside it would not find the state that it is about to
    /// save, and a program that runs only once would pass its URLs to the old process.
    private func ending(_ id: ApplicationID, of user: UInt32) -> Application? {
        applications(id, of: user).first(where: isEnding)
    }

    private func applications(_ id: ApplicationID, of user: UInt32) -> [Application] {
        core.machine.applications.values.filter {
            $0.id == id && $0.user == user && table[$0.number]?.isKnownByID == true
        }
    }

    /// Whether an application is being ended, or its process has ended.
    func isEnding(_ application: Application) -> Bool {
        application.isTerminating || processes.hasEnded(application.process)
    }

    func agent(_ role: Agents.Role, of user: UInt32, in session: SessionKey) -> Agents.Agent? {
        agents.agent(role, of: session, for: user)
            ?? Login.displaySession(ofUser: user).flatMap { agents.agent(role, of: .login($0), for: user) }
            ?? agents.agent(role, of: .user(user), for: user)
    }

    static func noAgent(_ session: SessionKey) -> MethodError {
        let place =
            switch session {
            case .login: "\(session)"
            case .user: "\(session), no logind session"
            }
        return MethodError(
            .noSessionAgent, "No session agent runs for you (\(place)): start appstate-session")
    }

    // MARK: Starting

    /// In microseconds; a D-Bus call fails by default after 25 s (sd_bus_call(3)).
    private static let patienceWithEnd: Microseconds = 20_000_000

    /// Calls `proceed` when an ending application is gone, or is not to end after all.
    private func wait(
        untilGone application: Application, _ answer: @escaping Launches.Answer,
        _ proceed: @escaping () -> Void
    ) {
        let number = application.number
        wait(until: Self.now + Self.patienceWithEnd) { [unowned self] in
            core.application(number).map(isEnding) != true
        } then: { isGone in
            if isGone { return proceed() }
            let words = "\(application.id) (process \(application.process.pid)) is still ending"
            answer(.failure(MethodError(.failed, words)))
        }
    }

    private func call<Name: MethodName>(
        _ agent: Agents.Agent, _ method: Name, _ write: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (MethodError) -> Void
    ) {
        agents.call(
            agent.connection, of: agent.user, method, within: Agents.patience, write, answered: answered,
            failed: failed)
    }

    /// Lets the program run. The caller of the launch gets its answer when the program runs.
    private func openGate(
        of launch: UInt64, at agent: Agents.Agent, _ done: @escaping (MethodError?) -> Void
    ) {
        call(agent, LauncherMethod.proceed) { message throws(BusFailure) in
            try message.append(launch)
        } answered: { _ in
            done(nil)
        } failed: { [agents] in
            agents.send(agent.connection, LauncherMethod.cancel, launch)
            done($0)
        }
    }

    /// - Returns: the application, and the number of its launch if it waits at its gate.
    private func started(
        _ id: ApplicationID, of user: UInt32, _ request: LaunchRequest, at begun: Microseconds,
        by agent: Agents.Agent, _ reply: borrowing Message
    ) -> Result<(ApplicationNumber, held: UInt64?), MethodError> {
        do {
            guard reply.signature == "thbs" else {
                throw MethodError(
                    .failed, "The session agent's answer has the wrong type \(reply.signature.shortened)")
            }
            let (launch, descriptor, isHeld) = try startedProcess(reply)
            do throws(MethodError) {
                let number = try enrollLaunched(
                    try subject(descriptor: descriptor), id, of: user, request, at: begun, isHeld: isHeld,
                    Registered.Launch(agent: agent.connection, number: launch))
                return .success((number, held: isHeld ? launch : nil))
            } catch {
                if isHeld { agents.send(agent.connection, LauncherMethod.cancel, launch) }
                throw Self.refusal(error, of: id)
            }
        } catch let error as MethodError {
            return .failure(error)
        } catch {
            return .failure(MethodError(.failed, "The session agent's answer cannot be read: \(error)"))
        }
    }

    /// The process was chosen by the agent: what is wrong with it is not the fault of the caller of `Launch`, as its
    /// error name would say.
    private static func refusal(_ error: MethodError, of id: ApplicationID) -> MethodError {
        if error.name == ErrorName.limitsExceeded.rawValue { return error }
        return MethodError(.failed, "The process that was started cannot be \(id): \(error.message)")
    }

    /// The number of the launch, the process, and whether it waits at its gate. The caller owns the descriptor; if the
    /// rest cannot be read, it is closed.
    private func startedProcess(
        _ reply: borrowing Message
    ) throws -> (launch: UInt64, descriptor: Int32, isHeld: Bool) {
        let launch = try reply.readUInt64()
        let descriptor = Descriptor(owning: try reply.readOwnedDescriptor())
        let isHeld = try reply.readBool()
        return (launch, descriptor.release(), isHeld)
    }

    /// Registers the process that the agent has started. A process that the session bus has started may
    /// already have registered itself. In that case it is the application.
    private func enrollLaunched(
        _ subject: consuming NamedProcess, _ id: ApplicationID, of user: UInt32, _ request: LaunchRequest,
        at begun: Microseconds, isHeld: Bool, _ launch: Registered.Launch
    ) throws(MethodError) -> ApplicationNumber {
        let process = ProcessID(subject.identity)
        guard subject.owner.isWholly(user) else {
            throw MethodError(.accessDenied, "Process \(process.pid) does not belong to user \(user)")
        }
        // A process that does not wait was started by the session bus, and has already been asked to open the
        // URLs.
        var rest = request
        if !isHeld { rest.urls = [] }
        if let known = core.machine.application(of: process) {
            guard known.id == id else { throw MethodError(.alreadyRegistered(process, known.number)) }
            // An application that has run before was not started by this launch.
            let given = known.registeredAt >= begun ? request.launchOptions : []
            try checkRoom(LaunchOptions.bytes(of: given), of: user)
            record(launch, given, of: known.number)
            if known.delegate != nil || request.scheduledLaunch != nil, !rest.deliveries.isEmpty {
                try perform(.deliver(known.number, rest.deliveries, request.words))
            }
            return known.number
        }
        try checkKind(subject)
        let given = request.launchOptions
        try checkRoom(LaunchOptions.bytes(of: given), of: user)
        var registration = Registration(
            id: id, process: process, user: user, session: sessions.key(ofProcess: process.pid, user: user))
        registration.launchMode = request.launchMode
        registration.launched = true
        registration.deliveries = rest.deliveries
        return try enroll(registration, subject, given, launch)
    }

    /// An application that has registered itself learns that it was launched, and what for.
    private func record(
        _ launch: Registered.Launch, _ options: [(String, Variant)], of number: ApplicationNumber
    ) {
        guard let application = table[number] else { return }
        application.launch = launch
        application.add(ofLaunch: options)
        records.rewrite(number)
        if !options.isEmpty { executor.note([.launchOptions], of: number) }
        step()
    }

    // MARK: Bringing to the front

    /// Brings a running application to the front, and delivers the items for which this was requested.
    ///
    /// - Parameter orElse: called instead of the answer if it is being launched, and ends before it has launched.
    func present(
        _ application: Application, _ request: LaunchRequest, _ answer: @escaping Launches.Answer,
        orElse: (() -> Void)? = nil
    ) {
        let number = application.number
        do throws(MethodError) {
            // Its program would pass URLs to the process that is ending.
            if isEnding(application) {
                throw MethodError(.noSuchApplication, "Application \(number) is ending")
            }
            if application.delegate == nil, !request.urls.isEmpty { try checkIsNotHeld(application) }
            // A confined request: otherwise its program would be started once more, by an id that the caller has
            // chosen, outside of the sandbox.
            if request.isConfined || request.needsDelegate, !application.isBeingLaunched,
                application.delegate == nil
            {
                throw MethodError(.noDelegate(number))
            }
            // Only once it has launched is it known whether it has a delegate, or whether its program must be given the
            // URLs.
            if application.isBeingLaunched, !request.deliveries.isEmpty || !request.scene.isEmpty {
                return wait(untilLaunched: application, request, answer, orElse: orElse) { [unowned self] in
                    present($0, request, answer, orElse: orElse)
                }
            }
            if request.scheduledLaunch != nil {
                try perform(.deliver(number, request.deliveries, request.words))
                return answer(.success(number))
            }
            let hasDelegate = application.delegate != nil
            let launcher = agent(.launcher, of: application.user, in: application.session)
            let isToOpen = !hasDelegate && !request.urls.isEmpty
            if isToOpen, launcher == nil { throw Self.noAgent(application.session) }
            // The end of a transfer that it knows already does not resume it.
            if request.reason != .transfer { try perform(.bringForward(number, request.words)) }
            let deliveries = deliveries(of: request, to: application)
            if hasDelegate, !deliveries.isEmpty {
                try perform(.deliver(number, deliveries, request.words))
            }
            let done = { answer(.success(number)) }
            if isToOpen, let launcher {
                return open(application, request, request.urls, by: launcher) { [unowned self] failure in
                    if let failure { return answer(.failure(failure)) }
                    raise(application, request, noWindow: done, done)
                }
            }
            // Only the application knows which window a scene is, and shows it itself.
            guard request.launchMode == .foreground, request.scene.isEmpty else { return done() }
            raise(
                application, request,
                noWindow: { [unowned self] in
                    if request.mustShow {
                        return hasDelegate ? done() : answer(.failure(Self.notShown(application)))
                    }
                    guard let launcher else { return done() }
                    open(application, request, [], by: launcher) { _ in done() }
                }, done)
        } catch {
            answer(.failure(error))
        }
    }

    /// Calls an agent's method about a running application.
    private func call<Name: MethodName>(
        _ agent: Agents.Agent, _ method: Name, about application: Application,
        _ options: [(String, Variant)]?,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (MethodError) -> Void
    ) {
        let write = { (message: borrowing Message) throws(BusFailure) in
            try message.append(application.id.rawValue)
            try message.append(UInt32(application.process.pid))
            if let options { try message.appendDictionary(options) }
        }
        call(agent, method, write, answered: answered, failed: failed)
    }

    /// How long a presenter may take, which itself waits for 100 ms.
    private static let patienceWithLeaving: Microseconds = 200_000

    /// Makes a program without a delegate open URLs, or show its window if there are none.
    private func open(
        _ application: Application, _ request: LaunchRequest, _ urls: [String], by launcher: Agents.Agent,
        _ done: @escaping (MethodError?) -> Void
    ) {
        call(
            launcher, LauncherMethod.open, about: application, request.agentOptions(urls),
            answered: { _ in done(nil) }, failed: done)
    }

    /// Brings a window of an application to the front. A window that is not raised is not a failure: not every desktop
    /// lets every client do that.
    ///
    /// - Parameter noWindow: called instead of `done` if it has none, or nobody can raise it.
    private func raise(
        _ application: Application, _ request: LaunchRequest, noWindow: @escaping () -> Void,
        _ done: @escaping () -> Void
    ) {
        guard let presenter = agent(.presenter, of: application.user, in: application.session) else {
            return noWindow()
        }
        call(
            presenter, PresenterMethod.present, about: application, request.agentOptions([]),
            answered: { (try? $0.readBool()) == true ? done() : noWindow() },
            failed: { _ in request.mustShow ? noWindow() : done() })
    }

    /// Makes an application leave the front, if the session has a presenter.
    ///
    /// - Parameter done: called once.
    func leave(_ application: Application, minimize: Bool, _ done: @escaping () -> Void) {
        guard let presenter = agent(.presenter, of: application.user, in: application.session) else {
            return done()
        }
        agents.call(
            presenter.connection, of: presenter.user, PresenterMethod.leave, within: Self.patienceWithLeaving
        ) { message throws(BusFailure) in
            try message.append(application.id.rawValue)
            try message.append(UInt32(application.process.pid))
            try message.append(minimize)
        } answered: { _ in
            done()
        } failed: { _ in
            done()
        }
    }

    private static func notShown(_ application: Application) -> MethodError {
        MethodError(.failed, "The desktop has not brought a window of \(application.id) to the front")
    }

    /// Delivers an item to an application that is being launched, once it has launched. It is not brought to the front.
    func send(_ request: LaunchRequest, to application: Application, _ answer: @escaping Launches.Answer) {
        wait(untilLaunched: application, request, answer) { [unowned self] next in
            if next.isBeingLaunched { return send(request, to: next, answer) }
            do throws(MethodError) {
                try perform(.deliver(next.number, request.deliveries, request.words))
                answer(.success(next.number))
            } catch {
                answer(.failure(error))
            }
        }
    }

    /// Calls `proceed` with the application that results from a launch. What a sandboxed caller sends never reaches
    /// another application than its own.
    private func wait(
        untilLaunched application: Application, _ request: LaunchRequest, _ answer: @escaping Launches.Answer,
        orElse: (() -> Void)? = nil, _ proceed: @escaping (Application) -> Void
    ) {
        let number = application.number
        wait(until: .max) { [unowned self] in
            core.application(number)?.isBeingLaunched != true
        } then: { [unowned self] _ in
            let next = request.isConfined ? core.machine.applications[number] : launched(as: application)
            if let next, orElse == nil || !isEnding(next) { return proceed(next) }
            if let orElse { return orElse() }
            answer(.failure(MethodError(.noSuchApplication, "Application \(number) has ended")))
        }
    }

    /// Those of the request; if there are none and the application, or a scene, is to be seen, it is told that it is
    /// launched again.
    private func deliveries(of request: LaunchRequest, to application: Application) -> [Announcement] {
        let given = request.deliveries
        let isLaunchedAgain =
            given.isEmpty && request.launchMode == .foreground
            && (!application.willAppear || !request.scene.isEmpty)
        return isLaunchedAgain ? [request.reopening] : given
    }

    /// The application that resulted from a launch. If the program does not register itself, this may be a
    /// process that the program has started. nil: it has ended.
    private func launched(as application: Application) -> Application? {
        let own = core.machine.applications[application.number]
        if own?.delegate != nil { return own }
        return running(application.id, of: application.user, in: application.session) ?? own
    }

    /// A program without a delegate gets URLs by its own means. These would wait for the suspended process,
    /// and some of them kill it after a while.
    private func checkIsNotHeld(_ application: Application) throws(MethodError) {
        guard application.allHolds.contains(where: { [.request, .signal].contains($0.reason) }) else {
            return
        }
        throw MethodError(
            .failed,
            "\(application.id) is suspended, but not by policy: it cannot open anything until Resume is called"
        )
    }

    /// Restarts an application that was ended because memory was short.
    func relaunch(_ relaunch: Relaunch) {
        var request = LaunchRequest()
        request.launchMode = .background
        request.reason = .restore
        launch(relaunch.id, of: relaunch.user, in: relaunch.session, request) { [journal] result in
            guard case .failure(let error) = result else { return }
            journal.log(
                .notice, "\(relaunch.id) of user \(relaunch.user) is not started again: \(error.message)")
        }
    }
}

extension LaunchRequest {
    /// For the journal and `Explain`.
    var words: String {
        let what = urls.isEmpty ? reason.rawValue : "open"
        return source.map { "\(what) by \($0)" } ?? what
    }

    fileprivate var startOptions: [(String, Variant)] {
        agentOptions(urls) + [(LaunchKey.launchMode.rawValue, .string(launchMode.rawValue))]
    }

    fileprivate func agentOptions(_ urls: [String]) -> [(String, Variant)] {
        var options: [(String, Variant)] = []
        if !urls.isEmpty { options.append((LaunchKey.urls.rawValue, .strings(urls))) }
        if !activationToken.isEmpty {
            options.append((LaunchKey.activationToken.rawValue, .string(activationToken)))
        }
        return options
    }
}
