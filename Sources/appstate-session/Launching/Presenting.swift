import AppStateBus
import Linux
import Systemd
import Windows

/// Shows applications that run, and has them open what is to be opened.
final class Presenting {
    /// Brings a window to the front, by its number among all observers.
    typealias Raise = (_ window: UInt64, _ token: String?) throws(ObserverFailure) -> Void
    typealias Answer = (Result<Bool, MethodError>) -> Void

    private let session: SessionBus
    private let launcher: Launcher
    private let journal: Journal
    private let raise: Raise
    private let proc = Proc()
    private var presenter = Presenter()
    /// What the session bus is asked.
    private var calls: [Int: Slot] = [:]
    private var lastCall = 0

    /// A connection to the bus may await 128 answers at once: dbus-daemon(1), "max_replies_per_connection".
    private static let mostCalls = 32

    init(session: SessionBus, launcher: Launcher, journal: Journal, raise: @escaping Raise) {
        self.session = session
        self.launcher = launcher
        self.journal = journal
        self.raise = raise
    }

    /// Takes the windows that there are.
    func look(at windows: [Report.Window]) {
        presenter.look(at: windows)
        launcher.look(at: presenter)
    }

    /// Brings an application to the front.
    ///
    /// - Parameters:
    ///   - process: its main process.
    ///   - answered: gets whether it was brought there, or asked to come; called once.
    func present(_ id: String, _ process: Int32, _ request: LaunchRequest, _ answered: @escaping Answer) {
        if request.urls.isEmpty, raiseWindow(of: process, request.token) { return answered(.success(true)) }
        findOnBus(id, process) { [unowned self] application in
            if let application {
                ask(application, id, process, request, answered)
            } else if request.urls.isEmpty {
                answered(.success(false))
            } else {
                startOnceMore(id, process, request, answered)
            }
        }
    }

    private func raiseWindow(of process: Int32, _ token: String?) -> Bool {
        guard let window = presenter.window(of: process) else { return false }
        do throws(ObserverFailure) {
            try raise(window, token)
            return true
        } catch {
            journal.log(.notice, "a window of process \(process) is not brought to the front: \(error)")
            return false
        }
    }

    // MARK: On the session bus

    /// The application, where it has its name there: its process, or one that that has started.
    private func findOnBus(
        _ id: String, _ process: Int32, _ found: @escaping (RunningApplication?) -> Void
    ) {
        guard RunningApplication.isBusName(id), let bus = try? session.connection() else { return found(nil) }
        let application = RunningApplication(id, on: bus)
        let isAsked = ask { [proc] done throws(BusFailure) in
            try application.askProcess { owner in
                done()
                let isOwn = owner.map { Presenter.isPart(UInt32($0), of: process, proc) } ?? false
                found(isOwn ? application : nil)
            }
        }
        if !isAsked { found(nil) }
    }

    private func ask(
        _ application: RunningApplication, _ id: String, _ process: Int32, _ request: LaunchRequest,
        _ answered: @escaping Answer
    ) {
        let begin = Clock.monotonicMicroseconds
        let isAsked = ask { [unowned self] done throws(BusFailure) in
            try application.present(request.urls, token: request.token) { [unowned self] error in
                done()
                guard let error else {
                    // It may have opened them without coming to the front.
                    if !request.urls.isEmpty { _ = raiseWindow(of: process, request.token) }
                    return answered(.success(true))
                }
                journal.log(.info, "\(id) does not show itself by the session bus: \(error)")
                // One that takes too long has the call, and will open what it says. One that leaves the bus does not.
                let isLate = Clock.monotonicMicroseconds - begin >= RunningApplication.patience / 2
                if error.isNoReply && isLate { return answered(.success(false)) }
                openByEntry(id, process, request, answered)
            }
        }
        if !isAsked { openByEntry(id, process, request, answered) }
    }

    /// - Parameter call: makes the call; it is told what to call when that is answered.
    /// - Returns: whether the call was made.
    private func ask(_ call: (_ done: @escaping () -> Void) throws(BusFailure) -> Slot) -> Bool {
        guard calls.count < Self.mostCalls else { return false }
        lastCall += 1
        let number = lastCall
        do throws(BusFailure) {
            calls[number] = try call { [unowned self] in calls[number] = nil }
            return true
        } catch {
            journal.log(.info, "\(error)")
            return false
        }
    }

    // MARK: By its entry

    /// Where there is something to open.
    private func openByEntry(
        _ id: String, _ process: Int32, _ request: LaunchRequest, _ answered: @escaping Answer
    ) {
        if request.urls.isEmpty { return answered(.success(false)) }
        startOnceMore(id, process, request, answered)
    }

    /// As a desktop does: the process that this starts hands over to the one that runs, where the program is such a one.
    private func startOnceMore(
        _ id: String, _ process: Int32, _ request: LaunchRequest, _ answered: @escaping Answer
    ) {
        launcher.open(id, request) { [unowned self] error in
            if let error { return answered(.failure(error)) }
            answered(.success(raiseWindow(of: process, request.token)))
        }
    }
}
