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
        record.add("adopted", ifPresent: isAdopted ? [isAdopted.digit] : nil)
        record.add("by-itself", ifPresent: hasRegisteredItself ? [hasRegisteredItself.digit] : nil)
        record.add("launched", ifPresent: awaitsOwnRegistration ? [awaitsOwnRegistration.digit] : nil)
        record.add("restored", ifPresent: isRestored ? [isRestored.digit] : nil)
        record.add("state", state.rawValue)
        record.add("since", String(stateSince))
        record.add("delegate", ifPresent: delegate.map { [$0] })
        record.add("answers-pings", ifPresent: answersPings ? [answersPings.digit] : nil)
        record.add("told", toldState.rawValue)
        record.add("suspension", requestedSuspension.rawValue)
        record.add("reclaimable", requestedReclaimable.digit)
        record.add("unsaved", ifPresent: saysUnsaved ? [saysUnsaved.digit] : nil)
        record.add("unresponsive", ifPresent: unresponsive.map { [$0.rawValue] })
        for mode in requestedModes { record.add("background-mode", mode) }
        record.add("rule", ifPresent: rule?.fields)
        record.add("rule-drain", ifPresent: rule?.drain)
        record.add("rule-policy", ifPresent: rule?.policy)
        record.add("rule-relaunch", ifPresent: rule?.relaunchReclaimed.map { [$0.digit] })
        record.add("rule-unsaved-mark", ifPresent: rule?.unsavedMark.map { [$0.digit] })
        record.add("assumed-visible", isAssumedVisible.digit)
        stop.add(to: &record)
        for hold in holds { record.add("hold", hold.reason.rawValue, hold.holder) }
        record.add("launch", ifPresent: launch?.fields)
        record.add("grace", ifPresent: grace.fields)
        record.add("would-suspend", ifPresent: wouldBeSuspended ? [wouldBeSuspended.digit] : nil)
        record.add("termination", ifPresent: termination?.fields)
        record.add("protection", ifPresent: protection?.fields)
        record.add("serial", String(lastSerial))
        record.add("last-task", String(lastTask))
        for task in tasks { record.add("task", task.fields) }
        for transfer in transfers { record.add("transfer", transfer) }
        for missed in backlog.fields { record.add("missed", missed) }
        record.add("objection", ifPresent: objection.map { [$0] })
        record.add("objected", ifPresent: isObjected ? [isObjected.digit] : nil)
        let isInhibited = wasInhibited || !inhibitors.isEmpty
        record.add("inhibited", ifPresent: isInhibited ? [isInhibited.digit] : nil)
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
        isAdopted = try record.optional("adopted") { $0.flag() } ?? false
        hasRegisteredItself = try record.optional("by-itself") { $0.flag() } ?? false
        awaitsOwnRegistration = try record.optional("launched") { $0.flag() } ?? false
        isRestored = try record.optional("restored") { $0.flag() } ?? false
        state = try record.require("state") { $0.value() }
        stateSince = try record.require("since") { $0.number() }
        delegate = try record.optional("delegate") { $0.text() }
        answersPings = try record.optional("answers-pings") { $0.flag() } ?? false
        toldState = try record.require("told") { $0.value() }
        requestedSuspension = try record.require("suspension") { $0.value() }
        requestedReclaimable = try record.require("reclaimable") { $0.flag() }
        saysUnsaved = try record.optional("unsaved") { $0.flag() } ?? false
        unresponsive = try record.optional("unresponsive") { $0.value() }
        requestedModes = try record.all("background-mode") { $0.text() }
        rule = try record.optional("rule") { Rule(&$0) }
        let drain = try record.optional("rule-drain") { Rule.drain(&$0) }
        rule?.drainEvery = drain?.every
        rule?.drainFor = drain?.span
        let policy = try record.optional("rule-policy") { Rule.policy(&$0) }
        rule?.suspendWhen = policy?.when
        rule?.backgroundCPUQuota = policy?.quota
        rule?.relaunchReclaimed = try record.optional("rule-relaunch") { $0.flag() }
        rule?.unsavedMark = try record.optional("rule-unsaved-mark") { $0.flag() }
        suspension = requestedSuspension
        reclaimable = requestedReclaimable
        isAssumedVisible = try record.require("assumed-visible") { $0.flag() }
        stop = try StopStatus(record)
        holds = try record.all("hold") { Hold(&$0) }
        launch = try record.optional("launch") { Countdown(&$0) }
        grace = try record.optional("grace") { Grace(&$0) } ?? .none
        wouldBeSuspended = try record.optional("would-suspend") { $0.flag() } ?? false
        termination = try record.optional("termination") { Termination(&$0) }
        protection = try record.optional("protection") { Protection(&$0) }
        lastSerial = try record.require("serial") { $0.count() }
        lastTask = try record.require("last-task") { $0.count() }
        tasks = try record.all("task") { BackgroundTask(&$0) }
        transfers = try record.all("transfer") { $0.text() }
        backlog = try Backlog(record, "missed")
        objection = try record.optional("objection") { $0.text() }
        isObjected = try record.optional("objected") { $0.flag() } ?? false
        wasInhibited = try record.optional("inhibited") { $0.flag() } ?? false
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
