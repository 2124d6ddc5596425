internal import AppStateBus
internal import AppStateContract

// Turns the daemon's signals into steps of the director.
extension Life {
    private typealias Step = @MainActor () -> Void

    /// The most signals that are kept until it is known which object is ours. appstated itself keeps the same
    /// number.
    private static let mostKept = 64

    func hear(_ message: borrowing Message) {
        guard let member = message.member.flatMap(ApplicationSignal.init), let origin = message.path else {
            return
        }
        do {
            if member == .ping { return try answer(message, origin) }
            guard let path, hasLaunched || member == .willFinishLaunching else {
                return try keep(member, message, origin)
            }
            guard origin == path else { return }
            if isCatchingUp, try isPassedOver(member, message) { return }
            try step(for: member, message)?()
        } catch {
            Log.say("\(member.rawValue): \(error)")
        }
    }

    /// The main loop runs, whatever the delegate waits for.
    private func answer(_ ping: borrowing Message, _ origin: String) throws(BusFailure) {
        if origin == path { acknowledge(try ping.readUInt64()) }
    }

    /// Keeps signals that arrive too early to be passed on. Edges are not kept, because the state is read later, but
    /// appstated may wait for an acknowledgement.
    private func keep(
        _ member: ApplicationSignal, _ message: borrowing Message, _ origin: String
    ) throws(BusFailure) {
        let step: Step?
        switch member {
        case .didEnterBackground:
            let serial = try message.readUInt64()
            step = { if self.isCatchingUp { self.missedSerial = serial } }
        case .willFinishLaunching, .willEnterForeground, .didBecomeActive, .willResignActive, .stateChanged:
            step = nil
        default: step = try self.step(for: member, message)
        }
        guard let step else { return }
        if kept.count == Self.mostKept { kept.removeFirst() }
        kept.append((origin, step))
    }

    /// Handles the kept signals, now that it is known which object is ours.
    func replay() {
        guard let path else { return }
        let steps = kept
        kept = []
        for (origin, step) in steps where origin == path { step() }
    }

    /// Whether the signal announces an edge. Such a signal is skipped: the state is read, and the delegate is notified
    /// then.
    private func isPassedOver(
        _ member: ApplicationSignal, _ message: borrowing Message
    ) throws(BusFailure) -> Bool {
        switch member {
        case .didEnterBackground:
            missedSerial = try message.readUInt64()
            return true
        case .stateChanged:
            try message.skip("s")
            let state = try message.readString()
            if state == ApplicationState.notRunning.rawValue { isForgotten() }
            return true
        case .willEnterForeground, .didBecomeActive, .willResignActive: return true
        default: return false
        }
    }

    /// The step for a signal. The signal has been read, but the step has not run yet.
    private func step(
        for member: ApplicationSignal, _ message: borrowing Message
    ) throws(BusFailure) -> Step? {
        switch member {
        case .willFinishLaunching:
            let options = LaunchOptions([String: Value](try message.readDictionary()))
            return { self.willFinishLaunching(options) }
        case .stateChanged:
            try message.skip("s")
            guard let state = ApplicationState(rawValue: try message.readString()) else { return nil }
            // We live, so this is not our end: somebody has unregistered us.
            if state == .notRunning { return { self.isForgotten() } }
            return { self.director.perform(.edge(.change(state))) { self.change(to: state) } }
        case .didBecomeActive:
            return { self.director.perform(.edge(.end(0))) { self.didBecomeActive() } }
        case .willResignActive:
            return { self.begin { self.willResignActive() } }
        case .willEnterForeground:
            return { self.begin { self.willEnterForeground() } }
        case .didEnterBackground:
            let serial = try message.readUInt64()
            return {
                self.director.performLater(.edge(.end(serial))) { await self.didEnterBackground(serial) }
            }
        case .willTerminate:
            let serial = try message.readUInt64()
            return { self.director.performLater { await self.willTerminate(serial) } }
        case .backgroundTaskWillExpire:
            // This step must not wait for a callback that may itself wait for this very task.
            let number = try message.readUInt64()
            return { self.expire(number) }
        default: return try stepOfEvent(member, message)
        }
    }

    /// If many edges wait, they are replaced by the shortest path.
    private func begin(_ step: @escaping Step) {
        director.shortenEdges { state, serial in
            self.director.insert { _ in self.step(from: self.application.state, to: state, serial) }
        }
        director.perform(.edge(.begin), step)
    }

    private func willFinishLaunching(_ options: LaunchOptions) {
        guard hasLaunched else {
            isRestored = isRestored || !options.isRestorable
            launch(options)
            return replay()
        }
        // We launched before appstated was available, so the state of an earlier run is restored now.
        if options.isRestorable { restoreLater() } else { isRestored = true }
    }

    private func stepOfEvent(
        _ member: ApplicationSignal, _ message: borrowing Message
    ) throws(BusFailure) -> Step? {
        switch member {
        case .protectedDataWillBecomeUnavailable:
            let serial = try message.readUInt64()
            return {
                self.director.performLater(.event(member.rawValue)) {
                    await self.protectedDataWillBecomeUnavailable(serial)
                }
            }
        case .protectedDataDidBecomeAvailable:
            return {
                self.director.perform(.event(member.rawValue)) { self.protectedDataDidBecomeAvailable() }
            }
        case .didReceiveMemoryWarning:
            let level = MemoryWarning(rawValue: try message.readString()) ?? .warning
            return {
                self.director.perform(.event(member.rawValue)) { self.didReceiveMemoryWarning(level) }
            }
        case .significantTimeChange:
            let cause = SignificantTimeChange(rawValue: try message.readString()) ?? .clockSet
            return {
                self.director.perform(.event(member.rawValue + cause.rawValue)) {
                    self.significantTimeChange(cause)
                }
            }
        default: return try stepOfDelivery(member, message)
        }
    }

    private func stepOfDelivery(
        _ member: ApplicationSignal, _ message: borrowing Message
    ) throws(BusFailure) -> Step? {
        switch member {
        case .openURLs:
            let urls = try message.readStrings()
            let options = [String: Value](try message.readDictionary())
            return { self.director.perform(.delivery) { self.open(urls, options) } }
        case .reopen:
            let options = [String: Value](try message.readDictionary())
            return { self.director.perform(.delivery) { self.reopen(options) } }
        case .continueUserActivity:
            let type = try message.readString()
            let info = [String: Value](try message.readDictionary())
            let activity = UserActivity(type: type, info: info)
            return { self.director.perform(.delivery) { self.continue(activity) } }
        case .messageReceived:
            let sender = try message.readString()
            let name = try message.readString()
            let payload = [String: Value](try message.readDictionary())
            let received = ReceivedMessage(sender: sender, name: name, payload: payload)
            return { self.director.perform(.delivery) { self.didReceive(received) } }
        case .scheduledLaunchDue:
            let launch = ScheduledLaunch(name: try message.readString())
            let task = try message.readUInt64()
            return { self.director.perform(.delivery) { self.perform(launch, task) } }
        case .backgroundTransferFinished:
            let id = try message.readString()
            let transfer = FinishedTransfer(id: id, result: [String: Value](try message.readDictionary()))
            return { self.director.performLater(.delivery) { await self.didFinish(transfer) } }
        default: return nil
        }
    }
}
