internal import AppStateBus
internal import AppStateContract

/// Messages that appstated should have received but did not, because it was not available. A daemon that has
/// taken over the application from an earlier daemon still waits for them.
struct Debts {
    var launchIsOver = false
    var acknowledgements: [UInt64] = []
    var endedTasks: [UInt64] = []
}

extension Life {
    /// The delegate's launch callbacks have returned.
    func finishLaunching() {
        tellForSure(.finishLaunching) { $0.launchIsOver = true }
    }

    /// The work for this serial is done. 0: no acknowledgement is awaited.
    func acknowledge(_ serial: UInt64) {
        guard serial != 0 else { return }
        tellForSure(.acknowledge) { message throws(BusFailure) in
            try message.append(serial)
        } owed: {
            $0.acknowledgements.append(serial)
        }
    }

    /// The background task with this number is over. It may have ended before this because its time was up.
    func endTask(numbered number: UInt64) {
        tellForSure(.endBackgroundTask, saysRefusals: false) { message throws(BusFailure) in
            try message.append(number)
        } owed: {
            $0.endedTasks.append(number)
        }
    }

    /// Sends the owed messages to the daemon that now manages the application.
    func settleDebts() {
        let due = debts
        debts = Debts()
        if due.launchIsOver { finishLaunching() }
        for serial in due.acknowledgements { acknowledge(serial) }
        for number in due.endedTasks { endTask(numbered: number) }
    }

    /// A daemon that has just registered the application waits for nothing.
    func forgetDebts() {
        debts = Debts()
        if unsavedSerial != nil { unsavedSerial = 0 }
    }

    private func tellForSure(
        _ method: ApplicationMethod, saysRefusals: Bool = true,
        _ body: (borrowing Message) throws(BusFailure) -> Void = { (_) throws(BusFailure) in },
        owed: @escaping (inout Debts) -> Void
    ) {
        guard let path else { return owed(&debts) }
        call(path, method, body) { [weak self] _ in
            self?.forgetFailures()
        } failed: { [weak self] error in
            guard let self else { return }
            if error.isOfTheMoment {
                owed(&debts)
                if self.path == path { retryLater() }
            } else if saysRefusals {
                Log.say("\(method.rawValue): \(error)")
            }
        }
    }
}

extension ApplicationError {
    /// Whether the error is unrelated to the request itself: appstated was not available, or had too much to
    /// do.
    fileprivate var isOfTheMoment: Bool {
        guard let name, name != ErrorName.limitsExceeded.rawValue else { return true }
        return name.hasPrefix("org.freedesktop.DBus.Error.") && !Self.answers.contains(name)
    }

    /// The standard D-Bus errors that appstated itself returns.
    private static let answers = Set(
        [ErrorName.invalidArgs, .accessDenied, .notSupported, .failed].map(\.rawValue) + [
            "org.freedesktop.DBus.Error.UnknownObject", "org.freedesktop.DBus.Error.UnknownMethod",
        ])
}
