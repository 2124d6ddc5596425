import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// The properties of org.appstate1.Application, and `Explain`.
extension Daemon {
    func applicationProperties() -> [Property] {
        [
            property(.id, "s", .const) { try $0.append($1.id.rawValue) },
            property(.pid, "u", .const) { try $0.append(UInt32($1.process.pid)) },
            property(.uid, "u", .const) { try $0.append($1.user) },
            property(.state, "s", .change) { try $0.append($1.state.rawValue) },
            property(.stateTimestamp, "t", .change) { [unowned self] in
                try $0.append(table[$1.number]?.stateSince ?? 0)
            },
            property(.stateTimestampMonotonic, "t", .change) { try $0.append($1.stateSince) },
            property(.registeredTimestamp, "t", .const) { [unowned self] in
                try $0.append(table[$1.number]?.registeredAt ?? 0)
            },
            property(.registeredTimestampMonotonic, "t", .const) { try $0.append($1.registeredAt) },
            property(.launching, "b", .change) { try $0.append($1.isLaunching) },
            property(.terminating, "b", .change) { try $0.append($1.isTerminating) },
            property(.adopted, "b", .const) { try $0.append($1.isAdopted) },
            property(.focused, "b", .change) { try $0.append($1.isFocused) },
            property(.visible, "b", .change) { try $0.append($1.isVisible) },
            property(.minimized, "b", .change) { try $0.append($1.isMinimized) },
            property(.suspension, "s", .change) { try $0.append($1.suspension.rawValue) },
            property(.reclaimable, "b", .change) { try $0.append($1.reclaimable) },
            property(.reclaimRank, "u", .change) { try $0.append($1.outlook.rank.map(\.place) ?? 0) },
            property(.protectedDataAvailable, "b", .change) { try $0.append(!$1.isLocked) },
            property(.unresponsive, "s", .change) { try $0.append($1.unresponsive?.rawValue ?? "") },
            property(.unsavedChanges, "b", .change) { try $0.append($1.hasUnsavedChanges) },
            property(.backgroundModes, "as", .change) { try $0.append(strings: $1.backgroundModes) },
            property(.suspendHolds, "a(ss)", .change) { try $0.append(rows: .holds($1)) },
            property(.suspensionDeadline, "t", .change) { try $0.append($1.outlook.deadline ?? .never) },
            property(.objections, "as", .change) { try $0.append(strings: $1.outlook.objections) },
            property(.inhibitors, "a(ss)", .change) { try $0.append(rows: .inhibitors($1)) },
            property(.backgroundTasks, "a(tst)", .change) { try $0.append(rows: .tasks($1)) },
            property(.continuedTasks, "aa{sv}", .change) { try $0.append(continuedTasksOf: $1) },
            property(.launchOptions, "a{sv}", .change) { [unowned self] in
                let options = table[$1.number]?.launchOptions ?? []
                try $0.appendDictionary(
                    isReadByItself($1) ? options : options.filter { Self.isPublic($0.0) })
            },
            property(.userActivity, "(sa{sv})", .invalidation) { [unowned self] message, application in
                try message.withContainer(.struct, "sa{sv}") {
                    try append(table[application.number]?.userActivity, to: message)
                }
            },
            property(.session, "s", .const) { [unowned self] in
                try $0.append(table[$1.number]?.session ?? "")
            },
            property(.unit, "s", .const) { [unowned self] in
                try $0.append(table[$1.number]?.unit ?? "")
            },
            property(.memoryUsage, "t", .none) { [unowned self] in try $0.append(memoryUsage(of: $1)) },
        ]
    }

    private func property(
        _ name: ApplicationProperty, _ type: String, _ changes: Property.Changes,
        _ value: @escaping (borrowing Message, Application) throws -> Void
    ) -> Property {
        Property(name.rawValue, type, emits: changes) { [unowned self] message, path in
            // Whether the caller may read it was decided when the object was looked up.
            guard let number = BusNames.applicationNumber(inPath: path),
                let application = core.application(ApplicationNumber(number))
            else { throw MethodError(.noSuchApplication, "No application at \(path)") }
            try value(message, application)
        }
    }

