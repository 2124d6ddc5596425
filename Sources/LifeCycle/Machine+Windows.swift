import AppStateContract

/// The reports of window reporters. They are facts about windows; their effect on an application is
/// recomputed from all of its windows (`refresh`).
///
/// Each reporter has a set of windows. The set of a reporter that is gone stays until the next one of the same user and
/// session reports its own. `SetFocus` and `SetMinimized` are about the windows of a process; one without windows has an
/// entry as a whole, until a window of it is reported.
extension Machine {
    /// How long a session is without a reporter before policy lifts its holds there.
    static let reporterAbsence: Microseconds = 10_000_000

    // MARK: Reports

    mutating func setFocus(_ process: ReportedProcess?, _ reporter: ReporterIdentity) throws(Refusal) {
        var touched: Set<ApplicationNumber> = []
        guard let process, reporter.isRoot || process.user == reporter.user else {
            // Another user's process: our applications have lost the focus, and this reporter may report
            // nothing else about it.
            for session in reporter.isRoot ? sessions.keys.sorted() : [session(of: reporter)] {
                touched.formUnion(moveFocus(to: nil, in: session))
            }
            return refresh(touched, .focus)
        }
        let session = reporter.isRoot ? process.session : session(of: reporter)
        let windows = keys(of: process.process) { $0.session == session }
        if let key = windows.first(where: { self.windows[$0]?.minimized == false }) ?? windows.first {
            self.windows[key]?.minimized = false
            touched.formUnion(moveFocus(to: key, in: session))
            if let owner = self.windows[key]?.owner { touched.insert(owner) }
        } else {
            let key = try putWhole(process, in: session, reporter, &touched)
            touched.formUnion(moveFocus(to: key, in: session))
        }
        refresh(touched, .focus)
    }

    mutating func setMinimized(
        _ process: ReportedProcess, _ minimized: Bool, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        guard let number = owner(of: process.lineage), let application = applications[number],
            reporter.isRoot || application.user == reporter.user
        else { throw .noSuchApplication("with process \(process.process.pid)") }

        let session = reporter.isRoot ? process.session : session(of: reporter)
        var touched: Set = [number]
        var concerned = keys(of: process.process) { reporter.isRoot || $0.session == session }
        if concerned.isEmpty { concerned = [try putWhole(process, in: session, reporter, &touched)] }
        for key in concerned {
            windows[key]?.minimized = minimized
            // A minimized window has no focus, so an earlier report of the focus is out of date.
            if minimized, let session = windows[key]?.session, sessions[session]?.focus == key {
                touched.formUnion(moveFocus(to: nil, in: session))
            }
        }
        refresh(touched, .windows)
    }

    /// Accepts one report, or a reporter's whole set, or nothing if a limit is exceeded.
    mutating func updateWindows(
        _ reports: [WindowReport], replacing: Bool, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        let named = Set(reports.map { WindowKey(reporter: reporter.connection, number: $0.number) })
        let inSessions = sessions(of: reports, by: reporter)
        let replaced = replacing ? superseded(by: reporter, in: inSessions).subtracting(named) : []
        try checkLimits(named, replaced, reporter)

        var touched = addReporter(reporter, in: inSessions)
        // A process of which another window is reported may have given its windows new numbers.
        let present = Set(reports.map(\.process.process))
        let closed = replaced.filter { key in
            key.reporter == reporter.connection && windows[key]?.process.map(present.contains) == false
        }
        let closers = Set(closed.compactMap { windows[$0]?.owner })
        for key in replaced.sorted() { touched.formUnion(remove(key)) }
        let focus = inSessions.map { sessions[$0]?.focus }
        for report in reports { touched.formUnion(apply(report, reporter)) }
        refresh(touched, focus == inSessions.map { sessions[$0]?.focus } ? .windows : .focus)
        windowsClosed(of: closers)
    }

