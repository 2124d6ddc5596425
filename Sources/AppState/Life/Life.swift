internal import AppStateBus
internal import AppStateContract
internal import CAppState
internal import Glibc

/// The application's life: registers with appstated, receives its signals and passes them on to the delegate.
///
///     launch ─▶ Register ─┬─▶ an object ──▶ signals ─▶ Director ─▶ delegate
///                         ├─▶ AlreadyRegistered ─▶ BecomeDelegate ─▶ catch up with State
///                         └─▶ not available, or unregistered ─▶ alone: active until the next appstated comes,
///                             then catch up
@MainActor
final class Life {
    let application: Application
    let delegate: any ApplicationDelegate
    let director = Director()
    let options: ApplicationOptions
    let connection: Connection
    let line: Line
    /// Our object; nil: appstated does not know us at present.
    private(set) var path: String?
    /// Whether the delegate's launch callbacks have started.
    private(set) var hasLaunched = false
    /// True from `Register` until we have the object, or until the registration has failed.
    private var isRegistering = false
    /// appstated is not available, so nothing reports our state.
    private var isAlone = false
    /// Somebody has unregistered us. Only another daemon registers us again.
    private var isUnregistered = false
    private var isPatient = false
    /// The daemon knows this process by another pid than we do: a sandbox has its own pids.
    private var hasForeignNumber = false
    /// Edges are not passed on until our state is known.
    private(set) var isCatchingUp = false
    /// The serial of the last `DidEnterBackground` that was not passed on.
    var missedSerial: UInt64 = 0
    /// Whether the state of an earlier run has been dealt with: it was restored, does not exist, or cannot be
    /// read. A save before that would overwrite it.
    var isRestored = false
    /// The serial of the `DidEnterBackground` for which the save has failed.
    var unsavedSerial: UInt64?
    var debts = Debts()
    var scenes = Scenes()
    /// The serial of the last `WillTerminate` that was passed on, 0 for a termination from within; nil: none.
    var toldEnd: UInt64?
    /// Whether that end was acknowledged, or could be: the delegate was notified, and the state is saved.
    var isEndDone = false
    /// Signals that were received before it was known which object is ours, or before the launch.
    var kept: [(path: String, step: @MainActor () -> Void)] = []
    /// Whether appstated has received something that may have to be withdrawn.
    private var hasToldActivity = false
    private var hasToldChanges = false
    private var isBusLost = false
    var isTerminating = false
    private var solitude: Timer?
    private var again: Timer?
    var lastMoment: Timer?
    /// How many retries were scheduled since something last succeeded.
    private var failures: UInt64 = 0
    private var isRetryScheduled = false

    /// Failed operations are retried after this time, then after twice as long, up to a minute. Microseconds.
    private static let firstRetry: UInt64 = 1_000_000
    private static let lastRetry: UInt64 = 60_000_000
    /// How often the launch options are asked for again before the application launches without them.
    private static let mostReadings: UInt64 = 3

    init(
        _ application: Application, _ delegate: any ApplicationDelegate, _ options: ApplicationOptions,
        _ connection: Connection
    ) {
        self.application = application
        self.delegate = delegate
        self.options = options
        self.connection = connection
        line = Line(loop: connection.loop, timeout: options.limits.call)
    }

    // MARK: Registration

    func begin() {
        line.told = { [weak self] news in self?.take(news) }
        line.heard = { [weak self] message in self?.hear(message) }
        solitude = try? connection.loop.timer { [weak self] in
            self?.goAlone("appstated does not answer")
        }
        again = try? connection.loop.timer { [weak self] in self?.retry() }
        do {
            try line.open()
            register()
        } catch {
            isBusLost = true
            goAlone("\(error)")
            retryLater()
        }
    }

    private func take(_ news: Line.News) {
        switch news {
        case .daemonIsThere:
            // Another daemon may take over the name without a gap.
            lose()
            isUnregistered = false
            // Our own call may have started the daemon. In that case the reply is on its way.
            if !isRegistering { register() }
        case .daemonIsGone:
            lose()
        case .busIsGone:
            lose()
            isRegistering = false
            isBusLost = true
            isUnregistered = false
            forgetFailures()
            // The daemon ends the tasks of a connection together with the connection.
            for task in application.tasks.values { task.number = nil }
            retryLater()
        case .signalsAreLost:
            // What others have sent is lost, but the state can be read.
            if path != nil, hasLaunched { catchUp() }
        }
    }

