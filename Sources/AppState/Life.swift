internal import AppStateBus
internal import AppStateContract
internal import Glibc

/// The application's life: registered with appstated, told by it, and told on to the delegate.
///
///     launch ─▶ Register ─┬─▶ an object ──▶ signals ─▶ Director ─▶ delegate
///                         ├─▶ AlreadyRegistered ─▶ BecomeDelegate ─▶ catch up with State
///                         └─▶ nobody there ─▶ alone: active until appstated comes, then catch up
@MainActor
final class Life {
    let application: Application
    let delegate: any ApplicationDelegate
    let director = Director()
    private let options: ApplicationOptions
    private let connection: Connection
    private let line: Line
    /// Our object; nil: appstated does not know of us now.
    private(set) var path: String?
    /// The delegate's launch callbacks have been begun.
    private var hasLaunched = false
    private var isRegistering = false
    /// Nobody tells us where we are.
    private var isAlone = false
    /// Edges are not told on before it is known where we are.
    private var isCatchingUp = false
    /// The serial of the last `DidEnterBackground` that was not told on.
    private var missedSerial: UInt64 = 0
    private var isTerminating = false
    private var solitude: Timer?
    private var reconnection: Timer?
    /// How often the bus could not be reached, one time after the other.
    private var failures: UInt64 = 0

    /// Without an answer for so long, the application goes on alone. Microseconds. A restart of the daemon is over
    /// before.
    private static let patience: UInt64 = 3_000_000
    /// The bus that was lost is tried again after this, then after twice as long, up to a minute. Microseconds.
    private static let firstRetry: UInt64 = 1_000_000
    private static let lastRetry: UInt64 = 60_000_000

    init(
        _ application: Application, _ delegate: any ApplicationDelegate, _ options: ApplicationOptions,
        _ connection: Connection
    ) {
        self.application = application
        self.delegate = delegate
        self.options = options
        self.connection = connection
        line = Line(loop: connection.loop)
    }

    // MARK: Being known

    func begin() {
        line.told = { [weak self] news in self?.take(news) }
        line.heard = { [weak self] message in self?.hear(message) }
        solitude = try? connection.loop.timer { [weak self] in
            self?.goAlone("appstated does not answer")
        }
        reconnection = try? connection.loop.timer { [weak self] in self?.reconnect() }
        do {
            try line.open()
            register()
        } catch {
            goAlone("\(error)")
        }
    }

    private func take(_ news: Line.News) {
        switch news {
        case .daemonIsThere:
            // Our own call may have started it: then the answer is under way.
            if path == nil, !isRegistering { register() }
        case .daemonIsGone:
            lose()
        case .busIsGone:
            lose()
            isRegistering = false
            failures = 0
            retryLater()
        }
    }

    private func lose() {
        guard path != nil else { return }
        path = nil
        isCatchingUp = false
        solitude?.arm(at: connection.loop.now + Self.patience)
    }

    private func retryLater() {
        let span = min(Self.firstRetry << min(failures, 6), Self.lastRetry)
        failures += 1
        reconnection?.arm(at: connection.loop.now + span)
    }

    private func reconnect() {
        do {
            try line.open()
            failures = 0
            register()
        } catch {
            retryLater()
        }
    }

    private func register() {
        isRegistering = true
        if !isAlone { solitude?.arm(at: connection.loop.now + Self.patience) }
        let id = application.id
        let entries = options.entries
        // Longer than we wait for it: one that answers late is joined then.
        call(BusNames.root, ManagerMethod.register, timeout: 25_000_000) { message throws(BusFailure) in
            try message.append(id)
            try message.append(UInt32(0))
            try message.appendDictionary(entries)
        } answered: { [weak self] reply in
            self?.isRegistering = false
            guard let self, let path = try? reply.readObjectPath() else { return }
            line.trust(reply)
            begin(at: path)
        } failed: { [weak self] error in
            self?.isRegistering = false
            if error.name == ErrorName.alreadyRegistered.rawValue {
                self?.join()
            } else {
                self?.goAlone("\(error)")
            }
        }
    }

