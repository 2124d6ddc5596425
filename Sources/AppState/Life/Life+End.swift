internal import AppStateBus
internal import AppStateContract
internal import Glibc

// The end of the application: by itself, by a signal, or by appstated.
extension Life {
    /// How the process ends.
    enum Ending {
        case status(Int32)
        case signal(Int32)
    }

    /// Ends the application from within.
    func terminate(_ status: Int32) { begin(.status(status)) }

    /// Ends the application because a signal asks for it.
    func end(by signal: Int32) {
        guard !isTerminating else { return }
        // The delegate knows nothing yet, or was notified by appstated, which sends SIGTERM after that.
        guard hasLaunched, !isEndDone else { return leave(.signal(signal), by: EventLoop.clock) }
        begin(.signal(signal))
    }

    private func begin(_ ending: Ending) {
        guard !isTerminating else { return }
        isTerminating = true
        let deadline = EventLoop.clock + options.limits.end
        // A callback that never returns, or a daemon that does not answer, must not prevent the end.
        lastMoment = try? connection.loop.timer { [weak self] in self?.leave(ending, by: deadline) }
        lastMoment?.arm(at: deadline)
        director.performLater {
            await self.end(ending)
            self.leave(ending, by: deadline)
        }
        connection.arm()
    }

    private func end(_ ending: Ending) async {
        // appstated's own notice may have come before the signal, or while this step waited.
        if case .signal = ending, isEndDone { return }
        await willTerminate(0)
    }

    /// - Parameter deadline: until when messages may wait for the bus to read them.
    private func leave(_ ending: Ending, by deadline: UInt64) {
        line.flush(until: deadline)
        switch ending {
        case .status(let status): exit(status)
        case .signal(let signal): connection.end(by: signal)
        }
    }

    /// Notifies the delegate once of each end: appstated may spare the application and end it later.
    ///
    /// - Parameter serial: 0: no acknowledgement is awaited.
    func willTerminate(_ serial: UInt64) async {
        let isAnother = serial != 0 && serial != toldEnd && !isTerminating
        if toldEnd == nil || isAnother {
            toldEnd = serial
            isEndDone = false
            application.post(.willTerminate)
            await delegate.applicationWillTerminate(application)
        }
        let isSaved = await saveState()
        await Self.letBegin()
        guard isSaved else { return }
        isEndDone = true
        acknowledge(serial)
    }
}