    /// Whether the property is being read by one of the application's own processes. No other client reads what was sent
    /// to the application.
    private func isReadByItself(_ application: Application) -> Bool {
        guard let connection = announcer.reader ?? (try? caller()) else { return false }
        return isOwn(application, connection)
    }

    /// Whether a launch option says why and how the application was launched, not with what.
    private static func isPublic(_ launchOption: String) -> Bool {
        LaunchOption(rawValue: launchOption) != nil || launchOption == SenderKey.application
            || [LaunchKey.reason, .launchMode].contains(LaunchKey(rawValue: launchOption))
    }

    /// The sum of the resident sizes of its processes in bytes. Memory that they share is counted for each of them.
    private func memoryUsage(of application: Application) -> UInt64 {
        guard let main = table[application.number]?.process else { return 0 }
        return Extent.members(of: main, proc: proc, isForeign: table.isForeign).reduce(0) {
            $0 &+ ((try? proc.residentBytes($1.pid)) ?? 0)
        }
    }

    /// Why the daemon cannot act on the application: it has executed a set-user-ID program since. nil: it has
    /// not.
    func otherRights(of application: Application) -> String? {
        proc.otherRights(of: application.process.pid, than: application.user)
    }

    /// Answers a call once the application's processes have been checked.
    ///
    /// - Parameter append: gets the application as it is then, and the objections to suspending it: those that the
    ///   life cycle knows, and those that the check found.
    func answer(
        _ call: PendingCall, lookingAt application: Application,
        _ append: @escaping (borrowing Message, Application, [String]) throws -> Void
    ) {
        let number = application.number
        func failGone() { call.fail(MethodError(.noSuchApplication, "Application \(number) has ended")) }
        guard let registered = table[number] else { return failGone() }
        objections.look(at: registered) { [unowned self] found in
            guard let application = core.machine.applications[number] else { return failGone() }
            let rights = otherRights(of: application).map { [$0] } ?? []
            let objections = core.machine.objections(to: application) + rights + found
            call.reply { message in try append(message, application, objections) }
        }
    }

    /// Why an application is in its state: every fact, hold, exemption and timer.
    func explanation(of application: Application, _ objections: [String]) -> [(String, Variant)] {
        var entries: [(String, Variant)] = [
            ("app-id", .string(application.id.rawValue)),
            ("pid", .uint32(UInt32(application.process.pid))),
            ("state", .string(application.state.rawValue)),
            ("target", .string(application.target.rawValue)),
            ("state-since", .uint64(application.stateSince)),
            ("launching", .bool(application.isLaunching)),
            ("terminating", .bool(application.isTerminating)),
            ("stopped", .bool(application.isStopped)),
            ("enforcement", .string(application.stop.enforcement.rawValue)),
            ("focused", .bool(application.isFocused)),
            ("minimized", .bool(application.isMinimized)),
            ("windows", .strings(core.machine.windowSummary(of: application.number))),
            ("away", .strings(core.machine.awaySessions(of: application.number))),
            ("suspension", .string(application.suspension.rawValue)),
            ("holds", .holds(application)),
            ("inhibitors", .inhibitors(application)),
            ("exemptions", .strings(application.exemptions)),
            ("objections", .strings(objections)),
            ("would-suspend", .bool(application.wouldBeSuspended)),
            ("memory-pressure", .string(core.machine.memoryPressure.rawValue)),
            ("reclaim-rank", .string(core.machine.reclaimRank(of: application)?.name ?? "")),
            ("unresponsive", .string(application.unresponsive?.rawValue ?? "")),
            ("unsaved-changes", .strings(application.unsavedReasons)),
            ("reclaim-bytes", .uint64(core.machine.measuredMemory(of: application.number) ?? 0)),
            ("delegate", .string(application.delegate ?? "")),
            ("adopted", .bool(application.isAdopted)),
            ("launched", .bool(table[application.number]?.launch != nil)),
            ("stop-detection", .string(sensor.detection.rawValue)),
            ("trace", .strings(application.trace.map(\.description))),
        ]
        func add(_ key: String, _ number: UInt64?) {
            if let number { entries.append((key, .uint64(number))) }
        }
        add("launch-deadline", application.launchDeadline)
        add("suspension-deadline", core.machine.suspensionDeadline(of: application) ?? .never)
        if application.isTerminating { add("kill-deadline", application.killDeadline ?? .never) }
        add("would-end", core.machine.wouldBeReclaimed(application.number))
        if !application.tasks.isEmpty { entries.append(("tasks", .tasks(application))) }
        if let rule = application.rule { entries.append(("rule", .string(rule.name))) }
        if let objection = application.objection { entries.append(("last-objection", .string(objection))) }
        if let demand = application.demand { entries.append(("last-demand", .string(demand))) }
        if let registered = table[application.number] {
            let failures = registered.signals?.failures.map(\.description) ?? []
            if !failures.isEmpty { entries.append(("stop-failures", .strings(failures))) }
            switch registered.hold {
            case .frozen?: entries.append(("means", .string("freezer")))
            case .signalled?:
                entries.append(("means", .string("signals")))
                entries.append(("freezer-objection", .string(registered.freezerObjection)))
            case nil: break
            }
            entries.append(("resources", .strings(resources.given(registered))))
            entries.append(("would-set", .strings(resources.wouldGive(registered))))
        }
        return entries
    }
}

