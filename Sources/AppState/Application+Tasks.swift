internal import AppStateBus
internal import AppStateContract

/// A background task that is running.
@MainActor
final class RunningTask {
    let name: String
    /// The number that appstated has assigned to it; nil: appstated does not know it.
    var number: UInt64?
    /// nil: it does not tell its progress.
    let progress: TaskProgress?
    let cancel: () -> Void

    init(_ name: String, _ progress: TaskProgress? = nil, cancel: @escaping () -> Void) {
        self.name = name
        self.progress = progress
        self.cancel = cancel
    }
}

/// How far a task has come: see ``Application/withContinuedTask(named:title:total:_:)``.
@MainActor
public final class TaskProgress {
    /// What the task does, for people.
    public let title: String
    /// How much there is to do, in any unit; above 0.
    public let total: UInt64
    /// How much is done. More than `total` counts as all of it.
    public var completed: UInt64 = 0 {
        didSet { if completed != oldValue { changed?() } }
    }
    /// 0 to 1.
    public var fractionCompleted: Double { Double(min(completed, total)) / Double(total) }

    var changed: (() -> Void)?

    init(title: String, total: UInt64) {
        self.title = title
        self.total = max(total, 1)
    }
}

extension Application {
    /// Runs a closure to completion even if the application enters the background. For a limited time, the
    /// application is not suspended while the closure runs.
    ///
    /// The background task ends when the closure returns or throws. Shortly before the time limit, the closure's task
    /// is cancelled; the closure then has a few seconds to return. The closure runs on the main actor, but the
    /// functions that it awaits need not.
    ///
    ///     try await application.withBackgroundTask(named: "upload") {
    ///         try await server.upload(note)
    ///     }
    ///
    /// - Parameters:
    ///   - name: a description of the work, for people.
    ///   - body: the work to finish.
    /// - Returns: the result of the closure.
    public func withBackgroundTask<Value: Sendable, Failure: Error>(
        named name: String, _ body: @escaping @MainActor () async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        try await withTask(named: name, nil, number: nil, body)
    }

    /// Runs a closure to completion even if the application enters the background, without a limit of time as long as
    /// its progress moves: an export, a conversion, a copy that the user has started and sees.
    ///
    /// The closure sets ``TaskProgress/completed`` as it goes on. `appstatectl tasks` shows the progress, and the user
    /// can cancel the task there. If the progress does not move for about 25 seconds in the background, or the user
    /// cancels it, the closure's task is cancelled; it then has a few seconds to return. When memory is short, the
    /// application whose task has come least far is ended first.
    ///
    ///     try await application.withContinuedTask(named: "export", title: "Exporting", total: 600) { progress in
    ///         for frame in frames {
    ///             try await write(frame)
    ///             progress.completed += 1
    ///         }
    ///     }
    ///
    /// Such a task begins in the foreground. Elsewhere it is an ordinary background task, with a limit of time.
    ///
    /// - Parameters:
    ///   - name: the name of the task.
    ///   - title: what it does, for people.
    ///   - total: how much there is to do, in any unit; above 0.
    ///   - body: the work to finish. It gets the progress.
    /// - Returns: the result of the closure.
    public func withContinuedTask<Value: Sendable, Failure: Error>(
        named name: String, title: String, total: UInt64,
        _ body: @escaping @MainActor (TaskProgress) async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        let progress = TaskProgress(title: title, total: total)
        return try await withTask(named: name, progress, number: nil) { () async throws(Failure) -> Value in
            try await body(progress)
        }
    }

    /// - Parameter number: that of a task that appstated has begun; nil: it is begun here.
    func withTask<Value: Sendable, Failure: Error>(
        named name: String, _ progress: TaskProgress?, number: UInt64?,
        _ body: @escaping @MainActor () async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        let work = Task { @MainActor () -> Result<Value, Failure> in
            do throws(Failure) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        lastTask += 1
        let key = lastTask
        let running = RunningTask(name, progress) { work.cancel() }
        running.number = number
        tasks[key] = running
        if number == nil { life?.beginTask(running) }
        let result = await withTaskCancellationHandler {
            await work.value
        } onCancel: {
            work.cancel()
        }
        tasks[key] = nil
        progress?.changed = nil
        life?.endTask(running)
        return try result.get()
    }

    /// How long the application may still run in the background; nil: there is no limit, as in the foreground.
    public var backgroundTimeRemaining: Duration? {
        get async {
            guard let life, let path = life.path else { return nil }
            let answer = await life.ask(path, ApplicationMethod.backgroundTimeRemaining) {
                reply throws(BusFailure) in try reply.readUInt64()
            }
            guard case .success(let microseconds) = answer, microseconds < UInt64(Int64.max) else {
                return nil
            }
            return .microseconds(Int64(microseconds))
        }
    }
}
