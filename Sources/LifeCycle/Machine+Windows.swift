import AppStateContract

/// The reports of window reporters. They are facts about windows; their effect on an application is
/// recomputed from all of its windows (`refresh`).
extension Machine {
    // MARK: Reports

    mutating func setFocus(_ process: ReportedProcess?, _ reporter: ReporterIdentity) throws(Refusal) {
        guard let process, reporter.isRoot || process.user == reporter.user else {
            // Another user's process: our applications have lost the focus, and this reporter may report
            // nothing else about it.
            let concerned =
                reporter.isRoot ? sessions.keys.sorted(by: SessionKey.inOrder) : [session(of: reporter)]
            for session in concerned { moveFocus(to: nil, in: session) }
            return
        }
        let session = reporter.isRoot ? process.session : session(of: reporter)
        let key = WindowKey.process(session, process.process)
        try checkRoom(for: key, reporter)
        var window = Window(session: session, lineage: process.lineage, reporterUser: reporter.user)
        window.visible = !hasReportedWindows(process.process, in: session)
        let touched = put(window, as: key)
        moveFocus(to: key, in: session, touching: touched)
    }

    mutating func setMinimized(
        _ process: ReportedProcess, _ minimized: Bool, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        guard let number = owner(of: process.lineage), let application = applications[number],
            reporter.isRoot || application.user == reporter.user
        else { throw .noSuchApplication("with process \(process.process.pid)") }

        let session = reporter.isRoot ? process.session : session(of: reporter)
        var keys = (windowsByProcess[process.process] ?? []).filter { key in
            guard case .reported = key, let window = windows[key] else { return false }
            return reporter.isRoot || window.session == session
        }
        if keys.isEmpty {
            let key = WindowKey.process(session, process.process)
            if windows[key] == nil {
                try checkRoom(for: key, reporter)
                put(Window(session: session, lineage: process.lineage, reporterUser: reporter.user), as: key)
            }
            keys = [key]
        }
        for key in keys { windows[key]?.minimized = minimized }
        // A minimized window has no focus, so an earlier report of the focus is out of date.
        if minimized {
            let concerned = reporter.isRoot ? sessions.keys.sorted(by: SessionKey.inOrder) : [session]
            for key in concerned {
                if let focus = sessions[key]?.focus, windows[focus]?.process == process.process {
                    moveFocus(to: nil, in: key, touching: [number], because: .windows)
                }
            }
        }
        refresh([number], .windows)
    }

    /// Accepts one report, or a reporter's whole set, or nothing if a limit is exceeded.
    mutating func updateWindows(
        _ reports: [WindowReport], replacing: Bool, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        try checkLimits(reports, replacing: replacing, reporter)
        let sessions = sessions(of: reports, by: reporter)
        var touched = enlist(reporter, in: sessions)
        if replacing {
            let named = Set(reports.map { WindowKey.reported(reporter.connection, $0.number) })
            for key in superseded(by: reporter, in: sessions).subtracting(named).sorted(by: WindowKey.inOrder)
            {
                touched.formUnion(remove(key))
            }
        }
        take(reports, reporter, touching: touched)
    }

    private mutating func take(
        _ reports: [WindowReport], _ reporter: ReporterIdentity, touching others: Set<ApplicationNumber>
    ) {
        var touched = others
        var focus: [SessionKey: WindowKey?] = [:]
        for report in reports {
            touched.formUnion(take(report, reporter, focus: &focus))
        }
        if focus.isEmpty { return refresh(touched, .windows) }
        for (session, key) in focus.sorted(by: { SessionKey.inOrder($0.key, $1.key) }) {
            moveFocus(to: key, in: session, touching: touched)
            touched = []
        }
    }

    mutating func removeWindow(_ number: UInt64, _ reporter: ReporterIdentity) {
        let owners = remove(.reported(reporter.connection, number))
        refresh(owners, .windows)
        // A stopped application has not closed its window itself. Another process has, and the application
        // has not been notified yet.
        for owner in owners where applications[owner]?.isStopped == true { needed(owner, "window closed") }
    }