    /// Registered anew: a launch, as appstated sees it.
    private func begin(at path: String) {
        isKnown(at: path)
        for task in application.tasks.values {
            task.number = nil
            beginTask(task)
        }
        guard hasLaunched else { return }
        // Its launch is no launch of ours: we only want to know where we are after it.
        finishLaunching()
        catchUp()
    }

    /// Registered already: by a daemon before this one, or by somebody else.
    private func join() {
        let pid = UInt32(getpid())
        call(BusNames.root, ManagerMethod.getApplicationByPID) { message throws(BusFailure) in
            try message.append(pid)
        } answered: { [weak self] reply in
            guard let path = try? reply.readObjectPath() else { return }
            self?.becomeDelegate(of: path)
        } failed: { [weak self] error in
            self?.goAlone("\(error)")
        }
    }

    private func becomeDelegate(of path: String) {
        call(path, ApplicationMethod.becomeDelegate) { [weak self] reply in
            guard let self else { return }
            line.trust(reply)
            isKnown(at: path)
            for task in application.tasks.values where task.number == nil { beginTask(task) }
            if hasLaunched { catchUp() } else { readLaunchOptions() }
        } failed: { [weak self] error in
            self?.goAlone("\(error)")
        }
    }

    private func readLaunchOptions() {
        property(.launchOptions) { [weak self] value in
            guard let self else { return }
            launch(LaunchOptions(value.map(Value.init)?.dictionaryValue ?? [:]))
            catchUp()
        }
    }

    private func isKnown(at path: String) {
        self.path = path
        isAlone = false
        solitude?.disarm()
        if application.hasUnsavedChanges { tellUnsavedChanges() }
        if application.userActivity != nil { tellUserActivity() }
    }

    /// Nobody tells us where we are: in the foreground, as far as we know.
    private func goAlone(_ why: String) {
        guard !isAlone, path == nil else { return }
        isAlone = true
        solitude?.disarm()
        Log.say("\(application.id) runs on as active, without appstated: \(why)")
        if !hasLaunched { launch(LaunchOptions()) }
        walk(to: .active)
    }

    // MARK: Being told

    private func hear(_ message: borrowing Message) {
        guard message.path == path, let member = message.member.flatMap(ApplicationSignal.init) else {
            return
        }
        do {
            if isCatchingUp, try isPassedOver(member, message) { return }
            try hear(member, message)
        } catch {
            Log.say("\(member.rawValue): \(error)")
        }
    }

    /// Whether it tells of an edge: where those lead is asked for, and told then.
    private func isPassedOver(
        _ member: ApplicationSignal, _ message: borrowing Message
    ) throws(BusFailure) -> Bool {
        switch member {
        case .didEnterBackground:
            missedSerial = try message.readUInt64()
            return true
        case .willEnterForeground, .didBecomeActive, .willResignActive, .stateChanged: return true
        default: return false
        }
    }

    private func hear(_ member: ApplicationSignal, _ message: borrowing Message) throws(BusFailure) {
        switch member {
        case .willFinishLaunching:
            let options = LaunchOptions([String: Value](try message.readDictionary()))
            if !hasLaunched { launch(options) }
        case .stateChanged:
            try message.skip("s")
            let state = ApplicationState(rawValue: try message.readString())
            director.perform { [application] in if let state { application.state = state } }
        case .didBecomeActive: director.perform { self.didBecomeActive() }
        case .willResignActive: director.perform { self.willResignActive() }
        case .willEnterForeground: director.perform { self.willEnterForeground() }
        case .didEnterBackground:
            let serial = try message.readUInt64()
            director.performLater { await self.didEnterBackground(serial) }
        case .willTerminate:
            let serial = try message.readUInt64()
            director.performLater { await self.willTerminate(serial) }
        case .protectedDataWillBecomeUnavailable:
            let serial = try message.readUInt64()
            director.performLater { await self.protectedDataWillBecomeUnavailable(serial) }
        case .backgroundTaskWillExpire:
            // Not after a callback that may wait for this very task.
            expire(try message.readUInt64())
        default: try hearEvent(member, message)
        }
    }