    private func lose() {
        guard path != nil else { return }
        path = nil
        isCatchingUp = false
        bePatient()
    }

    /// Starts waiting for an answer. Repeating the request does not restart the timeout.
    private func bePatient() {
        guard !isAlone, !isPatient else { return }
        isPatient = true
        solitude?.arm(at: EventLoop.clock + options.limits.registration)
    }

    private func endPatience() {
        isPatient = false
        solitude?.disarm()
    }

    /// Schedules another attempt at everything that is left undone, after a pause that grows. What fails at the same
    /// time is retried together.
    func retryLater() {
        guard !isRetryScheduled else { return }
        isRetryScheduled = true
        let span = min(Self.firstRetry << min(failures, 6), Self.lastRetry)
        failures += 1
        again?.arm(at: EventLoop.clock + span)
        connection.arm()
    }

    /// Something has succeeded, so the next failure is retried soon, even if an earlier one waits for longer.
    func forgetFailures() {
        failures = 0
        isRetryScheduled = false
    }

    private func retry() {
        isRetryScheduled = false
        if isBusLost { return reconnect() }
        guard path != nil else {
            if !isRegistering, !isUnregistered { register() }
            return
        }
        settleDebts()
        guard hasLaunched else { return readLaunchOptions() }
        if isCatchingUp { catchUp() }
        if !isRestored { restoreLater() }
        if let unsavedSerial { director.performLater { await self.stay(unsavedSerial) } }
    }

    private func reconnect() {
        do {
            try line.open()
            isBusLost = false
            register()
        } catch {
            retryLater()
        }
    }

    private func register() {
        isRegistering = true
        bePatient()
        let id = application.id
        let entries = options.entries
        let descriptor = hasForeignNumber ? cappstate_own_descriptor() : -1
        defer { if descriptor >= 0 { close(descriptor) } }
        let method = descriptor < 0 ? ManagerMethod.register : .registerProcess
        // The timeout is longer than the time until the application continues alone, so that it can still
        // join a daemon that answers late.
        call(BusNames.root, method, timeout: max(25_000_000, options.limits.call)) {
            message throws(BusFailure) in
            try message.append(id)
            if descriptor < 0 {
                try message.append(UInt32(0))
            } else {
                try message.append(descriptor: descriptor)
            }
            try message.appendDictionary(entries)
        } answered: { [weak self] reply in
            self?.didRegister(reply)
        } failed: { [weak self] error in
            self?.didNotRegister(error)
        }
    }

    private func didRegister(_ reply: borrowing Message) {
        guard let path = try? reply.readObjectPath() else {
            return stayUnknown(
                ApplicationError(name: nil, message: "the answer to Register contains no object"))
        }
        line.trust(reply)
        begin(at: path)
    }

    private func didNotRegister(_ error: ApplicationError) {
        switch error.name {
        case ErrorName.alreadyRegistered.rawValue: join()
        case ErrorName.invalidArgs.rawValue where !hasForeignNumber:
            // The caller is a proxy, or the daemon sees no process with our pid, so identify the process by a
            // descriptor instead.
            hasForeignNumber = true
            register()
        default: stayUnknown(error)
        }
    }

    /// appstated has not registered us: it has returned an error, or has not answered.
    private func stayUnknown(_ error: ApplicationError) {
        isRegistering = false
        // A daemon that is restarting has not answered. We wait for it as long as for any reply. The launch
        // that it announces restores the state of an earlier run.
        if let name = error.name, name != ErrorName.limitsExceeded.rawValue { goAlone("\(error)") }
        // If the name has no owner, the bus notifies us when one appears.
        if error.name.flatMap(Absence.init(error:)) == nil, !isBusLost { retryLater() }
    }

    /// Registered again, which appstated treats as a launch.
    private func begin(at path: String) {
        for task in application.tasks.values { task.number = nil }
        forgetDebts()
        isKnown(at: path)
        guard hasLaunched else { return }
        // That launch is not ours: we only need to know our state after it.
        finishLaunching()
        catchUp()
        replay()
    }

