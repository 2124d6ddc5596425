import AppStateContract

/// Writing records and restoring from them, so that the next daemon knows everything that a killed daemon
/// knew (§ 5).
extension Machine {
    /// The record of one application and its windows; nil if there is none.
    public func record(of number: ApplicationNumber) -> Record? {
        guard let application = applications[number] else { return nil }
        var record = application.record()
        for key in application.windows.sorted() {
            guard let window = windows[key] else { continue }
            record.add("window", fields(window, key))
        }
        for key in sessionKeys(of: application) {
            guard let session = sessions[key] else { continue }
            // Valid until logind reports again. Otherwise a locked session would count as being in front
            // meanwhile.
            if !session.inFront { record.add("away", key.fields) }
            if session.isLocked { record.add("locked", key.fields) }
            if session.reporting != .present { record.add("lost-reporter", key.fields) }
        }
        for line in recordedObjections(of: number) { record.add("reported-objection", line) }
        return record
    }

    /// Restores an application from its record, without any announcement or action; `reassert` follows when
    /// all are restored. If the record is invalid, throws an error and changes nothing.
    public mutating func restore(_ record: Record) throws(Record.Flaw) -> ApplicationNumber {
        let application = try Application(record)
        let number = application.number
        guard applications[number] == nil else { throw Record.Flaw("number", number.description) }
        guard numbers[application.process] == nil else {
            throw Record.Flaw("process", application.process.fields.joined(separator: " "))
        }
        let found = try record.all("window") { RestoredWindow(&$0) }
        let away = try record.all("away") { SessionKey(&$0) }
        let locked = try record.all("locked") { SessionKey(&$0) }
        let reports = try record.all("reported-objection") { fields -> (ConnectionName, ReportedObjection)? in
            guard let name = fields.text(), let reported = ReportedObjection(&fields) else { return nil }
            return (name, reported)
        }
        let lost = try record.all("lost-reporter") { SessionKey(&$0) }

        applications[number] = application
        numbers[application.process] = number
        countByUser[application.user, default: 0] += 1
        lastNumber = max(lastNumber, number.rawValue)
        for entry in found { add(entry) }
        for session in away { sessions[session, default: Session()].inFront = false }
        for session in locked { sessions[session, default: Session()].isLocked = true }
        for (name, reported) in reports {
            reportedObjections[name, default: [:]][reported.lineage[0], default: reported].reasons.formUnion(
                reported.reasons)
            objected.insert(number)
        }
        for session in lost { sessions[session, default: Session()].reporting = .lost }
        return number
    }

    /// Sets the number that was assigned last. Must be called after the applications are restored: numbers
    /// start again at 1 after the greatest one, so the restored numbers need not be the last ones.
    public mutating func continueNumbers(after number: UInt32) { lastNumber = number }

    /// Settles a restored application: the stop that its holds require is ordered again.
    ///
    /// - Parameters:
    ///   - isSignalled: whether its process has a SIGSTOP. If not, no process still wants it stopped by
    ///     signal.
    ///   - isDying: whether SIGKILL is known to have been sent to any of its processes.
    public mutating func reassert(
        _ number: ApplicationNumber, isSignalled: Bool = true, isDying: Bool = false, at now: Microseconds
    ) -> [Effect] {
        step.now = now
        step.isReasserting = true
        defer { step = Step(settings: settings) }
        guard let application = applications[number] else { return [] }
        let view = view(of: application)
        let reasons = (reportedReasons()[number] ?? []).sorted()
        if application.stop.isLifting { step.effects.append(.continueForeign(number)) }
        // It is not known whether all of it was killed. Where nothing is known to have been, an end for lack of memory is
        // decided anew, while memory is short.
        let reason = application.stop.cause ?? .signal
        let isKilledAtOnce = application.termination?.isAtOnce == true
        let isSpared = isKilledAtOnce && application.isBeingReclaimed && !isDying
        updateAnnouncing(number, reason) {
            $0.apply($1.settings)
            if isSpared { $0.termination = nil }
            // The former daemon only observed, and has reported the application that it would not be suspended.
            if $0.wouldBeSuspended, $1.settings.mode == .enforce { $0.grace(.objectionEnded, $1) }
            // Its inhibitors ended with the former daemon. Their holders have a grace period to take them again.
            if $0.wasInhibited { $0.grace(.objectionEnded, $1) }
            $0.wasInhibited = false
            $0.show(view)
            $0.reportedReasons = reasons
            $0.stop.handle(.restored(isHeld: !$0.holds.isEmpty, isSignalled: isSignalled), at: now)
        }
        if let termination = applications[number]?.termination {
            awaitReclaim(of: number, termination)
            if termination.isAtOnce {
                let isUnresponsive = termination.verdict == .unresponsive
                step.effects.append(isUnresponsive ? .killUnresponsive(number) : .kill(number))
            }
        }
        // Its holds no longer apply, for example because policy has another configuration.
        if !application.holds.isEmpty, let next = applications[number], next.holds.isEmpty {
            step.effects.append(.resume(number))
        }
        return step.effects
    }

