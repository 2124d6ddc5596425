internal import AppStateBus
internal import AppStateContract

// Saved state.
extension Life {
    /// The most bytes that `SaveState` and `LoadState` accept.
    private static let mostInline = 1 << 20
    /// How often a save is tried if it is refused temporarily. The first pause is `firstPause`; each further
    /// pause is twice as long.
    private static let attempts = 5
    private static let firstPause = Duration.milliseconds(200)

    // MARK: Saving

    /// Saves the state, then acknowledges. If the save fails, nothing is acknowledged, and the save is tried again.
    func saveInBackground(_ serial: UInt64) async {
        let isSaved = await saveState()
        await Self.letBegin()
        guard isSaved else {
            unsavedSerial = serial
            // If the daemon is gone, the save is repeated once we have registered again.
            if path != nil { retryLater() }
            return
        }
        acknowledge(serial)
    }

    /// The application remains in the background. Saves what could not be saved before, then acknowledges.
    func stay(_ serial: UInt64) async {
        guard application.state == .background else { return }
        guard let unsavedSerial else { return acknowledge(serial) }
        // A daemon that was started meanwhile waits for the same acknowledgement.
        await saveInBackground(serial == 0 ? unsavedSerial : serial)
    }

    /// - Returns: whether nothing is left to save.
    func saveState() async -> Bool {
        guard hasState else { return true }
        // Saving now would overwrite the state of an earlier run.
        guard isRestored else { return false }
        do {
            // Pauses only if no step waits, because a user who comes back must not be kept waiting.
            _ = try await save { self.director.isIdle }
            return true
        } catch let error as ApplicationError where error.isWithoutStore {
            Log.say("saving state: \(error)")
            return true
        } catch {
            Log.say("saving state: \(error)")
            return false
        }
    }

    /// Saves the state because the application wants that.
    func saveNow() async throws {
        guard hasState else { return }
        guard isRestored else {
            guard path != nil else { throw ApplicationError.alone }
            throw ApplicationError(name: nil, message: "the state of an earlier run is not restored yet")
        }
        // This also makes up for a save that has failed in the background.
        if let owed = try await save(mayPause: { true }), application.state == .background {
            acknowledge(owed)
        }
    }

    /// - Parameter mayPause: whether it may pause and try again if the save is refused temporarily.
    /// - Returns: the serial of the `DidEnterBackground` for which the save had failed before.
    private func save(mayPause: () -> Bool) async throws -> UInt64? {
        var pause = Self.firstPause
        for attempt in 1...Self.attempts {
            let owed = unsavedSerial
            // Each attempt saves the state of its own moment: it must not replace a newer state by an older one.
            guard let bytes = try encodedState() else { return nil }
            guard let path else { throw ApplicationError.alone }
            guard case .failure(let error) = try await save(bytes, path) else {
                forgetFailures()
                guard unsavedSerial == owed else { return nil }
                unsavedSerial = nil
                return owed
            }
            guard error.isTransient, self.path == path, attempt < Self.attempts, mayPause() else {
                throw error
            }
            try await Task.sleep(for: pause)
            pause *= 2
        }
        return nil
    }

    private func save(_ bytes: [UInt8], _ path: String) async throws -> Result<Void, ApplicationError> {
        guard bytes.count > Self.mostInline else {
            return await ask(path, ApplicationMethod.saveState) { message throws(BusFailure) in
                try message.append(bytes: bytes)
            } read: { _ in
            }
        }
        let file = try MemoryFile(bytes)
        return await ask(path, ApplicationMethod.saveStateFile) { message throws(BusFailure) in
            try message.append(descriptor: file.descriptor)
        } read: { _ in
        }
    }

    // MARK: Restoring

    /// Restores the state of an earlier run, after all waiting steps.
    func restoreLater() {
        director.performLater {
            await self.restoreState()
            if self.application.launchOptions?.launchMode != .background { self.connectWaiting() }
        }
    }

    /// Restores the state of an earlier run, unless that is done or the daemon is not available.
    func restoreState() async {
        guard !isRestored, let path else { return }
        do {
            let bytes = try await load(path)
            forgetFailures()
            isRestored = true
            try restore(bytes)
        } catch let error as ApplicationError where error.isWithoutStore {
            isRestored = true
        } catch {
            Log.say("restoring state: \(error)")
            if !isRestored, self.path == path { retryLater() }
        }
    }

    private func load(_ path: String) async throws -> [UInt8] {
        let answer = await ask(path, ApplicationMethod.loadState) { reply throws(BusFailure) in
            try reply.readBytes()
        }
        if case .failure(let error) = answer, error.name == ErrorName.tooLarge.rawValue {
            let file = await ask(path, ApplicationMethod.loadStateFile) { reply throws(BusFailure) in
                try reply.readDescriptor()
            }
            return try MemoryFile(taking: file.get()).bytes()
        }
        return try answer.get()
    }
}

extension ApplicationError {
    /// Whether the same request may succeed a moment later.
    fileprivate var isTransient: Bool {
        switch name {
        case nil, ErrorName.limitsExceeded.rawValue, ErrorName.failed.rawValue: true
        default: false
        }
    }

    /// Whether appstated stores no state at all, or none for this application because its id is not that of
    /// its sandbox.
    fileprivate var isWithoutStore: Bool {
        [ErrorName.notSupported, .accessDenied].contains { $0.rawValue == name }
    }
}
