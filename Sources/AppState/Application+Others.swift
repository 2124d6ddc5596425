internal import AppStateBus
internal import AppStateContract

// Requests to other applications.
extension Application {
    /// Launches an application through the user's desktop, or brings it to the front if it already runs.
    ///
    /// - Parameters:
    ///   - id: the id of its desktop entry.
    ///   - urls: the URLs to open.
    ///   - mode: how it starts; nil: with a window.
    ///   - reason: why it is launched, such as ``LaunchOptions/Reason/message``; nil: `user`, or `url` if there are
    ///     URLs.
    ///   - payload: data for its launch options.
    ///   - scene: the scene that is asked for: `new`, or a persistent identifier; nil: the application decides.
    ///   - activationToken: the display server's token for this launch: XDG_ACTIVATION_TOKEN or a startup id.
    public func launch(
        _ id: String, open urls: [String] = [], mode: LaunchMode? = nil, reason: String? = nil,
        payload: [String: Value] = [:], scene: String? = nil, activationToken: String? = nil
    ) async throws(ApplicationError) {
        var options: [(String, Variant)] = []
        if !urls.isEmpty { options.append(("urls", .strings(urls))) }
        if let mode { options.append(("launch-mode", .string(mode.rawValue))) }
        if let reason { options.append(("reason", .string(reason))) }
        if !payload.isEmpty { options.append(("payload", .dictionary(payload.mapValues(\.variant)))) }
        if let scene { options.append((LaunchKey.scene.rawValue, .string(scene))) }
        if let activationToken { options.append(("activation-token", .string(activationToken))) }
        _ = try await asked(BusNames.root, ManagerMethod.launch) { message throws(BusFailure) in
            try message.append(id)
            try message.appendDictionary(options)
        }
    }

    /// Brings a running application to the front. If it is suspended, it is resumed first.
    ///
    /// - Parameters:
    ///   - id: the application's id.
    ///   - activationToken: the display server's token for this: XDG_ACTIVATION_TOKEN or a startup id.
    public func activate(_ id: String, activationToken: String? = nil) async throws(ApplicationError) {
        let path = try await path(of: id)
        let options = activationToken.map { [("activation-token", Variant.string($0))] } ?? []
        try await asked(path, ApplicationMethod.activate) { message throws(BusFailure) in
            try message.appendDictionary(options)
        }
    }

    /// Asks a running application to open URLs.
    ///
    /// - Parameters:
    ///   - urls: the URLs to open.
    ///   - id: the application's id.
    ///   - options: options for its delegate; `scene` is the scene that is to open them, as for a launch.
    public func open(
        _ urls: [String], with id: String, options: [String: Value] = [:]
    ) async throws(ApplicationError) {
        let path = try await path(of: id)
        try await asked(path, ApplicationMethod.open) { message throws(BusFailure) in
            try message.append(strings: urls)
            try message.appendDictionary(options.entries)
        }
    }

    /// Sends a message to a running application.
    ///
    /// - Parameters:
    ///   - name: the name of the message.
    ///   - payload: its content.
    ///   - id: the application's id.
    public func send(
        _ name: String, _ payload: [String: Value] = [:], to id: String
    ) async throws(ApplicationError) {
        let path = try await path(of: id)
        try await asked(path, ApplicationMethod.sendMessage) { message throws(BusFailure) in
            try message.append(name)
            try message.appendDictionary(payload.entries)
        }
    }

    /// Asks a running application to continue what the user did in this one.
    ///
    /// - Parameters:
    ///   - activity: what the user did.
    ///   - id: the application's id.
    public func `continue`(_ activity: UserActivity, in id: String) async throws(ApplicationError) {
        let path = try await path(of: id)
        try await asked(path, ApplicationMethod.continueActivity) { message throws(BusFailure) in
            try message.append(activity.type)
            try message.appendDictionary(activity.info.entries)
        }
    }

    /// In microseconds. A launch waits for the session agent twice, up to 30 s each time, and for a launch that is
    /// already under way.
    private static let patience: UInt64 = 120_000_000

    private func asked(
        _ path: String, _ method: some MethodName,
        _ body: (borrowing Message) throws(BusFailure) -> Void
    ) async throws(ApplicationError) {
        guard let life else { throw .alone }
        let answer = await life.ask(path, method, timeout: Self.patience, body) { _ in }
        if case .failure(let error) = answer { throw error.orAbsence }
    }

    /// The object of this user's application with this id.
    private func path(of id: String) async throws(ApplicationError) -> String {
        guard let life else { throw .alone }
        let answer = await life.ask(BusNames.root, ManagerMethod.getApplicationByID) {
            message throws(BusFailure) in
            try message.append(id)
        } read: { reply throws(BusFailure) in
            try reply.readObjectPath()
        }
        return try answer.mapError { $0.orAbsence }.get()
    }
}

extension ApplicationError {
    /// An error without a name if it says that appstated does not run, or else the error itself.
    fileprivate var orAbsence: ApplicationError {
        guard let name, Absence(error: name) != nil else { return self }
        return ApplicationError(name: nil, message: "\(Self.alone.message): \(message)")
    }
}