    /// Gives up every hold and takes no new ones, because the daemon shuts down.
    public mutating func relinquish(at now: Microseconds) -> [Effect] {
        isRelinquished = true
        step.now = now
        defer { step = Step(settings: settings) }
        for number in applications.keys.sorted() {
            update(number, .policy) { $0.holds = [] }
        }
        return step.effects
    }

    /// All connections that have a part in an application, or that report windows or reportedObjections.
    public var connections: Set<ConnectionName> {
        Set(applications.values.flatMap(\.connections)).union(reporters.keys).union(reportedObjections.keys)
    }

    /// Processes that own windows, or that objections are about.
    public var reportedProcesses: [ProcessID] {
        Set(windowsByProcess.keys).union(reportedObjections.values.joined().map(\.key)).sorted {
            $0.pid < $1.pid
        }
    }

    private func fields(_ window: Window, _ key: WindowKey) -> [String] {
        var flags = ""
        if window.reporterUser == 0, reporters[key.reporter]?.session != nil { flags += "s" }
        if window.visible { flags += "v" }
        if window.minimized { flags += "m" }
        if window.isUnsaved { flags += "u" }
        if sessions[window.session]?.focus == key { flags += "f" }
        // If there are a thousand windows, each is written whenever one of them changes.
        var fields = [key.reporter, String(key.number)]
        fields.reserveCapacity(8 + 2 * window.lineage.count)
        fields += window.session.fields
        fields.append(String(window.reporterUser))
        fields.append(flags)
        fields.append(Self.beginning(of: window.appID))
        fields.append(Self.beginning(of: window.title))
        for process in window.lineage { fields += process.fields }
        return fields
    }

    /// Enough text to recognize a window: a record is written whenever one of its windows changes.
    private static func beginning(of text: String) -> String {
        text.utf8.count <= 128 ? text : String(String.UnicodeScalarView(text.unicodeScalars.prefix(128)))
    }

    /// A reporter that is gone counts as one that reports until the daemon says that its connection has ended.
    private mutating func add(_ entry: RestoredWindow) {
        let session = entry.window.session
        put(entry.window, as: entry.key)
        if entry.hasFocus { sessions[session, default: Session()].focus = entry.key }
        if entry.key.isWhole { return }
        let own = entry.window.reporterUser != 0 || entry.isOfOneSession ? session : nil
        reporters[entry.key.reporter, default: Reporter(session: own)].reported.insert(session)
    }
}

/// A window as read from a record.
private struct RestoredWindow {
    let key: WindowKey
    var window: Window
    let hasFocus: Bool
    /// Its reporter is root's, and has called `SetSession`.
    let isOfOneSession: Bool

    init?(_ fields: inout Fields) {
        guard let reporter = fields.text(), let number: UInt64 = fields.number(),
            let session = SessionKey(&fields), let user: UInt32 = fields.number(), let flags = fields.text(),
            let appID = fields.text(), let title = fields.text(),
            let lineage = fields.all({ ProcessID(&$0) }), !lineage.isEmpty
        else { return nil }
        key = WindowKey(reporter: reporter, number: number)
        window = Window(session: session, lineage: lineage, reporterUser: user)
        window.visible = flags.contains("v")
        window.minimized = flags.contains("m")
        window.isUnsaved = flags.contains("u")
        window.appID = appID
        window.title = title
        hasFocus = flags.contains("f")
        isOfOneSession = flags.contains("s")
    }
}
