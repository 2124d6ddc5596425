public import AppStateContract

/// The life cycle of every registered application: facts and requests in, effects out.
///
/// A value without I/O and without a clock. `handle` processes a fact and cannot fail. `perform` processes a
/// client's request and may refuse it; then nothing has changed. `nextDeadline` says when it must be notified
/// that time has passed. Effects must be carried out in order; their results are the next facts.
///
/// The state of an application is `Application.target`, a pure function of the facts. `settle` moves the
/// application there edge by edge (StateDiagram.swift), with the delegate signals of each edge.
public struct Machine: Equatable, Sendable {
    public internal(set) var applications = Applications()
    var numbers: [ProcessID: ApplicationNumber] = [:]
    var windows: [WindowKey: Window] = [:]
    var windowsByProcess: [ProcessID: Set<WindowKey>] = [:]
    var sessions: [SessionKey: Session] = [:]
    var reporters: [ConnectionName: Reporter] = [:]
    /// Processes that policy must not suspend, by the reporter that said so.
    var reportedObjections: [ConnectionName: [ProcessID: ReportedObjection]] = [:]
    /// The applications that these objections are about.
    var objected: Set<ApplicationNumber> = []
    var countByUser: [UInt32: Int] = [:]
    /// The next deadline of each application that has one.
    var deadlines: [ApplicationNumber: Microseconds] = [:]
    var schedule = Schedule()
    var pressure = Pressure()
    /// The number that was assigned last.
    public internal(set) var lastNumber: UInt32 = 0
    /// No application is suspended any longer.
    var isRelinquished = false
    /// Policy suspends no application, because each may still have work to do.
    var isShuttingDown = false
    /// Applications that were ended because memory was short, to be started again when it no longer is.
    var relaunches = Relaunches()
    /// Applications whose records have changed since `popTouched`.
    var touched: Set<ApplicationNumber> = []
    /// The present step; between two steps it has the settings only.
    var step: Step

    /// The most windows that one reporter may report.
    public static let windowsPerReporter = 1_024
    /// The most objections that one reporter may report. A desktop has a handful.
    public static let objectionsPerReporter = 256

    public init(settings: Settings = Settings()) {
        step = Step(settings: settings)
    }

    public var settings: Settings { step.settings }

    /// When `timePassed` is due; nil: not before something else happens.
    public var nextDeadline: Microseconds? {
        [pressure.nextDeadline, deadlines.values.min(), nextRelaunch, reporterDeadline].compactMap(\.self)
            .min()
    }

    /// The applications whose records have changed since the last call, including those that are gone.
    public mutating func popTouched() -> [ApplicationNumber] {
        defer { touched.removeAll(keepingCapacity: true) }
        return touched.sorted()
    }

    // MARK: Facts

