internal import AppStateBus
internal import AppStateContract

/// A launch in the background that the application has scheduled.
public struct ScheduledLaunch: Hashable, Sendable {
    /// What a launch waits for.
    public enum Trigger: Hashable, Sendable {
        /// This long from now on, by the clock: it goes on while the machine sleeps or is off.
        case after(Duration)
        /// A moment, as the time since the beginning of 1970 (UTC).
        case at(Duration)
        /// The network is there, as NetworkManager reports it.
        case network
        /// The machine is on mains power, as UPower reports it.
        case power
    }

    /// The name with which it was scheduled.
    public let name: String

    /// - Parameter name: the name with which it was scheduled.
    public init(name: String) { self.name = name }
}

extension Application {
    /// Schedules a launch in the background: at a time, or when the network or mains power is there. If the application
    /// runs then, it is woken instead. Either way ``ApplicationDelegate/application(_:perform:)`` is called.
    ///
    /// The launch survives the end of the application and a reboot. If the user is not logged in when it is due, it
    /// waits for that. It happens once, or once more if appstated itself ended just then.
    ///
    ///     try await application.scheduleLaunch(named: "refresh", .after(.seconds(3600)))
    ///
    /// - Parameters:
    ///   - name: the name of the launch. One that the application has scheduled with the same name is replaced; an
    ///     application may have 16.
    ///   - trigger: what it waits for.
    /// - Throws: ``ApplicationError``, for example `notSupported` if nothing on this machine reports what it waits for.
    public func scheduleLaunch(
        named name: String, _ trigger: ScheduledLaunch.Trigger
    ) async throws(ApplicationError) {
        var options: [(String, Variant)] = [(ScheduleKey.name.rawValue, .string(name))]
        let type: LaunchTrigger
        switch trigger {
        case .after(let span):
            type = .time
            options.append((ScheduleKey.after.rawValue, .uint64(span.wholeMicroseconds)))
        case .at(let moment):
            type = .time
            options.append((ScheduleKey.at.rawValue, .uint64(moment.wholeMicroseconds)))
        case .network: type = .network
        case .power: type = .power
        }
        try await askOwn(.scheduleLaunch) { message throws(BusFailure) in
            try message.append(type.rawValue)
            try message.appendDictionary(options)
        }
    }

    /// Cancels a scheduled launch. If there is none of that name, nothing changes.
    public func cancelLaunch(named name: String) async throws(ApplicationError) {
        try await askOwn(.cancelLaunch) { message throws(BusFailure) in try message.append(name) }
    }

    private func askOwn(
        _ method: ApplicationMethod, _ body: (borrowing Message) throws(BusFailure) -> Void
    ) async throws(ApplicationError) {
        guard let life, let path = life.path else { throw .alone }
        if case .failure(let error) = await life.ask(path, method, body, read: { _ in }) { throw error }
    }
}

extension Duration {
    /// 0 for a negative one.
    fileprivate var wholeMicroseconds: UInt64 {
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (whole, isTooLong) = UInt64(seconds).multipliedReportingOverflow(by: 1_000_000)
        return isTooLong ? .max : whole &+ UInt64(attoseconds / 1_000_000_000_000)
    }
}