    mutating func setSession(_ session: SessionKey, _ reporter: ReporterIdentity) {
        var known =
            reporters[reporter.connection]
            ?? Reporter(session: ownSession(of: reporter), user: reporter.user)
        guard known.session != session else { return }
        known.session = session
        reporters[reporter.connection] = known

        let keys = Set(known.windows.map { WindowKey.reported(reporter.connection, $0) })
        let reported = sessionsReported(by: reporter.connection)
        let left = Set(reported + keys.compactMap { windows[$0]?.session }).subtracting([session])
            .sorted(by: SessionKey.inOrder)
        var touched: Set<ApplicationNumber> = []
        for key in keys {
            windows[key]?.session = session
            if let owner = windows[key]?.owner { touched.insert(owner) }
        }
        // The reporter still exists, but reports for another session now: the old ones have not lost a reporter.
        for old in left { sessions[old]?.lastingReporters.remove(reporter.connection) }
        if !reported.isEmpty { touched.formUnion(enlist(reporter, in: [session])) }
        for old in left where sessions[old]?.focus.map(keys.contains) == true {
            moveFocus(to: nil, in: old)
        }
        refresh(touched, .windows)
        for old in left { tidy(old) }
    }

    /// A reporter's connection has ended. Its reports stay until a new reporter replaces them.
    mutating func reporterLeft(_ connection: ConnectionName) {
        guard let reporter = reporters.removeValue(forKey: connection) else { return }
        for number in reporter.windows {
            let key = WindowKey.reported(connection, number)
            // Another user's window: it could only take the focus from our windows.
            if windows[key]?.process == nil { _ = remove(key) }
        }
        for session in sessionsReported(by: connection) {
            sessions[session]?.lastingReporters.remove(connection)
            guard sessions[session]?.lastingReporters.isEmpty == true else { continue }
            // If the session has ended, no window is visible.
            let hasEnded = sessions[session]?.hasEnded == true
            sessions[session]?.lostReporter = !hasEnded
            refresh(concerned(by: session), .windows)
            tidy(session)
        }
        if let session = reporter.session { tidy(session) }
    }

    // MARK: One report

    private mutating func take(
        _ report: WindowReport, _ reporter: ReporterIdentity, focus: inout [SessionKey: WindowKey?]
    ) -> Set<ApplicationNumber> {
        let key = WindowKey.reported(reporter.connection, report.number)
        let session = session(of: report.process, by: reporter)
        var touched: Set<ApplicationNumber> = []
        var window =
            windows[key] ?? Window(session: session, lineage: [], reporterUser: reporter.user)
        let former = window.process
        if window.session != session {
            // It leaves the other session, where it may have had the focus.
            touched.formUnion(remove(key))
            if focus[window.session] == .some(key) { focus[window.session] = .some(nil) }
            window.session = session
        }
        window.lineage = lineage(of: report, by: reporter)
        window.visible = report.visible ?? window.visible
        window.minimized = report.minimized ?? window.minimized
        window.isUnsaved = report.unsavedChanges ?? window.isUnsaved
        window.title = report.title ?? window.title
        window.appID = report.appID ?? window.appID
        touched.formUnion(put(window, as: key))
        reporters[reporter.connection]?.windows.insert(report.number)
        if let former, !isConcerned(with: former) { step.effects.append(.forget(former)) }

        let whole = WindowKey.process(session, report.process.process)
        if windows[whole] != nil {
            if sessions[session]?.focus == whole && report.focused != false {
                windows[whole]?.visible = false
            } else {
                touched.formUnion(remove(whole))
            }
        }
        switch report.focused {
        case true?: focus[session] = .some(key)
        case false? where (focus[session] ?? sessions[session]?.focus) == key: focus[session] = .some(nil)
        case false?, nil: break
        }
        return touched
    }

    /// Whether one more report about a process as a whole is allowed: it counts as a window.
    private func checkRoom(for key: WindowKey, _ reporter: ReporterIdentity) throws(Refusal) {
        if windows[key] == nil { try checkCount(windowCount(of: reporter.user) + 1, of: reporter.user) }
    }