    /// Processes a fact at the time `now` (CLOCK_MONOTONIC, µs) and returns what must be done.
    public mutating func handle(_ fact: Fact, at now: Microseconds) -> [Effect] {
        step.now = now
        defer { step = Step(settings: settings) }
        let focusBefore = focusedApplications
        switch fact {
        case .exited(let process, let reason, let status):
            exited(process, reason, status)
        case .observed(let number, let reading, let sender):
            stopChanged(number, .observed(reading, sender: sender))
        case .stopCompleted(let number):
            stopChanged(number, .stopCompleted)
        case .resumeCompleted(let number, let reading):
            stopChanged(number, .resumeCompleted(reading))
        case .unread(let number):
            foundUnread(number)
        case .checked(let number, .clear(let isStopped)):
            stopChanged(number, .unobjected(isStopped: isStopped))
            if isStopped, applications[number]?.objection != nil {
                update(number, .policy) {
                    $0.objection = nil
                    $0.isObjected = false
                }
            }
        case .checked(let number, .objection(let why)):
            if applications[number]?.stop.isBeingChecked == true {
                abandonStop(of: number, because: why, isFound: true)
            }
        case .objected(let number, let why):
            abandonStop(of: number, because: why)
        case .uninhibited(let number, let inhibitor):
            uninhibit(number, inhibitor)
        case .needed(let number, let why, let need):
            needed(number, why, need)
        case .stopFailed(let number, let why):
            updateAnnouncing(number, .request) {
                $0.holds = []
                $0.abandonStop(because: why, &$1)
            }
        case .contested(let number):
            update(number, .signal) { $0.stop.contend() }
        case .memory(let readings):
            read(readings)
        case .released(let number):
            released(number)
        case .pagedOut(let number, let bytes):
            pagedOut(number, bytes)
        case .spared(let number, let why):
            spared(number, why)
        case .disconnected(let connection):
            disconnected(connection)
        case .session(let key, let inFront, let isLocked):
            sessions[key, default: Session()].inFront = inFront
            sessions[key]?.isLocked = isLocked
            sessions[key]?.hasEnded = false
            refresh(applications(in: key), .session)
            dropIfUnused(key)
        case .sessionEnded(let key):
            sessions[key, default: Session()].inFront = false
            sessions[key]?.hasEnded = true
            sessions[key]?.reporting = .present
            refresh(applications(in: key), .session)
            dropIfUnused(key)
        case .shutdownPrepared(let isShuttingDown):
            guard self.isShuttingDown != isShuttingDown else { break }
            self.isShuttingDown = isShuttingDown
            let concerned = applications.keys.sorted()
            if !isShuttingDown { for number in concerned { objectionEnded(number) } }
            refresh(concerned, .session)
        case .sleepBegins(let number):
            guard suspendedForSleep.contains(number) else { break }
            updateAnnouncing(number, .policy) {
                $0.hold(.sleep, "appstated")
                $0.order(.drainEnded($0.requirement), &$1)
            }
        case .sleepEnded:
            for number in applications.keys.sorted() where applications[number]?.isHeldForSleep == true {
                update(number, .policy) { $0.holds.removeAll { $0.reason == .sleep } }
            }
        case .timeChanged(let change):
            for number in applications.keys.sorted() { announce(change, to: number) }
        case .hangs(let number):
            hangs(number)
        case .scheduled(let launches):
            for launch in launches { schedule.add(launch) }
        case .realTime(let time):
            launch(schedule.begin { if case .time(let due) = $0 { due <= time } else { false } })
        case .condition(let trigger, let isMet):
            if isMet { launch(schedule.begin { $0.kind == trigger }) }
        case .agentCame(let user):
            launch(schedule.beginDue(of: user))
        case .launchSettled(let launch, let isKept):
            settled(launch, isKept: isKept)
        case .configured(let settings):
            configured(settings)
        case .timePassed:
            let due = deadlines.filter { $0.value <= now }.sorted { ($0.value, $0.key) < ($1.value, $1.key) }
            for (number, _) in due { expire(number) }
            expireReporters()
            expirePressure()
        }
        conclude(focusBefore)
        return step.effects
    }

    // MARK: Requests