    /// Already registered, by an earlier daemon or by another process.
    private func join() {
        if hasForeignNumber { return joinByID() }
        let pid = UInt32(getpid())
        call(BusNames.root, ManagerMethod.getApplicationByPID) { message throws(BusFailure) in
            try message.append(pid)
        } answered: { [weak self] reply in
            guard let path = try? reply.readObjectPath() else {
                self?.stayUnknown(ApplicationError(name: nil, message: "there is no object for \(pid)"))
                return
            }
            self?.becomeDelegate(of: path)
        } failed: { [weak self] error in
            // A sandbox may have its own pids even if its calls come from the process itself.
            switch error.name {
            case ErrorName.noSuchApplication.rawValue, ErrorName.noSuchProcess.rawValue: self?.joinByID()
            default: self?.stayUnknown(error)
            }
        }
    }

    private func joinByID() {
        let id = application.id
        call(BusNames.root, ManagerMethod.listApplications) { [weak self] reply in
            guard let path = (try? Self.firstPath(of: id, in: reply)) ?? nil else {
                self?.stayUnknown(ApplicationError(name: nil, message: "there is no object for \(id)"))
                return
            }
            self?.becomeDelegate(of: path)
        } failed: { [weak self] error in
            self?.stayUnknown(error)
        }
    }

    /// The object of the first application with this id, in an answer of `ListApplications`.
    private static func firstPath(
        of id: String, in reply: borrowing Message
    ) throws(BusFailure) -> String? {
        var found: String?
        guard try reply.enter(.array, "(osuus)") else { return nil }
        while !reply.atEnd {
            guard try reply.enter(.struct, "osuus") else { break }
            let path = try reply.readObjectPath()
            if try reply.readString() == id, found == nil { found = path }
            try reply.skip("uus")
            try reply.exit()
        }
        try reply.exit()
        return found
    }

    private func becomeDelegate(of path: String) {
        call(path, ApplicationMethod.becomeDelegate) { [weak self] reply in
            guard let self else { return }
            line.trust(reply)
            isKnown(at: path)
            settleDebts()
            guard hasLaunched else { return readLaunchOptions() }
            catchUp()
            replay()
            if !isRestored { restoreLater() }
        } failed: { [weak self] error in
            self?.stayUnknown(error)
        }
    }

    /// Signals that arrive meanwhile are kept until the launch.
    private func readLaunchOptions() {
        property(.launchOptions) { [weak self] value in
            guard let self, !hasLaunched else { return }
            // If the daemon is gone, the next one is asked. A daemon that does not answer must not keep the
            // application from launching forever.
            if value == nil {
                if path == nil { return }
                if failures < Self.mostReadings { return retryLater() }
            }
            launch(LaunchOptions(value.map(Value.init)?.dictionaryValue ?? [:]))
            catchUp()
            replay()
        }
    }

    private func isKnown(at path: String) {
        self.path = path
        isRegistering = false
        isAlone = false
        forgetFailures()
        endPatience()
        tell(.answerPings)
        for task in application.tasks.values where task.number == nil { beginTask(task) }
        for inhibitor in application.inhibitors { take(inhibitor) }
        property(.protectedDataAvailable) { [weak self] value in
            if case .bool(let isAvailable)? = value {
                self?.application.isProtectedDataAvailable = isAvailable
            }
        }
        if application.hasUnsavedChanges || hasToldChanges { tellUnsavedChanges() }
        if application.userActivity != nil || hasToldActivity { tellUserActivity() }
    }

    /// appstated runs, but our object is gone: somebody has unregistered us. Nothing that was said about it counts.
    func isForgotten() {
        guard path != nil else { return }
        path = nil
        isUnregistered = true
        isCatchingUp = false
        kept = []
        for task in application.tasks.values { task.number = nil }
        forgetDebts()
        again?.disarm()
        forgetFailures()
        goAlone("it was unregistered")
    }

