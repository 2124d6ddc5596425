import AppStateBus
import AppStateContract
import LifeCycle
import Linux
import Systemd

private typealias Name = ApplicationMethod

/// Launches that applications schedule: decode, ask, reply.
extension Daemon {
    /// For the application's own processes only.
    func schedulingMethods() -> [Method] {
        [
            Method(Name.scheduleLaunch, in: [("type", "s"), ("options", "a{sv}")]) { [unowned self] call in
                let type = try call.message.readString()
                let options = try call.message.readDictionary()
                let (application, _) = try access.ownApplication(call)
                let (keeper, kept) = try keeper(of: application)
                let limit = core.machine.settings.limits.stringBytes
                let kind: LaunchTrigger = try Variant.string(type).choice("type")
                let given = try ScheduleOptions(options, of: kind, limit: limit)
                schedule(
                    ScheduledLaunch(owner: kept.owner, name: given.name, trigger: given.trigger), keeper,
                    call.deferred())
            },
            Method(Name.cancelLaunch, in: [("name", "s")]) { [unowned self] call in
                let name = try call.message.readString()
                let (application, _) = try access.ownApplication(call)
                let (keeper, kept) = try keeper(of: application)
                try perform(.cancelLaunch(kept.owner, name: name))
                keeper.confirm(kept, call.deferred())
            },
        ]
    }

    func listScheduledLaunches() -> Method {
        Method(ManagerMethod.listScheduledLaunches, out: [("launches", "aa{sv}")]) { [unowned self] call in
            let connection = try access.unconfinedCaller(of: call.member)
            let visible = core.machine.scheduledLaunches.filter {
                connection.mayManage(user: $0.launch.owner.user)
            }
            try call.reply { message throws(BusFailure) in
                try message.open(.array, "a{sv}")
                for (launch, isDue) in visible { try message.appendDictionary(launch.shown(isDue: isDue)) }
                try message.close()
            }
        }
    }

    func cancelScheduledLaunch() -> Method {
        Method(ManagerMethod.cancelLaunch, in: [("app_id", "s"), ("name", "s")]) { [unowned self] call in
            let id = try call.message.readString()
            let name = try call.message.readString()
            let connection = try access.unconfinedCaller(of: call.member)
            guard let id = ApplicationID(id) else { throw MethodError.notAnID(id) }
            let keeper = try openKeeper()
            let kept = KeptID(user: connection.user, application: id)
            try perform(.cancelLaunch(kept.owner, name: name))
            keeper.confirm(kept, call.deferred())
        }
    }

    /// Schedules a launch, if what it waits for can be watched.
    private func schedule(_ launch: ScheduledLaunch, _ keeper: Keeper, _ call: PendingCall) {
        let kind = launch.trigger.kind
        let admit = { [unowned self] (canWatch: Bool) in
            guard canWatch else { return call.fail(MethodError(.notSupported, Self.cannotWatch(kind))) }
            do throws(MethodError) {
                try perform(.scheduleLaunch(launch))
                keeper.confirm(KeptID(launch.owner), call)
            } catch {
                call.fail(error)
            }
        }
        if kind == .time { admit(time != nil) } else { triggers.ask(kind, admit) }
    }

    private static func cannotWatch(_ trigger: LaunchTrigger) -> String {
        switch trigger {
        case .time: "The clock cannot be watched on this machine"
        case .network: "NetworkManager does not run, which would report the network"
        case .power: "UPower does not run, which would report mains power"
        }
    }

    // MARK: Due

    /// Watches what scheduled launches wait for, and nothing else. Must be called after each step.
    func watchTriggers() {
        // Not before the moment that was asked for.
        time?.alarm = core.machine.nextScheduledTime.map {
            Int64(clamping: $0 / 1_000_000 + ($0 % 1_000_000 > 0 ? 1 : 0))
        }
        triggers.update { [unowned self] in core.machine.awaits($0) }
    }

    /// Wakes the application if it runs, otherwise launches it in the background. Either way it gets a background task's
    /// worth of time, and its delegate is told what for.
    func launchDue(_ launch: ScheduledLaunch) {
        let (id, user) = (launch.owner.application, launch.owner.user)
        let agent = agents.launcher(for: user)
        let request = LaunchRequest(for: launch)
        self.launch(id, of: user, in: agent?.session ?? .user(user), request) { [unowned self] result in
            var isKept = false
            if case .failure(let error) = result {
                // What is not installed any more is not tried again.
                isKept = error.name != ErrorName.noSuchApplication.rawValue
                if error.name != ErrorName.noSessionAgent.rawValue {
                    journal.log(
                        .notice, "\(id) of user \(user) is not launched as scheduled: \(error.message)")
                }
            }
            core.report(.launchSettled(launch, isKept: isKept))
            // Another one has come while this one did not answer.
            if isKept, let next = agents.launcher(for: user), next != agent {
                core.report(.agentCame(user: user))
            }
        }
    }
}

/// The options of `ScheduleLaunch`, each checked.
private struct ScheduleOptions {
    var name = ""
    let trigger: ScheduledLaunch.Trigger

    init(
        _ entries: [(key: String, value: Variant)], of kind: LaunchTrigger, limit: Int
    ) throws(MethodError) {
        var (at, after): (UInt64?, UInt64?)
        var seen: Set<ScheduleKey> = []
        for (key, value) in entries {
            guard let option = ScheduleKey(rawValue: key) else {
                throw MethodError(.invalidArgs, "ScheduleLaunch has no option \"\(key.shortened)\"")
            }
            guard seen.insert(option).inserted else {
                throw MethodError(.invalidArgs, "The option \"\(key)\" is given twice")
            }
            switch option {
            case .name: name = try value.string(key, limit: limit)
            case .at: at = try value.uint64(key)
            case .after: after = try value.uint64(key)
            }
        }
        switch (kind, at, after) {
        case (.time, let at?, nil): trigger = .time(at)
        case (.time, nil, let after?):
            let (time, isTooLate) = Clock.realMicroseconds.addingReportingOverflow(after)
            guard !isTooLate else { throw MethodError(.invalidArgs, "after is too long") }
            trigger = .time(time)
        case (.time, _, _): throw MethodError(.invalidArgs, "The type time needs either at or after")
        case (.network, nil, nil): trigger = .network
        case (.power, nil, nil): trigger = .power
        case (.network, _, _), (.power, _, _):
            throw MethodError(.invalidArgs, "at and after are for the type time only")
        }
    }
}

extension ScheduledLaunch {
    /// An entry of `ListScheduledLaunches`.
    fileprivate func shown(isDue: Bool) -> [(String, Variant)] {
        var entries: [(String, Variant)] = [
            ("app-id", .string(owner.application.rawValue)), ("due", .bool(isDue)), ("name", .string(name)),
            ("type", .string(trigger.kind.rawValue)), ("uid", .uint32(owner.user)),
        ]
        if case .time(let time) = trigger { entries.insert(("at", .uint64(time)), at: 1) }
        return entries
    }
}
