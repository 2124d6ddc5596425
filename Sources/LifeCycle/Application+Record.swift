import AppStateContract

extension Application {
    /// Everything but what follows from its windows and settings.
    func record() -> Record {
        var record = Record()
        record.add("number", number.description)
        record.add("id", id.rawValue)
        record.add("process", process.recorded)
        record.add("user", String(user))
        record.add("session", session.recorded)
        record.add("registered", String(registeredAt))
        record.add("adopted", ifPresent: isAdopted ? isAdopted.digit : nil)
        record.add("state", state.rawValue)
        record.add("since", String(stateSince))
        record.add("delegate", ifPresent: delegate)
        record.add("told", toldState.rawValue)
        record.add("suspension", requestedSuspension.rawValue)
        record.add("reclaimable", requestedReclaimable.digit)
        for mode in requestedModes { record.add("background-mode", mode.escaped) }
        record.add("assumed-visible", isAssumedVisible.digit)
        record.add("stopped", isStopped.digit)
        record.add("enforcement", "\(enforcement.rawValue) \(enforcementCause.rawValue)")
        for hold in holds { record.add("hold", "\(hold.reason.rawValue) \(hold.holder.escaped)") }
        record.add("foreign-stop", ifPresent: foreignStop?.escaped)
        record.add("lifts-foreign-stop", ifPresent: liftsForeignStop ? liftsForeignStop.digit : nil)
        record.add("launch", ifPresent: launch?.recorded)
        record.add("grace", ifPresent: grace.recorded)
        record.add("termination", ifPresent: termination?.recorded)
        record.add("protection", ifPresent: protection?.recorded)
        record.add("breath", ifPresent: breath.deadline.map(String.init))
        record.add("serial", String(lastSerial))
        record.add("last-task", String(lastTask))
        for task in tasks { record.add("task", task.recorded) }
        for line in backlog.recorded { record.add("missed", line) }
        record.add("objection", ifPresent: objection?.escaped)
        return record
    }

    init(_ record: Record) throws(Record.Flaw) {
        let process = try record.require("process", ProcessID.init(recorded:))
        number = ApplicationNumber(try record.require("number") { UInt32($0) })
        id = try record.require("id", ApplicationID.init)
        self.process = process
        user = try record.require("user") { UInt32($0) }
        session = try record.require("session", SessionKey.init(recorded:))
        registeredAt = try record.require("registered") { UInt64($0) }
        isAdopted = try record.optional("adopted", Bool.init(digit:)) ?? false
        state = try record.require("state", LifeCycleState.init(rawValue:))
        stateSince = try record.require("since") { UInt64($0) }
        delegate = record["delegate"]
        toldState = try record.require("told", LifeCycleState.init(rawValue:))
        requestedSuspension = try record.require("suspension", SuspensionPolicy.init(rawValue:))
        requestedReclaimable = try record.require("reclaimable", Bool.init(digit:))
        requestedModes = try record.all("background-mode", String.init(escaped:))
        suspension = requestedSuspension
        reclaimable = requestedReclaimable
        isAssumedVisible = try record.require("assumed-visible", Bool.init(digit:))
        isStopped = try record.require("stopped", Bool.init(digit:))
        let enforced = try record.require("enforcement") { text -> (Enforcement, StateChangeReason)? in
            var words = Words(text)
            guard let phase = words.next().flatMap(Enforcement.init(rawValue:)),
                let cause = words.next().flatMap(StateChangeReason.init(rawValue:)), words.isAtEnd
            else { return nil }
            return (phase, cause)
        }
        enforcement = enforced.0
        enforcementCause = enforced.1
        holds = try record.all("hold", Hold.init(recorded:))
        foreignStop = try record.optional("foreign-stop", String.init(escaped:))
        liftsForeignStop = try record.optional("lifts-foreign-stop", Bool.init(digit:)) ?? false
        launch = try record.optional("launch", Countdown.init(recorded:))
        grace = try record.optional("grace", Grace.init(recorded:)) ?? .none
        termination = try record.optional("termination", Termination.init(recorded:))
        protection = try record.optional("protection", Protection.init(recorded:))
        breath = try record.optional("breath") { UInt64($0) }.map { .due(at: $0) } ?? .none
        lastSerial = try record.require("serial") { UInt64($0) }
        lastTask = try record.require("last-task") { UInt64($0) }
        tasks = try record.all("task", BackgroundTask.init(recorded:))
        backlog = try Backlog(recorded: record.values(of: "missed"))
        objection = try record.optional("objection", String.init(escaped:))
    }
}

