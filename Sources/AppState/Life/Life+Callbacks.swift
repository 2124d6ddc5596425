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
        connectScenes(options)
        finishLaunching()
    }

    func didBecomeActive() {
        application.post(.didBecomeActive)
        delegate.applicationDidBecomeActive(application)
        director.insert { _ in self.limitScenes(to: .active) }
    }

    func willResignActive() {
        director.insert { director in
            self.limitScenes(to: .inactive)
            director.perform {
                self.application.post(.willResignActive)
                self.delegate.applicationWillResignActive(self.application)
            }
        }
    }

    /// The application is in another state. Its scenes leave the foreground before it, and enter it after it.
    func change(to state: ApplicationState) {
        director.insert { director in
            if state == .background { self.limitScenes(to: state) }
            director.perform { self.application.state = state }
            if state == .inactive { self.limitScenes(to: state) }
        }
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
        application.isProtectedDataAvailable = false
        await Self.letBegin()
        acknowledge(serial)
    }

    /// Lets the tasks that a callback has created start: appstated must know about their background tasks
    /// before it gets the acknowledgement.
    static func letBegin() async { await Task.yield() }

    func protectedDataDidBecomeAvailable() {
        application.isProtectedDataAvailable = true
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
        if isForScene(urls, options) { return }
        delegate.application(application, open: urls, options: options)
    }

    func reopen(_ options: [String: Value]) {
        application.post(.reopen(options: options))
        if isForScene([], options) { return }
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
        director.perform { self.change(to: next) }
        if next == .active { director.perform { self.didBecomeActive() } }
        if next == .background { director.performLater { await self.didEnterBackground(serial) } }
        step(from: next, to: target, serial)
    }

    // MARK: Background tasks

    func beginTask(_ task: RunningTask) {
        guard let progress = task.progress else { return begin(task, .beginBackgroundTask) }
        progress.changed = nil
        let (title, total) = (progress.title, progress.total)
        begin(task, .beginContinuedTask) { message throws(BusFailure) in
            try message.appendDictionary([
                (ContinuedTaskKey.title.rawValue, .string(title)),
                (ContinuedTaskKey.total.rawValue, .uint64(total)),
            ])
        } refused: { [weak self] error in
            guard error.name == ErrorName.notInForeground.rawValue else { return false }
            self?.begin(task, .beginBackgroundTask)
            return true
        }
    }

    /// - Parameters:
    ///   - options: appends what follows the name.
    ///   - refused: whether an error is dealt with.
    private func begin(
        _ task: RunningTask, _ method: ApplicationMethod,
        _ options: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        refused: @escaping (ApplicationError) -> Bool = { _ in false }
    ) {
        guard let path else { return }
        let name = task.name
        call(path, method) { message throws(BusFailure) in
            try message.append(name)
            try options(message)
        } answered: { [weak self] reply in
            guard let self, let number = try? reply.readUInt64() else { return }
            task.number = number
            guard application.tasks.values.contains(where: { $0 === task }) else { return endTask(task) }
            if method == .beginContinuedTask { follow(task) }
        } failed: { error in
            if !refused(error) { Log.say("background task \(name): \(error)") }
        }
    }

    /// How often progress is told at most, in microseconds.
    private static let pauseOfProgress: UInt64 = 1_000_000

    /// Tells the daemon the progress of a task, from now on.
    private func follow(_ task: RunningTask) {
        guard let progress = task.progress else { return }
        var isPending = false
        var toldAt: UInt64 = 0
        let timer = try? connection.loop.timer { [weak self, weak task] in
            isPending = false
            toldAt = EventLoop.clock
            if let task { self?.tellProgress(of: task) }
        }
        progress.changed = { [weak self] in
            guard !isPending else { return }
            isPending = true
            timer?.arm(at: max(EventLoop.clock, toldAt + Self.pauseOfProgress))
            self?.connection.arm()
        }
        if progress.completed > 0 { progress.changed?() }
    }

    private func tellProgress(of task: RunningTask) {
        guard let number = task.number, let progress = task.progress else { return }
        let completed = min(progress.completed, progress.total)
        tell(.setTaskProgress) { message throws(BusFailure) in
            try message.append(number)
            try message.append(completed)
        }
    }

    // MARK: Scheduled launches

    /// The work of a scheduled launch runs beside other callbacks, because it may take half a minute.
    func perform(_ launch: ScheduledLaunch, _ number: UInt64) {
        application.post(.scheduledLaunch(launch))
        Task {
            await application.withTask(named: "scheduled launch \(launch.name)", nil, number: number) {
                await self.delegate.application(self.application, perform: launch)
            }
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
