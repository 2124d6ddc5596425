internal import AppStateBus
internal import AppStateContract

// Notifies the delegate and the observers, in steps of the director.
extension Life {
    func launchDelegate(_ options: LaunchOptions) async {
        application.launchOptions = options
        application.post(.willFinishLaunching(options))
        delegate.application(application, willFinishLaunchingWithOptions: options)
        await restoreState()
        application.post(.didFinishLaunching(options))
        await delegate.application(application, didFinishLaunchingWithOptions: options)
        finishLaunching()
    }

    func didBecomeActive() {
        application.post(.didBecomeActive)
        delegate.applicationDidBecomeActive(application)
    }

    func willResignActive() {
        application.post(.willResignActive)
        delegate.applicationWillResignActive(application)
    }

    func willEnterForeground() {
        // If an end was announced, appstated has spared the application.
        if !isTerminating { (toldEnd, isEndDone) = (nil, false) }
        application.post(.willEnterForeground)
        delegate.applicationWillEnterForeground(application)
    }

    func didEnterBackground(_ serial: UInt64) async {
        // A later end is another one. isEndDone stays: a window may be closed because of the end.
        if !isTerminating { toldEnd = nil }
        application.post(.didEnterBackground)
        await delegate.applicationDidEnterBackground(application)
        await saveInBackground(serial)
    }

    func protectedDataWillBecomeUnavailable(_ serial: UInt64) async {
        application.post(.protectedDataWillBecomeUnavailable)
        await delegate.applicationProtectedDataWillBecomeUnavailable(application)
        await Self.letBegin()
        acknowledge(serial)
    }

    /// Lets the tasks that a callback has created start: appstated must know about their background tasks
    /// before it gets the acknowledgement.
    static func letBegin() async { await Task.yield() }

    func protectedDataDidBecomeAvailable() {
        application.post(.protectedDataDidBecomeAvailable)
        delegate.applicationProtectedDataDidBecomeAvailable(application)
    }

    func didReceiveMemoryWarning(_ level: MemoryWarning) {
        application.post(.didReceiveMemoryWarning(level))
        delegate.applicationDidReceiveMemoryWarning(application, level: level)
    }

    func significantTimeChange(_ cause: SignificantTimeChange) {
        application.post(.significantTimeChange(cause))
        delegate.applicationSignificantTimeChange(application, cause: cause)
    }

    func open(_ urls: [String], _ options: [String: Value]) {
        application.post(.openURLs(urls, options: options))
        delegate.application(application, open: urls, options: options)
    }

    func reopen(_ options: [String: Value]) {
        application.post(.reopen(options: options))
        delegate.application(application, reopen: options)
    }

    func `continue`(_ activity: UserActivity) {
        application.post(.continueUserActivity(activity))
        delegate.application(application, continue: activity)
    }

    func didReceive(_ message: ReceivedMessage) {
        application.post(.didReceiveMessage(message))
        delegate.application(application, didReceive: message)
    }

    func didFinish(_ transfer: FinishedTransfer) async {
        application.post(.didFinishTransfer(transfer))
        await delegate.application(application, didFinish: transfer)
        tell(.finishTransfer) { message throws(BusFailure) in try message.append(transfer.id) }
        BackgroundTransferSession.shared.forget(transfer)
    }

    // MARK: Walking

    /// Moves the delegate along the edges from its current state to the target, as appstated announces them.
    ///
    /// - Parameter serial: the serial that `didEnterBackground` acknowledges, if the path leads there.
    func walk(to target: ApplicationState, serial: UInt64 = 0) {
        director.perform {
            self.director.insert { director in
                if self.application.state == .background, target == .background {
                    director.performLater { await self.stay(serial) }
                } else {
                    self.step(from: self.application.state, to: target, serial)
                }
            }
        }
    }

    func step(from state: ApplicationState, to target: ApplicationState, _ serial: UInt64) {
        guard state != target else { return }
        let next: ApplicationState
        switch (state, target) {
        case (.notRunning, .background), (.inactive, .background): next = .background
        case (.inactive, _): next = .active
        default: next = .inactive
        }
        switch (state, next) {
        case (.active, _): director.perform { self.willResignActive() }
        case (_, .inactive): director.perform { self.willEnterForeground() }
        default: break
        }
        director.perform { self.application.state = next }
        if next == .active { director.perform { self.didBecomeActive() } }
        if next == .background { director.performLater { await self.didEnterBackground(serial) } }
        step(from: next, to: target, serial)
    }

    // MARK: Background tasks

    func beginTask(_ task: RunningTask) {
        guard let path else { return }
        let name = task.name
        call(path, ApplicationMethod.beginBackgroundTask) { message throws(BusFailure) in
            try message.append(name)
        } answered: { [weak self] reply in
            guard let self, let number = try? reply.readUInt64() else { return }
            task.number = number
            if !application.tasks.values.contains(where: { $0 === task }) { endTask(task) }
        } failed: { error in
            Log.say("background task \(name): \(error)")
        }
    }

    /// A task whose number is not known yet ends when the number arrives.
    func endTask(_ task: RunningTask) {
        guard let number = task.number else { return }
        task.number = nil
        endTask(numbered: number)
    }

    func expire(_ number: UInt64) {
        for task in application.tasks.values where task.number == number { task.cancel() }
    }
}