    /// Carries out a client's request, or refuses it and changes nothing.
    public mutating func perform(
        _ request: Request, at now: Microseconds
    ) throws(Refusal) -> (answer: Answer, effects: [Effect]) {
        step.now = now
        defer { step = Step(settings: settings) }
        var answer = Answer.done
        let focusBefore = focusedApplications
        switch request {
        case .register(let registration):
            answer = .application(try register(registration))
        case .unregister(let number):
            try require(number)
            unregister(number)
        case .finishLaunching(let number, let connection):
            try requireDelegate(number, connection)
            update(number, .launch) {
                $0.launch = nil
                $0.unresponsive = nil
            }
        case .becomeDelegate(let number, let connection):
            try becomeDelegate(number, connection)
        case .acknowledge(let number, let serial, let connection):
            try acknowledge(number, serial, connection)
        case .answerPings(let number, let connection):
            try requireDelegate(number, connection)
            update(number, .request) { $0.answersPings = true }
        case .beginBackgroundTask(let number, let name, let connection):
            answer = .task(try beginTask(number, name, connection))
        case .beginContinuedTask(let number, let name, let title, let total, let connection):
            let progress = Application.BackgroundTask.Progress(title: title, total: total)
            answer = .task(try beginTask(number, name, connection, progress))
        case .setTaskProgress(let number, let task, let completed):
            try setProgress(number, of: task, to: completed)
        case .cancelTask(let number, let task):
            try cancelTask(number, task)
        case .endBackgroundTask(let number, let task):
            guard try require(number).tasks.contains(where: { $0.id == task }) else {
                throw .noSuchTask(task)
            }
            // What follows, if anything, is a suspension by policy.
            update(number, .policy) { $0.tasks.removeAll { $0.id == task } }
        case .setUnsavedChanges(let number, let unsaved):
            try require(number)
            update(number, .request) { $0.saysUnsaved = unsaved }
        case .inhibit(let number, let inhibitor):
            try require(number)
            update(number, .policy) { $0.inhibitors.append(inhibitor) }
        case .finishTransfer(let number, let id):
            try finishTransfer(number, id)
        case .deliver(let number, let announcements, let why):
            try deliver(number, announcements, why)
        case .scheduleLaunch(let launch):
            try schedule(launch)
        case .cancelLaunch(let owner, let name):
            cancelLaunch(owner, name: name)
        case .bringForward(let number, let why):
            try require(number)
            needed(number, why)
        case .configure(let number, let rule):
            let former = try require(number).rule
            updateAnnouncing(number, .configuration) {
                $0.rule = rule
                $0.apply($1.settings)
                if former?.backgroundGrace != rule?.backgroundGrace, $0.grace != .over || !$0.isHeldByDecision
                {
                    $0.grace(.changed, $1)
                }
                // It is set again.
                if former?.drainEvery != rule?.drainEvery { $0.stop.handle(.drainDue(nil), at: $1.now) }
            }
            if former?.backgroundCPUQuota != rule?.backgroundCPUQuota || (former == nil) != (rule == nil) {
                step.effects.append(.resources(number))
            }
        case .suspend(let number, let holder):
            try requireSuspendable(number)
            suspend(number, .request, holder)
        case .resume(let number, let holder):
            try require(number)
            resume(number, holder)
        case .suspendUntilFocused(let number, let holder):
            try requireSuspendable(number)
            suspend(number, .toggle, holder)
        case .terminate(let number, let force):
            try require(number)
            terminate(number, force: force)
        case .setFocus(let process, let reporter):
            try setFocus(process, reporter)
        case .setMinimized(let process, let minimized, let reporter):
            try setMinimized(process, minimized, reporter)
        case .updateWindow(let report, let reporter):
            try updateWindows([report], replacing: false, reporter)
        case .removeWindow(let window, let reporter):
            removeWindow(window, reporter)
        case .replaceWindows(let reports, let reporter):
            try updateWindows(reports, replacing: true, reporter)
        case .setSession(let session, let reporter):
            setSession(session, reporter)
        case .demand(let process, let why, let reporter, let need):
            // A reporter must not learn which applications another user has.
            guard let number = owner(of: process.lineage),
                reporter.isRoot || applications[number]?.user == reporter.user
            else { throw .noSuchApplication("of process \(process.lineage[0].pid)") }
            needed(number, why, need)
        case .replaceObjections(let reports, let reporter):
            replaceObjections(reports, reporter)
        }
        conclude(focusBefore)
        return (answer, step.effects)
    }

    // MARK: Queries

    /// The applications that are suspended around the machine's sleep.
    public var suspendedForSleep: [ApplicationNumber] {
        guard settings.mode == .enforce, !isRelinquished else { return [] }
        return applications.values.filter {
            $0.rule?.suspendWhen == .sleep && $0.suspension == .automatic && !$0.isTerminating
                && !$0.isLaunching
        }.map(\.number).sorted()
    }

    /// The application that `process` was registered as.
    public func application(of process: ProcessID) -> Application? {
        numbers[process].flatMap { applications[$0] }
    }