    private func checkLimits(
        _ reports: [WindowReport], replacing: Bool, _ reporter: ReporterIdentity
    ) throws(Refusal) {
        let numbers = Set(reports.map(\.number))
        let known = reporters[reporter.connection]?.windows ?? []
        guard (replacing ? numbers : known.union(numbers)).count <= Self.windowsPerReporter else {
            throw .limitExceeded("windows of one reporter", limit: Self.windowsPerReporter)
        }
        let named = Set(numbers.map { WindowKey.reported(reporter.connection, $0) })
        var replaced = named
        if replacing { replaced.formUnion(superseded(by: reporter, in: sessions(of: reports, by: reporter))) }
        let gone = replaced.count { windows[$0] != nil }
        try checkCount(windowCount(of: reporter.user) - gone + named.count, of: reporter.user)
    }

    private func windowCount(of user: UInt32) -> Int { windows.values.count { $0.reporterUser == user } }

    /// The reporters of a user who has more, because the limit was lowered, may still change what they have reported.
    private func checkCount(_ count: Int, of user: UInt32) throws(Refusal) {
        let limit = settings.limits.windowsPerUser
        guard count <= max(limit, windowCount(of: user)) else {
            throw .limitExceeded("windows of user \(user)'s reporters", limit: limit)
        }
    }

    /// The only information that is kept about another user's process is that it may have the focus.
    private func lineage(of report: WindowReport, by reporter: ReporterIdentity) -> [ProcessID] {
        reporter.isRoot || report.process.user == reporter.user ? report.process.lineage : []
    }

    /// The windows that a reporter's whole set about these sessions replaces: its own, and those of earlier reporters
    /// that are gone.
    private func superseded(by reporter: ReporterIdentity, in sessions: Set<SessionKey>) -> Set<WindowKey> {
        Set(
            windows.lazy.filter { key, window in
                guard case .reported(let connection, _) = key else { return false }
                return connection == reporter.connection
                    || isOrphaned(key) && sessions.contains(window.session)
                        && window.reporterUser == reporter.user
            }.map(\.key))
    }

    /// The connection of its reporter has ended; the facts stay.
    func isOrphaned(_ key: WindowKey) -> Bool {
        if case .reported(let connection, _) = key { reporters[connection] == nil } else { false }
    }

    /// Makes the connection a permanent reporter of these sessions.
    private mutating func enlist(
        _ reporter: ReporterIdentity, in sessions: Set<SessionKey>
    ) -> Set<ApplicationNumber> {
        if reporters[reporter.connection] == nil {
            reporters[reporter.connection] =
                Reporter(session: ownSession(of: reporter), user: reporter.user)
        }
        var touched: Set<ApplicationNumber> = []
        for session in sessions.sorted(by: SessionKey.inOrder) {
            touched.formUnion(enlist(reporter, in: session))
        }
        return touched
    }

    private mutating func enlist(
        _ reporter: ReporterIdentity, in session: SessionKey
    ) -> Set<ApplicationNumber> {
        sessions[session, default: Session()].lastingReporters.insert(reporter.connection)
        guard sessions[session]?.lostReporter == true else { return [] }
        sessions[session]?.lostReporter = false
        // The exemptions went with the previous reporter, and this one may not have reported them yet.
        let concerned = concerned(by: session)
        for number in concerned.sorted() { restartGrace(number) }
        return concerned
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

    /// The sessions of which the connection is a permanent reporter, in order.
    private func sessionsReported(by connection: ConnectionName) -> [SessionKey] {
        sessions.filter { $0.value.lastingReporters.contains(connection) }.keys
            .sorted(by: SessionKey.inOrder)
    }

    private func hasReportedWindows(_ process: ProcessID, in session: SessionKey) -> Bool {
        windowsByProcess[process]?.contains { key in
            if case .reported = key { return windows[key]?.session == session }
            return false
        } ?? false
    }
}
