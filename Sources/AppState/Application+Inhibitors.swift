internal import AppStateBus
internal import AppStateContract
internal import Glibc

/// Something that keeps another application from being suspended.
@MainActor
final class RunningInhibitor {
    let id: String
    let why: String
    /// At its end of file once appstated has ended the inhibitor; -1: appstated does not know it.
    fileprivate var descriptor: Int32 = -1
    fileprivate var watch: Source?
    fileprivate var isOver = false

    init(_ id: String, _ why: String) {
        self.id = id
        self.why = why
    }

    /// Closing the descriptor ends the inhibitor.
    fileprivate func close() {
        watch = nil
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }
}

extension Application {
    /// Keeps another application of the user from being suspended while a closure runs: a player, for example, whose
    /// music this application mixes. For its own work, an application uses ``withBackgroundTask(named:_:)``.
    ///
    /// The application runs again if policy had suspended it; what a person has suspended stays suspended. Without
    /// appstated nothing is suspended. If appstated is restarted meanwhile, it is asked again. If it refuses, this is
    /// written to standard error, and the closure runs all the same.
    ///
    /// - Parameters:
    ///   - id: the other application's id.
    ///   - why: the reason, for people.
    ///   - body: the work during which it must run.
    /// - Returns: the result of the closure.
    public func withSuspensionInhibited<Value, Failure: Error>(
        of id: String, why: String, _ body: @MainActor () async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        let inhibitor = RunningInhibitor(id, why)
        inhibitors.append(inhibitor)
        life?.take(inhibitor)
        defer {
            inhibitors.removeAll { $0 === inhibitor }
            inhibitor.isOver = true
            inhibitor.close()
        }
        return try await body()
    }
}

extension Life {
    /// Asks the present daemon for it.
    func take(_ inhibitor: RunningInhibitor) {
        guard path != nil, inhibitor.descriptor < 0 else { return }
        let (id, why, who) = (inhibitor.id, inhibitor.why, application.id)
        call(BusNames.root, ManagerMethod.getApplicationByID) { message throws(BusFailure) in
            try message.append(id)
        } answered: { [weak self] reply in
            guard let self, let path = try? reply.readObjectPath() else { return }
            call(path, ApplicationMethod.inhibit) { message throws(BusFailure) in
                try message.append(who)
                try message.append(why)
            } answered: { [weak self] reply in
                guard let self, let descriptor = try? reply.readDescriptor() else { return }
                hold(inhibitor, descriptor)
            } failed: {
                Log.say("\(id) can be suspended: \($0)")
            }
        } failed: {
            Log.say("\(id) can be suspended: \($0)")
        }
    }

    private func hold(_ inhibitor: RunningInhibitor, _ descriptor: Int32) {
        inhibitor.close()
        inhibitor.descriptor = descriptor
        if inhibitor.isOver { return inhibitor.close() }
        // The application has ended, or the daemon has. The next daemon is asked once it knows us.
        inhibitor.watch = try? connection.loop.watch(descriptor, for: []) { [weak inhibitor] _ in
            inhibitor?.close()
        }
        connection.arm()
    }
}