    mutating func removeWindow(_ number: UInt64, _ reporter: ReporterIdentity) {
        let owners = remove(WindowKey(reporter: reporter.connection, number: number))
        refresh(owners, .windows)
        windowsClosed(of: owners)
    }

    /// A stopped application has not closed its window itself. Another process has, and the application has not been
    /// notified yet.
    private mutating func windowsClosed(of owners: Set<ApplicationNumber>) {
        for owner in owners.sorted() where applications[owner]?.isStopped == true {
            needed(owner, "window closed")
        }
    }

    /// The reporter's windows move there, without the focus. The sessions that it leaves have not lost a reporter.
    mutating func setSession(_ session: SessionKey, _ reporter: ReporterIdentity) {
        var known = reporters[reporter.connection] ?? Reporter(session: ownSession(of: reporter))
        guard known.session != session else { return }
        let left = known.reported
        known.session = session
        known.reported = []
        reporters[reporter.connection] = known
        var touched = left.isEmpty ? [] : addReporter(reporter, in: [session])
        for key in windows.keys.filter({ $0.reporter == reporter.connection }).sorted() {
            guard var window = windows[key] else { continue }
            window.session = session
            touched.formUnion(put(window, as: key))
        }
        refresh(touched, .windows)
        for old in left { dropIfUnused(old) }
    }

    /// A reporter's connection has ended.
    mutating func reporterLeft(_ connection: ConnectionName) {
        guard let reporter = reporters.removeValue(forKey: connection) else { return }
        // Another user's window: it could only take the focus from our windows.
        for key in windows.keys.filter({ $0.reporter == connection }) where windows[key]?.process == nil {
            _ = remove(key)
        }
        for session in reporter.reported.sorted()
        where !reporters.values.contains(where: { $0.reported.contains(session) }) {
            // If the session has ended, no window is visible.
            if sessions[session]?.hasEnded != true, sessions[session]?.reporting != .lost {
                let until = step.now.advanced(saturatingBy: Self.reporterAbsence)
                sessions[session, default: Session()].reporting = .left(until: until)
            }
            refresh(applications(in: session), .windows)
        }
        for session in reporter.reported.union([reporter.session].compactMap(\.self)) {
            dropIfUnused(session)
        }
    }

    /// Sessions whose last reporter has been gone for long are lost.
    mutating func expireReporters() {
        for (session, known) in sessions.sorted(by: { $0.key < $1.key }) {
            guard case .left(let until) = known.reporting, until <= step.now else { continue }
            sessions[session]?.reporting = .lost
            refresh(applications(in: session), .windows)
        }
    }

    var reporterDeadline: Microseconds? {
        sessions.values.lazy.compactMap {
            if case .left(let until) = $0.reporting { until } else { nil }
        }.min()
    }

    // MARK: One report

    private mutating func apply(
        _ report: WindowReport, _ reporter: ReporterIdentity
    ) -> Set<ApplicationNumber> {
        let key = WindowKey(reporter: reporter.connection, number: report.number)
        let session = session(of: report.process, by: reporter)
        let isForeign = !reporter.isRoot && report.process.user != reporter.user
        var window = windows[key] ?? Window(session: session, lineage: [], reporterUser: reporter.user)
        window.session = session
        // The only information that is kept about another user's process is that it may have the focus.
        window.lineage = isForeign ? [] : report.process.lineage
        window.visible = report.visible ?? window.visible
        window.minimized = report.minimized ?? window.minimized
        window.isUnsaved = report.unsavedChanges ?? window.isUnsaved
        window.title = report.title ?? window.title
        window.appID = report.appID ?? window.appID
        var touched = put(window, as: key)

        var isFocused = report.focused
        let whole = WindowKey.whole(report.process.process)
        if !isForeign, windows[whole]?.session == session {
            if sessions[session]?.focus == whole { isFocused = isFocused ?? true }
            touched.formUnion(remove(whole))
        }
        switch isFocused {
        case true?: touched.formUnion(moveFocus(to: key, in: session))
        case false? where sessions[session]?.focus == key:
            touched.formUnion(moveFocus(to: nil, in: session))
        case false?, nil: break
        }
        return touched
    }

