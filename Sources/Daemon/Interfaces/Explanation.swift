import AppStateBus
import AppStateContract
import LifeCycle
import Linux

/// `Explain`, and the checks of an application that its answer needs.
extension Daemon {
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
        objections.examine(registered) { [unowned self] found in
            guard let application = core.machine.applications[number] else { return failGone() }
            let rights = otherRights(of: application).map { [$0] } ?? []
            let objections = core.machine.objections(to: application) + rights + found
            call.reply { message in try append(message, application, objections) }
        }
    }

    /// Why an application is in its state: every fact, hold, objection and timer.
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
        let demands = application.demands.descriptions
        if !demands.isEmpty { entries.append(("demands", .strings(demands))) }
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
            entries.append(("would-set", .strings(resources.plannedValues(registered))))
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

extension Proc {
    /// In words, that a process does not run with its user's rights alone; nil: it does, as far as is known.
    func otherRights(of pid: Int32, than user: UInt32) -> String? {
        guard let owner = (try? status(pid))?.owner, !owner.isWholly(user) else { return nil }
        return "Process \(pid) does not run with the rights of user \(user) alone"
    }
}
