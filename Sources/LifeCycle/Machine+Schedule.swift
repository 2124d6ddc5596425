public import AppStateContract

/// Launches that applications have asked for (§ 8).
extension Machine {
    /// CLOCK_REALTIME of the next scheduled launch; nil: none waits for a moment.
    public var nextScheduledTime: Microseconds? { schedule.nextTime }

    /// Whether a scheduled launch waits for this.
    public func awaits(_ trigger: LaunchTrigger) -> Bool { schedule.awaits(trigger) }

    public func scheduledLaunches(of owner: ScheduleOwner) -> [ScheduledLaunch] {
        schedule.launches(of: owner)
    }

    /// All scheduled launches, and whether each is due and waits for a session agent.
    public var scheduledLaunches: [(launch: ScheduledLaunch, isDue: Bool)] { schedule.all }

    mutating func schedule(_ launch: ScheduledLaunch) throws(Refusal) {
        let own = schedule.launches(of: launch.owner)
        if !own.contains(where: { $0.name == launch.name }) {
            guard own.count < Schedule.mostOfApplication else {
                throw .limitExceeded(
                    "scheduled launches of \(launch.owner.application)", limit: Schedule.mostOfApplication)
            }
            try checkTaskRoom(of: launch.owner.user)
        }
        schedule.add(launch)
        step.effects.append(.scheduleChanged(launch.owner))
    }

    mutating func cancelLaunch(_ owner: ScheduleOwner, name: String?) {
        if schedule.remove(owner, name: name) { step.effects.append(.scheduleChanged(owner)) }
    }

    mutating func launch(_ due: [ScheduledLaunch]) {
        for launch in due { step.effects.append(.launch(launch)) }
    }

    mutating func settled(_ launch: ScheduledLaunch, isKept: Bool) {
        if schedule.settle(launch, isKept: isKept) { step.effects.append(.scheduleChanged(launch.owner)) }
    }
}