extension Application {
    /// Why its end would lose data.
    fileprivate var unsavedReasons: [String] {
        (saysUnsaved ? ["the application says so"] : [])
            + (countsUnsavedMark ? ["a window's title shows it"] : [])
    }
}

extension ReclaimPolicy.Rank {
    /// The value of `ReclaimRank`: 1 for those that are ended first.
    fileprivate var place: UInt32 { UInt32(rawValue) + 1 }

    /// The name in `Explain`.
    fileprivate var name: String {
        switch self {
        case .held: "held"
        case .stopped: "stopped"
        case .background: "background"
        case .continued: "continued"
        }
    }
}

extension Variant {
    /// `a(ss)`: reason and holder.
    fileprivate static func holds(_ application: Application) -> Variant {
        .array(
            "(ss)",
            application.allHolds.map { .structure([.string($0.reason.rawValue), .string($0.holder)]) })
    }

    /// `a(ss)`: who and why.
    fileprivate static func inhibitors(_ application: Application) -> Variant {
        .array(
            "(ss)", application.inhibitors.map { .structure([.string($0.who), .string($0.why)]) })
    }

    /// `a(tst)`: id, name and deadline.
    fileprivate static func tasks(_ application: Application) -> Variant {
        .array(
            "(tst)",
            application.tasks.map { .structure([.uint64($0.id), .string($0.name), .uint64($0.deadline)]) })
    }
}

extension Message {
    /// Appends the value without a variant, where the container has the value's own type.
    fileprivate borrowing func append(rows value: Variant) throws(BusFailure) {
        guard case .array(let element, let values) = value else { return }
        try withContainer(.array, element) {
            for value in values {
                guard case .structure(let members) = value else { continue }
                try withContainer(.struct, String(element.dropFirst().dropLast())) {
                    for member in members {
                        switch member {
                        case .string(let text): try append(text)
                        case .uint64(let number): try append(number)
                        default: preconditionFailure("rows are made of strings and numbers")
                        }
                    }
                }
            }
        }
    }
}

extension Proc {
    /// In words, that a process does not run with its user's rights alone; nil: it does, as far as is known.
    func otherRights(of pid: Int32, than user: UInt32) -> String? {
        guard let owner = (try? status(pid))?.owner, !owner.isWholly(user) else { return nil }
        return "Process \(pid) does not run with the rights of user \(user) alone"
    }
}
