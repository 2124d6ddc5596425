internal import AppStateBus
internal import AppStateContract

/// A background task that is running.
@MainActor
final class RunningTask {
    let name: String
    /// The number that appstated has assigned to it; nil: appstated does not know it.
    var number: UInt64?
    let cancel: () -> Void

    init(_ name: String, cancel: @escaping () -> Void) {
        self.name = name
        self.cancel = cancel
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
        let work = Task { @MainActor () -> Result<Value, Failure> in
            do throws(Failure) {
                return .success(try await body())
            } catch {
                return .failure(error)
            }
        }
        lastTask += 1
        let key = lastTask
        let running = RunningTask(name) { work.cancel() }
        tasks[key] = running
        life?.beginTask(running)
        let result = await withTaskCancellationHandler {
            await work.value
        } onCancel: {
            work.cancel()
        }
        tasks[key] = nil
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