extension Application.Hold {
    fileprivate init?(recorded text: String) {
        var words = Words(text)
        guard let reason = words.next().flatMap(HoldReason.init(rawValue:)),
            let holder = String(escaped: words.remainder())
        else { return nil }
        self.init(reason: reason, holder: holder)
    }
}

extension Application.Grace {
    fileprivate var recorded: String? {
        switch self {
        case .none: nil
        case .over: "over"
        case .running(let serial, let countdown): "\(countdown.recorded) \(serial ?? 0)"
        }
    }

    fileprivate init?(recorded text: String) {
        if text == "over" {
            self = .over
            return
        }
        var words = Words(text)
        guard let countdown = words.next().flatMap(Countdown.init(recorded:)),
            let serial: UInt64 = words.number(), words.isAtEnd
        else { return nil }
        self = .running(serial: serial == 0 ? nil : serial, countdown)
    }
}

extension Application.Protection {
    fileprivate var recorded: String { "\(limit.recorded) \(serial)" }

    fileprivate init?(recorded text: String) {
        var words = Words(text)
        guard let limit = words.next().flatMap(Countdown.init(recorded:)),
            let serial: UInt64 = words.number(),
            words.isAtEnd
        else { return nil }
        self.init(serial: serial, limit: limit)
    }
}

extension Application.Termination {
    fileprivate var recorded: String {
        "\(serial) \(requestExitAt ?? 0) \(killAt ?? 0) \(verdict.rawValue) \(isExitRequested.digit)"
    }

    fileprivate init?(recorded text: String) {
        var words = Words(text)
        guard let serial: UInt64 = words.number(), let exitAt: Microseconds = words.number(),
            let killAt: Microseconds = words.number(),
            let verdict = words.next().flatMap(ExitReason.init(rawValue:)),
            let isExitRequested = words.flag(), words.isAtEnd
        else { return nil }
        self.init(
            serial: serial, requestExitAt: exitAt == 0 ? nil : exitAt, killAt: killAt == 0 ? nil : killAt,
            verdict: verdict, isExitRequested: isExitRequested)
    }
}

extension Application.BackgroundTask {
    fileprivate var recorded: String {
        "\(id) \(owner) \(warning) \(limit.recorded) \(isWarned.digit) \(name.escaped)"
    }

    fileprivate init?(recorded text: String) {
        var words = Words(text)
        guard let id: UInt64 = words.number(), let owner = words.next(),
            let warning: Microseconds = words.number(),
            let limit = words.next().flatMap(Countdown.init(recorded:)), let isWarned = words.flag(),
            let name = String(escaped: words.remainder())
        else { return nil }
        self.init(id: id, name: name, owner: owner, warning: warning, limit: limit, isWarned: isWarned)
    }
}

extension String {
    /// On one line, as C writes it: `\n` for a line feed, `\t` for a tab, `\\` for a backslash.
    public var escaped: String {
        guard contains(where: { $0.isNewline || $0 == "\\" || $0 == "\0" || $0 == "\t" }) else { return self }
        var text = ""
        for scalar in unicodeScalars {
            switch scalar {
            case "\n": text += "\\n"
            case "\r": text += "\\r"
            case "\0": text += "\\0"
            case "\t": text += "\\t"
            case "\\": text += "\\\\"
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text
    }

    public init?(escaped text: String) {
        var result = ""
        var isEscape = false
        for scalar in text.unicodeScalars {
            switch (isEscape, scalar) {
            case (false, "\\"):
                isEscape = true
                continue
            case (false, _): result.unicodeScalars.append(scalar)
            case (true, "n"): result += "\n"
            case (true, "r"): result += "\r"
            case (true, "0"): result += "\0"
            case (true, "t"): result += "\t"
            case (true, "\\"): result += "\\"
            case (true, _): return nil
            }
            isEscape = false
        }
        guard !isEscape else { return nil }
        self = result
    }
}