    /// Enters that a process as a whole has a window.
    private mutating func putWhole(
        _ process: ReportedProcess, in session: SessionKey, _ reporter: ReporterIdentity,
        _ touched: inout Set<ApplicationNumber>
    ) throws(Refusal) -> WindowKey {
        let key = WindowKey.whole(process.process)
        try checkLimits([key], [], reporter)
        touched.formUnion(
            put(Window(session: session, lineage: process.lineage, reporterUser: reporter.user), as: key))
        return key
    }

    /// The reporters of a user who has more, because the limit was lowered, may still change what they have reported.
    private func checkLimits(
        _ named: Set<WindowKey>, _ replaced: Set<WindowKey>, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        let own = windows.keys.filter { $0.reporter == reporter.connection }
        guard named.union(own).subtracting(replaced).count <= Self.windowsPerReporter else {
            throw .limitExceeded("windows of one reporter", limit: Self.windowsPerReporter)
        }
        let count = windows.values.count { $0.reporterUser == reporter.user }
        let new = named.count { windows[$0] == nil }
        let limit = settings.limits.windowsPerUser
        guard count + new - replaced.count <= max(limit, count) else {
            throw .limitExceeded("windows of user \(reporter.user)'s reporters", limit: limit)
        }
    }

    /// The windows that a reporter's whole set about these sessions replaces: its own, and those that others of its user
    /// have left behind.
    private func superseded(by reporter: ReporterIdentity, in sessions: Set<SessionKey>) -> Set<WindowKey> {
        Set(
            windows.lazy.filter { key, window in
                key.reporter == reporter.connection
                    || !key.isWhole && reporters[key.reporter] == nil && sessions.contains(window.session)
                        && window.reporterUser == reporter.user
            }.map(\.key))
    }

    /// The connection reports the windows of these sessions from now on.
    private mutating func addReporter(
        _ reporter: ReporterIdentity, in sessions: Set<SessionKey>
    ) -> Set<ApplicationNumber> {
        let new = Reporter(session: ownSession(of: reporter))
        reporters[reporter.connection, default: new].reported.formUnion(sessions)
        var touched: Set<ApplicationNumber> = []
        for session in sessions.sorted()
        where self.sessions[session].map({ $0.reporting != .present }) == true {
            self.sessions[session]?.reporting = .present
            // The objections went with the previous reporter, and this one may not have reported them yet.
            let concerned = applications(in: session)
            for number in concerned.sorted() { objectionEnded(number) }
            touched.formUnion(concerned)
        }
        return touched
    }

    private func session(of reporter: ReporterIdentity) -> SessionKey {
        reporters[reporter.connection]?.session ?? reporter.session
    }

    /// The one session that a reporter reports on; nil: root's, which has not called `SetSession`.
    private func ownSession(of reporter: ReporterIdentity) -> SessionKey? {
        reporters[reporter.connection]?.session ?? (reporter.isRoot ? nil : reporter.session)
    }

    /// The session that a report about a window of this process is for.
    private func session(of process: ReportedProcess, by reporter: ReporterIdentity) -> SessionKey {
        ownSession(of: reporter) ?? process.session
    }

    /// The sessions that these windows are in. An empty set is about the reporter's own.
    private func sessions(of reports: [WindowReport], by reporter: ReporterIdentity) -> Set<SessionKey> {
        let named = Set(reports.map { session(of: $0.process, by: reporter) })
        return named.isEmpty ? [session(of: reporter)] : named
    }

    // MARK: The table of windows

    /// The windows of a process, in order.
    private func keys(of process: ProcessID, where isMeant: (Window) -> Bool) -> [WindowKey] {
        (windowsByProcess[process] ?? []).filter { windows[$0].map(isMeant) == true }.sorted()
    }

