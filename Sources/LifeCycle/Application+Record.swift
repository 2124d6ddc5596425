import AppStateContract

extension Application {
    /// Everything except what follows from its windows and settings.
    func record() -> Record {
        var record = Record()
        // The process and its user come first, because they are needed to release the application.
        record.add("number", number.description)
        record.add("process", process.fields)
        record.add("user", String(user))
        record.add("id", id.rawValue)
        record.add("session", session.fields)
        record.add("registered", String(registeredAt))
        record.add("registrant", registrant.rawValue)
        record.add("restored", if: isRestored)
        record.add("state", state.rawValue)
        record.add("since", String(stateSince))
        record.add("delegate", ifPresent: delegate.map { [$0] })
        record.add("answers-pings", if: answersPings)
        record.add("told", announcedState.rawValue)
        record.add("suspension", requestedSuspension.rawValue)
        record.add("reclaimable", requestedReclaimable.digit)
        record.add("unsaved", if: saysUnsaved)
        record.add("unresponsive", ifPresent: unresponsive.map { [$0.rawValue] })
        for mode in requestedModes { record.add("background-mode", mode) }
        record.add("rule", ifPresent: rule?.fields)
        record.add("assumed-visible", isAssumedVisible.digit)
        stop.add(to: &record)
        for hold in holds { record.add("hold", hold.reason.rawValue, hold.holder) }
        record.add("launch", ifPresent: launch?.fields)
        record.add("grace", ifPresent: grace.fields)
        record.add("would-suspend", if: wouldBeSuspended)
        record.add("termination", ifPresent: termination?.fields)
        record.add("protection", ifPresent: protection?.fields)
        record.add("serial", String(lastSerial))
        record.add("last-task", String(lastTask))
        for task in tasks { record.add("task", task.fields) }
        for transfer in transfers { record.add("transfer", transfer) }
        for missed in backlog.fields { record.add("missed", missed) }
        record.add("objection", ifPresent: objection.map { [$0] })
        record.add("objected", if: isObjected)
        let isInhibited = wasInhibited || !inhibitors.isEmpty
        record.add("inhibited", if: isInhibited)
        record.add("demand", ifPresent: demand.map { [$0] })
        record.add("answering", ifPresent: answering?.fields)
        return record
    }

    init(_ record: Record) throws(Record.Flaw) {
        process = try record.require("process") { ProcessID(&$0) }
        number = ApplicationNumber(try record.require("number") { $0.number() })
        id = try record.require("id") { $0.text().flatMap(ApplicationID.init) }
        user = try record.require("user") { $0.number() }
        session = try record.require("session") { SessionKey(&$0) }
        registeredAt = try record.require("registered") { $0.number() }
        registrant = try record.require("registrant") { $0.value() }
        isRestored = try record.flag("restored")
        state = try record.require("state") { $0.value() }
        stateSince = try record.require("since") { $0.number() }
        delegate = try record.optional("delegate") { $0.text() }
        answersPings = try record.flag("answers-pings")
        announcedState = try record.require("told") { $0.value() }
        requestedSuspension = try record.require("suspension") { $0.value() }
        requestedReclaimable = try record.require("reclaimable") { $0.flag() }
        saysUnsaved = try record.flag("unsaved")
        unresponsive = try record.optional("unresponsive") { $0.value() }
        requestedModes = try record.all("background-mode") { $0.text() }
        rule = try record.optional("rule") { Rule(&$0) }
        suspension = requestedSuspension
        reclaimable = requestedReclaimable
        isAssumedVisible = try record.require("assumed-visible") { $0.flag() }
        stop = try StopStatus(record)
        holds = try record.all("hold") { Hold(&$0) }
        launch = try record.optional("launch") { Countdown(&$0) }
        grace = try record.optional("grace") { Grace(&$0) } ?? .none
        wouldBeSuspended = try record.flag("would-suspend")
        termination = try record.optional("termination") { Termination(&$0) }
        protection = try record.optional("protection") { Protection(&$0) }
        lastSerial = try record.require("serial") { $0.count() }
        lastTask = try record.require("last-task") { $0.count() }
        tasks = try record.all("task") { BackgroundTask(&$0) }
        transfers = try record.all("transfer") { $0.text() }
        backlog = try Backlog(record, "missed")
        objection = try record.optional("objection") { $0.text() }
        isObjected = try record.flag("objected")
        wasInhibited = try record.flag("inhibited")
        demand = try record.optional("demand") { $0.text() }
        answering = try record.optional("answering") { Answering(&$0) }
    }
}

extension Application.Hold {
    fileprivate init?(_ fields: inout Fields) {
        guard let reason: HoldReason = fields.value(), let holder = fields.text() else { return nil }
        self.init(reason: reason, holder: holder)
    }
}

extension Application.Protection {
    fileprivate var fields: [String] { [String(serial)] + limit.fields }

    fileprivate init?(_ fields: inout Fields) {
        guard let serial: UInt64 = fields.number(), let limit = Countdown(&fields) else { return nil }
        self.init(serial: serial, limit: limit)
    }
}

extension Application.BackgroundTask {
    fileprivate var fields: [String] {
        [String(id), name, owner ?? "", String(warning), isWarned.digit, isCancelled.digit]
            + (progress.map { [$0.title, String($0.total), String($0.completed)] } ?? ["", "", ""])
            + limit.fields
    }

    fileprivate init?(_ fields: inout Fields) {
        guard let id: UInt64 = fields.number(), let name = fields.text(), let owner = fields.text(),
            let warning: Microseconds = fields.number(), let isWarned = fields.flag(),
            let isCancelled = fields.flag(), let title = fields.text(), let total = fields.text(),
            let completed = fields.text(), let limit = Countdown(&fields)
        else { return nil }
        var progress: Progress?
        if let total = UInt64(total), let completed = UInt64(completed) {
            progress = Progress(title: title, total: total, completed: completed)
        }
        self.init(
            id: id, name: name, owner: owner.isEmpty ? nil : owner, warning: warning, progress: progress,
            limit: limit, isWarned: isWarned, isCancelled: isCancelled)
    }
}
