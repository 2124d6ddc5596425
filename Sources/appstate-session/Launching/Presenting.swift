import AppStateBus
import Desktop
import Linux
import Systemd
import Windows

/// Shows running applications, and makes those without a delegate open URLs and files.
final class Presenting {
    /// Brings a window to the front, by its number among all observers.
    typealias Raise = (_ window: UInt64, _ token: String?) throws(ObserverFailure) -> Void
    typealias Answer = (MethodError?) -> Void

    private let session: SessionBus
    private let launcher: Launcher
    private let journal: Journal
    private let raise: Raise
    private let proc = Proc()
    private var windows: [ReportedWindow] = []
    /// Windows that have had the focus, the last at the end.
    private var focused: [UInt64] = []
    /// The calls on the session bus that are in progress.
    private var calls: [Int: Slot] = [:]
    private var lastCall = 0

    init(session: SessionBus, launcher: Launcher, journal: Journal, raise: @escaping Raise) {
        (self.session, self.launcher, self.journal, self.raise) = (session, launcher, journal, raise)
    }

    /// Takes the current windows.
    func look(at windows: [ReportedWindow]) {
        self.windows = windows
        let numbers = Set(windows.map(\.number))
        focused.removeAll { !numbers.contains($0) }
        if let window = windows.first(where: \.observed.focused)?.number, focused.last != window {
            focused.removeAll { $0 == window }
            focused.append(window)
        }
        launcher.endNotices { [self] in window(of: $0) != nil }
    }

    /// The window that had the focus last, otherwise a visible window, otherwise the first; nil: there is none. Windows
    /// that may belong to another process are skipped.
    ///
    /// - Parameter process: the application's main process. Windows of its descendants are the application's windows.
    private func window(of process: Int32) -> UInt64? {
        var isOwn: [UInt32: Bool] = [:]
        let own = windows.filter { window in
            guard !window.observed.isShared else { return false }
            if let known = isOwn[window.pid] { return known }
            let answer = isPart(window.pid, of: process)
            isOwn[window.pid] = answer
            return answer
        }
        let numbers = Set(own.map(\.number))
        if let last = focused.last(where: numbers.contains) { return last }
        return (own.first(where: \.observed.visible) ?? own.first)?.number
    }

    /// Whether a process is the other one or a descendant of it.
    private func isPart(_ pid: UInt32, of process: Int32) -> Bool {
        guard let pid = Int32(exactly: pid) else { return false }
        return pid == process || proc.lineage(of: pid).contains { $0.pid == process }
    }

    /// Brings a window of an application to the front.
    ///
    /// - Parameter process: the application's main process.
    /// - Returns: whether there is such a window, and it could be done.
    func present(_ process: Int32, _ token: String?) -> Bool {
        guard let window = window(of: process) else { return false }
        do throws(ObserverFailure) {
            try raise(window, token)
            return true
        } catch {
            journal.log(.notice, "a window of process \(process) is not brought to the front: \(error)")
            return false
        }
    }

    // MARK: On the session bus

    /// Makes an application open URLs, or show its window if there are none.
    ///
    /// - Parameters:
    ///   - process: the application's main process.
    ///   - answered: called once, with the reason for a failure.
    func open(_ id: String, _ process: Int32, _ request: LaunchRequest, _ answered: @escaping Answer) {
        guard RunningApplication.isBusName(id), let bus = try? session.connection() else {
            return openByEntry(id, request, answered)
        }
        let isAsked = ask { [unowned self] done throws(BusFailure) in
            try bus.askProcess(of: id) { [unowned self] owner in
                done()
                // The main process or one of its descendants owns the application's name.
                if let owner, isPart(UInt32(owner), of: process) {
                    ask(RunningApplication(id, on: bus), id, request, answered)
                } else {
                    openByEntry(id, request, answered)
                }
            }
        }
        if !isAsked { openByEntry(id, request, answered) }
    }

    private func ask(
        _ application: RunningApplication, _ id: String, _ request: LaunchRequest,
        _ answered: @escaping Answer
    ) {
        let begin = Clock.monotonicMicroseconds
        let isAsked = ask { [unowned self] done throws(BusFailure) in
            try application.present(request.urls, token: request.token) { [unowned self] error in
                done()
                guard let error else { return answered(nil) }
                journal.log(.info, "\(id) does not show itself by the session bus: \(error)")
                // An application that takes too long has received the call, and will open the URLs. An application that
                // leaves the bus will not.
                let isLate = Clock.monotonicMicroseconds - begin >= RunningApplication.patience / 2
                if error.isNoReply && isLate { return answered(nil) }
                openByEntry(id, request, answered)
            }
        }
        if !isAsked { openByEntry(id, request, answered) }
    }

    /// - Parameter call: makes the call; it gets a function to call when that is answered.
    /// - Returns: whether the call was made.
    private func ask(_ call: (_ done: @escaping () -> Void) throws(BusFailure) -> Slot) -> Bool {
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

    /// If there are URLs, starts the entry again, as a desktop does. The new process hands over to the running one if the
    /// program supports that.
    private func openByEntry(_ id: String, _ request: LaunchRequest, _ answered: @escaping Answer) {
        if request.urls.isEmpty { return answered(nil) }
        launcher.start(id, request, isGated: false) { result in
            if case .failure(let error) = result { answered(error) } else { answered(nil) }
        }
    }
}