    private func hearEvent(_ member: ApplicationSignal, _ message: borrowing Message) throws(BusFailure) {
        switch member {
        case .didReceiveMemoryWarning:
            let level = MemoryWarning(rawValue: try message.readString()) ?? .warning
            director.perform { self.didReceiveMemoryWarning(level) }
        case .significantTimeChange:
            let cause = SignificantTimeChange(rawValue: try message.readString()) ?? .clockSet
            director.perform { self.significantTimeChange(cause) }
        case .protectedDataDidBecomeAvailable:
            director.perform { self.protectedDataDidBecomeAvailable() }
        case .openURLs:
            let urls = try message.readStrings()
            let options = [String: Value](try message.readDictionary())
            director.perform { self.open(urls, options) }
        case .continueUserActivity:
            let type = try message.readString()
            let info = [String: Value](try message.readDictionary())
            director.perform { self.continue(UserActivity(type: type, info: info)) }
        case .messageReceived:
            let sender = try message.readString()
            let name = try message.readString()
            let payload = [String: Value](try message.readDictionary())
            let received = ReceivedMessage(sender: sender, name: name, payload: payload)
            director.perform { self.didReceive(received) }
        default: break
        }
    }

    /// Asks where we are, and has the delegate walk there.
    private func catchUp() {
        isCatchingUp = true
        missedSerial = 0
        property(.state) { [weak self] value in
            guard let self else { return }
            isCatchingUp = false
            guard case .string(let name) = value else { return }
            // It is no longer suspended: it runs.
            let state = name == "suspended" ? .background : ApplicationState(rawValue: name)
            if let state, state != .notRunning { walk(to: state, serial: missedSerial) }
        }
    }

    private func launch(_ options: LaunchOptions) {
        hasLaunched = true
        director.performLater { await self.launchDelegate(options) }
    }

    // MARK: The end

    func terminate(_ status: Int32) {
        guard !isTerminating else { return }
        isTerminating = true
        director.performLater {
            await self.willTerminate(0)
            self.line.flush()
            exit(status)
        }
    }

    // MARK: Calls

    /// Calls a method; what it answers is read by `answered`.
    func call(
        _ path: String, _ method: some MethodName, timeout: UInt64 = Line.patience,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        answered: @escaping (borrowing Message) -> Void, failed: @escaping (ApplicationError) -> Void
    ) {
        do {
            try line.call(
                path, type(of: method).interface, method.rawValue, timeout: timeout, body,
                answered: answered, failed: failed)
        } catch {
            failed(ApplicationError(error))
        }
        connection.arm()
    }

    /// Calls a method and waits for what `read` makes of its answer.
    func ask<Value: Sendable>(
        _ path: String, _ method: some MethodName,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        read: @escaping (borrowing Message) throws(BusFailure) -> Value
    ) async -> Result<Value, ApplicationError> {
        await withCheckedContinuation { continuation in
            call(path, method, body) { reply in
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

    /// Calls a method of our own object, whose answer says nothing; a refusal goes to the log.
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

    /// Reads a property of our own object; nil where that fails.
    private func property(_ name: ApplicationProperty, _ read: @escaping (Variant?) -> Void) {
        guard let path else { return }
        do {
            try line.call(path, BusNames.properties, "Get") { message throws(BusFailure) in
                try message.append(BusNames.application)
                try message.append(name.rawValue)
            } answered: { reply in
                read(try? reply.readVariant())
            } failed: { error in
                Log.say("\(name.rawValue): \(error)")
                read(nil)
            }
        } catch {
            read(nil)
        }
        connection.arm()
    }

    func finishLaunching() { tell(.finishLaunching) }

    func tellUnsavedChanges() {
        let hasChanges = application.hasUnsavedChanges
        tell(.setUnsavedChanges) { message throws(BusFailure) in try message.append(hasChanges) }
    }

    func tellUserActivity() {
        let activity = application.userActivity ?? UserActivity(type: "")
        tell(.setUserActivity) { message throws(BusFailure) in
            try message.append(activity.type)
            try message.appendDictionary(activity.info.entries)
        }
    }

    func acknowledge(_ serial: UInt64) {
        guard serial != 0 else { return }
        tell(.acknowledge) { message throws(BusFailure) in try message.append(serial) }
    }
}