    /// The application whose delegate a connection is; else the one in which it has a background task; nil: there is none,
    /// or there are several of the latter.
    public func application(servedBy connection: ConnectionName) -> ApplicationNumber? {
        let served = served(by: connection)
        return served.first { applications[$0]?.delegate == connection }
            ?? (served.count == 1 ? served.first : nil)
    }

    /// The applications in which a connection has a part, as delegate or as the owner of a task, in order.
    func served(by connection: ConnectionName) -> [ApplicationNumber] {
        applications.values.filter { $0.connections.contains(connection) }.map(\.number).sorted()
    }

    /// The application whose extent a process with this lineage is in: the nearest registered one.
    public func owner(of lineage: [ProcessID]) -> ApplicationNumber? {
        for process in lineage {
            if let number = numbers[process] { return number }
        }
        return nil
    }

    /// The application that has the focus in a session.
    public func focusedApplication(in session: SessionKey) -> ApplicationNumber? {
        sessions[session]?.focus.flatMap { windows[$0] }.flatMap { $0.minimized ? nil : $0.owner }
    }

    /// The sessions in which there are applications, windows or reporters.
    public var sessionsInUse: Set<SessionKey> {
        var found = Set(applications.values.lazy.map(\.session))
        found.formUnion(windows.values.lazy.map(\.session))
        found.formUnion(reporters.values.lazy.compactMap(\.session))
        return found
    }

    /// The reporter's session, if it has set one or is a permanent reporter of one session.
    public func session(ofReporter connection: ConnectionName) -> SessionKey? {
        reporters[connection]?.session
    }

    /// Whether a fact about this process matters: it is registered, or a report about it is remembered.
    public func isRelevant(with process: ProcessID) -> Bool {
        numbers[process] != nil || windowsByProcess[process] != nil
            || reportedObjections.values.contains { $0[process] != nil }
    }

    /// Whether a window of this process is known.
    public func hasWindow(_ process: ProcessID) -> Bool { windowsByProcess[process] != nil }

    /// The objections to suspending an application, in words; empty: there are none (`ListObjections`).
    public func objections(to application: Application) -> [String] {
        var reasons: [String] = []
        switch application.windowLevel {
        case .focused: reasons.append("has the focus")
        case .visible: reasons.append("has a visible window")
        case .hidden: break
        }
        if application.isLaunching { reasons.append("is launching") }
        if application.isTerminating { reasons.append("is being terminated") }
        if application.suspension == .never { reasons.append("suspension is never") }
        reasons += application.objections
        if application.protection != nil { reasons.append("protected data becomes unavailable") }
        if isShuttingDown { reasons.append("the machine is shutting down") }
        if hasLostReporter(application) { reasons.append("the window reporter of its session is gone") }
        return reasons
    }

    /// CLOCK_MONOTONIC at which policy suspends an application at the latest if nothing changes; nil: it will not.
    public func suspensionDeadline(of application: Application) -> Microseconds? {
        policySuspends(application) ? application.suspensionDeadline : nil
    }

    /// The microseconds until policy suspends an application if nothing changes; `never` if it will not.
    public func backgroundTimeRemaining(of application: Application, at now: Microseconds) -> Microseconds {
        policySuspends(application) ? application.backgroundTimeRemaining(at: now) : .never
    }

    /// The state of an application, without a copy of all that is known of it; nil: there is no such application.
    public func state(of number: ApplicationNumber) -> LifeCycleState? { applications[number]?.state }

    /// The windows of an application that reporters report one by one, for `ListWindows`.
    public func shownWindows(of number: ApplicationNumber) -> [ShownWindow] {
        guard let application = applications[number] else { return [] }
        return application.windows.sorted().compactMap { key in
            guard let window = windows[key], var shown = shown(window, as: key) else { return nil }
            // No window of an application is ahead of the application itself.
            if !application.isLive { shown.state = .background }
            return shown
        }
    }

