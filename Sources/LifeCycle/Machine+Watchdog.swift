import AppStateContract

/// Applications that do not respond in time: to the launch, the background, the end.
extension Machine {
    /// The time for a response is over.
    ///
    /// - Returns: whether the application is killed because of this.
    @discardableResult
    mutating func missed(_ event: UnresponsiveEvent, by number: ApplicationNumber) -> Bool {
        // Without a delegate no response is required, but a launched application is expected to show a
        // window.
        guard let application = applications[number],
            application.delegate != nil || event == .launch && showsItself(application)
        else { return false }
        // Once for each time that it becomes unresponsive.
        if application.unresponsive != event {
            updateAnnouncing(number, .policy) {
                $0.unresponsive = event
                let announcement = Announcement(.didBecomeUnresponsive, .event(event))
                $1.effects.append(.announce(number, announcement, to: .subscribers))
            }
            step.effects.append(.notice(number, .unresponsive(event)))
        }
        guard kills(application, for: event), !application.isTerminating else { return false }
        guard settings.mode == .enforce else {
            step.effects.append(.notice(number, .wouldTerminate(event)))
            return false
        }
        update(number, .policy) {
            $0.termination = .atOnce(.unresponsive)
            // It has not launched. If a debugger spares it, the launch may take any time.
            if $0.isLaunching { $0.launch = .endless }
        }
        step.effects.append(.killUnresponsive(number))
        return true
    }

    /// Whether a reporter would report a window of a launched application that has not registered itself.
    private func showsItself(_ application: Application) -> Bool {
        guard application.awaitsOwnRegistration else { return false }
        return reporters.values.contains {
            $0.session == application.session || $0.reported.contains(application.session)
        }
    }

    /// The same for the background. This is false while something else keeps it from being suspended, because its delegate
    /// was told a later deadline, or none. With a grace period of 0 no application can respond.
    mutating func missedBackground(_ number: ApplicationNumber) -> Bool {
        guard let application = applications[number], !hasLostReporter(application), !isShuttingDown,
            let deadline = application.suspensionDeadline, deadline <= step.now,
            application.ownGrace(settings) != 0
        else { return false }
        return missed(.background, by: number)
    }

    /// The same for an end. Neither can a stopped application respond.
    mutating func missedEnd(_ verdict: ExitReason, by number: ApplicationNumber) {
        let grace: Microseconds? =
            verdict == .reclaimed ? settings.pressure.terminateGrace : settings.terminateGrace
        guard grace != 0, applications[number]?.isStopped == false else { return }
        missed(.termination, by: number)
    }

    private func kills(_ application: Application, for event: UnresponsiveEvent) -> Bool {
        if settings.applications[application.id.rawValue]?.unresponsiveAction == .terminate { return true }
        return event == .launch && settings.launchTimeoutAction == .terminate
    }
}