    /// Adds or replaces a window. Returns the applications whose windows have changed.
    @discardableResult
    mutating func put(_ window: Window, as key: WindowKey) -> Set<ApplicationNumber> {
        var window = window
        window.owner = owner(of: window.lineage, reportedBy: window.reporterUser)
        let old = windows[key]
        if old == window { return [] }
        var touched: Set<ApplicationNumber> = []
        if let old,
            old.session != window.session || old.lineage != window.lineage || old.owner != window.owner
        {
            if old.session != window.session, sessions[old.session]?.focus == key {
                sessions[old.session]?.focus = nil
            }
            touched = detach(key, old)
        }
        windows[key] = window
        if let process = window.process { windowsByProcess[process, default: []].insert(key) }
        if let former = old?.process, former != window.process, !isRelevant(with: former) {
            step.effects.append(.forget(former))
        }
        if let owner = window.owner {
            applications[owner]?.windows.insert(key)
            applications[owner]?.isAssumedVisible = false
            touched.insert(owner)
        }
        if let old, old.session != window.session { dropIfUnused(old.session) }
        return touched
    }

    /// Removes a window. Returns the application that it belonged to.
    mutating func remove(_ key: WindowKey) -> Set<ApplicationNumber> {
        guard let window = windows.removeValue(forKey: key) else { return [] }
        let touched = detach(key, window)
        if sessions[window.session]?.focus == key { sessions[window.session]?.focus = nil }
        dropIfUnused(window.session)
        if let process = window.process, !isRelevant(with: process) { step.effects.append(.forget(process)) }
        return touched
    }

    /// Removes a window from its application and from the index.
    private mutating func detach(_ key: WindowKey, _ window: Window) -> Set<ApplicationNumber> {
        if let process = window.process {
            windowsByProcess[process]?.remove(key)
            if windowsByProcess[process]?.isEmpty == true { windowsByProcess[process] = nil }
        }
        guard let owner = window.owner else { return [] }
        applications[owner]?.windows.remove(key)
        return [owner]
    }

    /// Assigns windows to other owners after `process` was registered or is no longer registered. The windows of an
    /// application below it stay where they are: there may be a thousand such applications.
    mutating func reattribute(windowsBelow process: ProcessID) -> Set<ApplicationNumber> {
        var touched: Set<ApplicationNumber> = []
        for (key, window) in windows.filter({ $0.value.lineage.contains(process) }).sorted(by: {
            $0.key < $1.key
        }) {
            touched.formUnion(put(window, as: key))
            touched.formUnion(removeIfUnused(key))
        }
        return touched
    }

    /// Moves the only focus of a session. Returns the applications that this concerns.
    private mutating func moveFocus(to key: WindowKey?, in session: SessionKey) -> Set<ApplicationNumber> {
        let old = sessions[session]?.focus
        guard old != key else { return [] }
        sessions[session, default: Session()].focus = key
        var touched = Set([old, key].compactMap { $0.flatMap { windows[$0]?.owner } })
        if let old { touched.formUnion(removeIfUnused(old)) }
        dropIfUnused(session)
        return touched
    }

    /// What is known of an unregistered process as a whole is that it has the focus.
    private mutating func removeIfUnused(_ key: WindowKey) -> Set<ApplicationNumber> {
        guard key.isWhole, let window = windows[key], window.owner == nil,
            sessions[window.session]?.focus != key
        else { return [] }
        return remove(key)
    }

    /// The application that a window counts for, if its reporter may report on that application. Reports of one user do
    /// not count for another user's applications, except those of root.
    func owner(of lineage: [ProcessID], reportedBy user: UInt32) -> ApplicationNumber? {
        guard let number = owner(of: lineage), user == 0 || user == applications[number]?.user else {
            return nil
        }
        return number
    }

    /// Forgets a session without information, and an ended session once nothing is left in it.
    mutating func dropIfUnused(_ session: SessionKey) {
        guard let known = sessions[session] else { return }
        if known == Session() || known.hasEnded && !sessionsInUse.contains(session) {
            sessions[session] = nil
        }
    }
}