    /// Everything about windows that `Explain` shows for an application.
    public func windowSummary(of number: ApplicationNumber) -> [String] {
        guard let application = applications[number] else { return [] }
        return application.windows.compactMap { key -> String? in
            guard let window = windows[key] else { return nil }
            var words = [key.isWhole ? "all of pid \(key.number)" : "\(key.number) of \(key.reporter)"]
            if sessions[window.session]?.focus == key { words.append("focused") }
            words.append(window.minimized ? "minimized" : window.visible ? "visible" : "hidden")
            if window.isUnsaved { words.append("unsaved changes") }
            if !key.isWhole, reporters[key.reporter] == nil { words.append("reporter gone") }
            if !window.title.isEmpty { words.append("\"\(window.title)\"") }
            return words.joined(separator: " ")
        }.sorted()
    }

    /// Its sessions that are not in front, and why, as `Explain` shows them.
    public func awaySessions(of number: ApplicationNumber) -> [String] {
        guard let application = applications[number] else { return [] }
        return sessionKeys(of: application).compactMap { key in
            guard let session = sessions[key], !session.inFront else { return nil }
            return "\(key) "
                + (session.hasEnded ? "has ended" : session.isLocked ? "is locked" : "is not in front")
        }
    }

    /// Its own session and those of its windows.
    func sessionKeys(of application: Application) -> [SessionKey] {
        Set([application.session] + application.windows.compactMap { windows[$0]?.session })
            .sorted()
    }

    /// Whether a session of it has no reporter any longer, so that the daemon does not know what is visible there.
    func hasLostReporter(_ application: Application) -> Bool {
        sessionKeys(of: application).contains { sessions[$0].map { $0.reporting != .present } == true }
    }

    // MARK: Helpers

    private var focusedApplications: [SessionKey: ApplicationNumber] {
        var focused: [SessionKey: ApplicationNumber] = [:]
        for session in sessions.keys { focused[session] = focusedApplication(in: session) }
        return focused
    }

    /// Results that are known only at the end of a step: where the focus has gone, and which processes no
    /// longer matter.
    private mutating func conclude(_ focusBefore: [SessionKey: ApplicationNumber]) {
        relaunchReclaimed()
        var forgotten: Set<ProcessID> = []
        step.effects = step.effects.filter { effect in
            guard case .forget(let process) = effect else { return true }
            return !isRelevant(with: process) && forgotten.insert(process).inserted
        }
        let focus = focusedApplications
        guard focus != focusBefore else { return }
        for session in Set(focus.keys).union(focusBefore.keys).sorted()
        where focus[session] != focusBefore[session] {
            step.effects.append(.focusChanged(session))
        }
    }

    @discardableResult
    func require(_ number: ApplicationNumber) throws(Refusal) -> Application {
        guard let application = applications[number] else { throw .noSuchApplication(number.description) }
        return application
    }

    /// An application that is being launched leaves `not-running` only when it has launched: a hold would not make it
    /// `suspended`.
    public func requireSuspendable(_ number: ApplicationNumber) throws(Refusal) {
        let application = try require(number)
        if application.isTerminating { throw .notSuspendable(number, "it is being terminated") }
        if application.isLaunching { throw .notSuspendable(number, "it is being launched") }
    }

    @discardableResult
    func requireDelegate(
        _ number: ApplicationNumber, _ connection: ConnectionName
    ) throws(Refusal) -> Application {
        let application = try require(number)
        guard application.delegate == connection else { throw .notDelegate(connection, number) }
        return application
    }

    private mutating func configured(_ settings: Settings) {
        step.settings = settings
        for number in applications.keys.sorted() {
            update(number, .configuration) { $0.apply(settings) }
        }
    }
}

/// The data of one fact or request on its way through the machine.
struct Step: Equatable, Sendable {
    var settings: Settings
    /// When it is processed (CLOCK_MONOTONIC, µs).
    var now: Microseconds = 0
    /// The effects so far.
    var effects: [Effect] = []
    /// A restored application is settled, so the observed situation existed before.
    var isReasserting = false
}