    /// Nothing reports our state, so we assume that we are in the foreground.
    private func goAlone(_ why: String) {
        guard !isAlone, path == nil else { return }
        isAlone = true
        endPatience()
        Log.say("\(application.id) continues as active, without appstated: \(why)")
        if !hasLaunched { launch(LaunchOptions()) }
        walk(to: .active)
    }

    // MARK: Catching up

    /// Reads our state and moves the delegate to it.
    private func catchUp() {
        if !isCatchingUp { missedSerial = 0 }
        isCatchingUp = true
        property(.state) { [weak self] value in
            guard let self, isCatchingUp else { return }
            guard case .string(let name) = value else { return retryLater() }
            forgetFailures()
            isCatchingUp = false
            // It runs, so it is no longer suspended.
            let state = name == "suspended" ? .background : ApplicationState(rawValue: name)
            if let state, state != .notRunning { walk(to: state, serial: missedSerial) }
        }
    }

    func launch(_ options: LaunchOptions) {
        hasLaunched = true
        director.performLater { await self.launchDelegate(options) }
    }

    // MARK: Calls

    /// What an application that is ending refuses as if it was gone.
    private static let deliveries = [ApplicationMethod.open, .sendMessage, .continueActivity].map(\.rawValue)

    /// Calls a method; `answered` reads the reply.
    func call(
        _ path: String, _ method: some MethodName, timeout: UInt64? = nil,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (ApplicationError) -> Void
    ) {
        call(
            path, type(of: method).interface, method.rawValue, timeout, body, answered: answered,
            failed: failed)
    }

    private func call(
        _ path: String, _ interface: String, _ member: String, _ timeout: UInt64?,
        _ body: (borrowing Message) throws(BusFailure) -> Void,
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (ApplicationError) -> Void
    ) {
        do {
            try line.call(
                path, interface, member, timeout: timeout, body, answered: answered
            ) { [weak self] error in
                if path == self?.path, error.name == ErrorName.noSuchApplication.rawValue,
                    !Self.deliveries.contains(member)
                {
                    self?.isForgotten()
                }
                failed(error)
            }
        } catch {
            failed(ApplicationError(error))
        }
        connection.arm()
    }

    /// Calls a method and waits for the value that `read` extracts from the reply.
    func ask<Value: Sendable>(
        _ path: String, _ method: some MethodName, timeout: UInt64? = nil,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        read: @escaping (borrowing Message) throws(BusFailure) -> Value
    ) async -> Result<Value, ApplicationError> {
        // `call` runs exactly one of both closures, except at the end of the process, which drops them. A checked
        // continuation would report that as an error of the application.
        await withUnsafeContinuation { continuation in
            call(path, method, timeout: timeout, body) { reply in
                do throws(BusFailure) {
                    continuation.resume(returning: .success(try read(reply)))
                } catch {
                    continuation.resume(returning: .failure(ApplicationError(error)))
                }
            } failed: { error in
                continuation.resume(returning: .failure(error))
            }
        }
    }

    /// Calls a method of our own object whose reply is empty; an error is logged.
    func tell(
        _ method: ApplicationMethod,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in }
    ) {
        guard let path else { return }
        call(path, method, body) { _ in
        } failed: { error in
            Log.say("\(method.rawValue): \(error)")
        }
    }

    /// Reads a property of our own object; nil if that fails.
    private func property(_ name: ApplicationProperty, _ read: @escaping (Variant?) -> Void) {
        guard let path else { return }
        call(path, BusNames.properties, "Get", nil) { message throws(BusFailure) in
            try message.append(BusNames.application)
            try message.append(name.rawValue)
        } answered: { reply in
            read(try? reply.readVariant())
        } failed: { error in
            Log.say("\(name.rawValue): \(error)")
            read(nil)
        }
    }

    func tellUnsavedChanges() {
        let hasChanges = application.hasUnsavedChanges
        hasToldChanges = true
        tell(.setUnsavedChanges) { message throws(BusFailure) in try message.append(hasChanges) }
    }

    func tellUserActivity() {
        let activity = application.userActivity ?? UserActivity(type: "")
        hasToldActivity = true
        tell(.setUserActivity) { message throws(BusFailure) in
            try message.append(activity.type)
            try message.appendDictionary(activity.info.entries)
        }
    }
}
