import AppStateContract

/// Background tasks: those with a limit of time, and those that go on as long as they progress.
extension Machine {
    /// Throws if a user has too many tasks and scheduled launches for another one.
    func checkTaskRoom(of user: UInt32) throws(Refusal) {
        let limit = settings.limits.backgroundTasksPerUser
        let tasks = applications.values.reduce(0) { $1.user == user ? $0 + $1.tasks.count : $0 }
        guard tasks + schedule.count(ofUser: user) < limit else {
            throw .limitExceeded("background tasks and scheduled launches of user \(user)", limit: limit)
        }
    }

    /// - Parameter progress: nil: it does not tell its progress.
    mutating func beginTask(
        _ number: ApplicationNumber, _ name: String, _ connection: ConnectionName,
        _ progress: Application.BackgroundTask.Progress? = nil
    ) throws(Refusal) -> UInt64 {
        let application = try require(number)
        if progress != nil, application.state != .active, application.state != .inactive {
            throw .notInForeground(number)
        }
        try checkTaskRoom(of: application.user)
        updateAnnouncing(number, .request) { _ = $0.addTask(name, of: connection, $1, progress) }
        return application.lastTask + 1
    }

    /// A continued task has progressed: its limit begins anew.
    mutating func setProgress(
        _ number: ApplicationNumber, of task: UInt64, to completed: UInt64
    ) throws(Refusal) {
        guard let index = try require(number).tasks.firstIndex(where: { $0.id == task }),
            let progress = applications[number]?.tasks[index].progress
        else { throw .noSuchTask(task) }
        guard completed <= progress.total else {
            throw .invalidArgument("Task \(task) has a total of \(progress.total), not \(completed)")
        }
        updateAnnouncing(number, .policy) {
            $0.tasks[index].progress?.completed = completed
            guard completed > progress.completed, !$0.tasks[index].isCancelled else { return }
            $0.tasks[index].limit = Countdown($1.settings.backgroundTaskMax, from: $1.now)
            $0.tasks[index].isWarned = false
        }
    }

    /// Ends a task that its user does not want: the application gets the time of a warning.
    mutating func cancelTask(_ number: ApplicationNumber, _ task: UInt64) throws(Refusal) {
        guard let index = try require(number).tasks.firstIndex(where: { $0.id == task }) else {
            throw .noSuchTask(task)
        }
        updateAnnouncing(number, .request) {
            if $0.tasks[index].isCancelled { return }
            $0.tasks[index].isCancelled = true
            $0.tasks[index].limit = Countdown($0.tasks[index].warning, from: $1.now)
            $0.warn(task, &$1)
        }
    }
}

extension Application.BackgroundTask {
    /// What a continued task tells of itself.
    public struct Progress: Equatable, Sendable {
        /// For people.
        public let title: String
        public let total: UInt64
        public internal(set) var completed: UInt64 = 0

        /// 0 to 1.
        var fraction: Double { total == 0 ? 0 : Double(completed) / Double(total) }
    }
}

extension Application {
    /// - Parameter owner: the connection with which it ends; nil: it ends by itself.
    mutating func addTask(
        _ name: String, of owner: ConnectionName?, _ step: Step, _ progress: BackgroundTask.Progress? = nil
    ) -> UInt64 {
        lastTask += 1
        tasks.append(
            BackgroundTask(
                id: lastTask, name: name, owner: owner, warning: step.settings.backgroundTaskWarn,
                progress: progress, limit: Countdown(step.settings.backgroundTaskMax, from: step.now)))
        return lastTask
    }

    /// Only tasks that progress keep policy from suspending it.
    var isContinuing: Bool {
        !tasks.isEmpty && tasks.allSatisfy { $0.progress != nil } && objections.count == tasks.count
    }

    /// How far the task has come that would lose most by its end.
    var progress: Double { tasks.lazy.compactMap { $0.progress?.fraction }.max() ?? 0 }
}
