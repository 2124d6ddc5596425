import AppStateContract

/// Applications that a session agent has started for `Launch`.
extension Machine {
    /// The application that its process's own registration takes over; nil: the registration begins a new one.
    func launched(takenOverBy registration: Registration) -> Application? {
        guard registration.byItself, let number = numbers[registration.process],
            let application = applications[number], application.awaitsOwnRegistration,
            application.id == registration.id, application.user == registration.user
        else { return nil }
        return application
    }

    /// The launched process registers with its own options. It remains the same application, because the
    /// client that launched it knows its object. If the launch is not over, it continues until
    /// `FinishLaunching`. If one of its windows appeared first, or it was started in the background, it is
    /// notified of its launch and of its current state.
    mutating func takeOver(
        _ application: Application, _ registration: Registration
    ) throws(Refusal) -> ApplicationNumber {
        let number = application.number
        let former = application.delegate
        let delegate = registration.delegate
        updateAnnouncing(number, .launch) {
            $0.registrant = .itself
            $0.unresponsive = nil
            $0.requestedSuspension = registration.suspension ?? .automatic
            $0.requestedReclaimable = registration.reclaimable
            $0.requestedModes = registration.backgroundModes
            $0.apply($1.settings)
            // Without a delegate nothing will report that it has launched.
            if former == nil, delegate == nil { $0.launch = nil }
        }
        guard let delegate else { return number }
        // One of its processes may have become its delegate meanwhile. This one waits for the signals of its launch,
        // unless it is the same connection, which knows the application's state.
        if former != nil { try becomeDelegate(number, delegate) }
        if former == delegate { return number }
        let suspends = policySuspends(application)
        updateAnnouncing(number, .launch) {
            $0.delegate = delegate
            if $0.isLaunching { $0.launch = Countdown($1.settings.launchTimeout, from: $1.now) }
            $0.joinLaunch(isSuspended: suspends, &$1)
        }
        return number
    }

    /// A descendant of a launched process has registered itself under the same id, as the child of a wrapper
    /// does. This descendant is the application that was launched.
    mutating func replaceWrapper(_ number: ApplicationNumber) {
        update(number, .launch) {
            $0.registrant = .another
            $0.isAssumedVisible = false
            if $0.windows.isEmpty { $0.windowLevel = .hidden }
            $0.launch = nil
            $0.unresponsive = nil
            _ = $0.backlog.popDeliveries()
        }
    }
}

extension Application {
    /// Its delegate joins a launch that was announced to others when it began. The delegate is notified of it now and,
    /// if the application has launched already, of the path to its current state.
    ///
    /// - Parameter isSuspended: whether policy suspends it once its grace period is over.
    fileprivate mutating func joinLaunch(isSuspended: Bool, _ step: inout Step) {
        announcedState = .notRunning
        let edges = announcedState.walk(to: Self.asAnnounced(state))
        let launch = [Announcement(.willFinishLaunching), Announcement(.didFinishLaunching)]
        guard isReachable else {
            for announcement in launch { backlog.add(announcement) }
            for edge in edges {
                if let will = edge.will { backlog.add(Announcement(will)) }
                if let did = edge.did { backlog.add(did) }
            }
            return
        }
        func tell(_ announcement: Announcement) {
            step.effects.append(.announce(number, announcement, to: .delegate))
        }
        for announcement in launch { tell(announcement) }
        for edge in edges {
            if let will = edge.will { tell(Announcement(will)) }
            tell(Announcement(.stateChanged, .edge(edge, .launch)))
            announcedState = edge.to
            guard edge.to == .background else {
                if let did = edge.did { tell(did) }
                continue
            }
            let serial = nextSerial()
            grace(.begins(serial: serial), step)
            let deadline = isSuspended ? suspensionDeadline ?? .never : .never
            tell(Announcement(.didEnterBackground, .until(deadline, of: serial)))
        }
    }

    /// A window ends the launch of an application that has not registered itself. A delegate that joins in
    /// between also ends it, because it does not begin a launch.
    mutating func endsLaunchByItself() {
        guard awaitsOwnRegistration, !windows.isEmpty || delegate != nil else { return }
        launch = nil
        if unresponsive == .launch { unresponsive = nil }
    }
}
