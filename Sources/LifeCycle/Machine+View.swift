import AppStateContract

/// How an application's windows affect its state.
extension Machine {
    /// Recomputes the effect of the windows of each application. Applications whose level falls come first,
    /// so that one focus never makes two applications appear active.
    mutating func refresh(_ numbers: some Sequence<ApplicationNumber>, _ reason: StateChangeReason) {
        var falling: [(ApplicationNumber, View)] = []
        var others: [(ApplicationNumber, View)] = []
        for number in numbers.sorted() {
            guard let application = applications[number] else { continue }
            let view = view(of: application)
            if view.level < application.windowLevel {
                falling.append((number, view))
            } else {
                others.append((number, view))
            }
        }
        for (number, view) in falling + others {
            let suspends = applications[number].map(policySuspends) ?? false
            updateAnnouncing(number, reason) {
                // This comes before the edges that result from it (§ 3).
                $0.setProtected(view.isLocked, isSuspended: suspends, &$1)
                $0.show(view)
            }
        }
    }

    /// An application that is being launched has not read the clock yet.
    mutating func announce(_ change: TimeChange, to number: ApplicationNumber) {
        guard let application = applications[number], application.state != .notRunning else { return }
        updateAnnouncing(number, .session) { $0.announce(.significantTimeChange, with: .cause(change), &$1) }
    }

    /// Something that kept policy from suspending it has ended.
    mutating func objectionEnded(_ number: ApplicationNumber) {
        updateAnnouncing(number, .windows) { $0.grace(.objectionEnded, $1) }
    }

    /// The applications that a change of the session can affect.
    func applications(in session: SessionKey) -> Set<ApplicationNumber> {
        Set(
            applications.values.lazy.filter { application in
                application.session == session
                    || application.windows.contains { self.windows[$0]?.session == session }
            }.map(\.number))
    }

    /// The effect of an application's windows: the pure part of § 2.
    func view(of application: Application) -> View {
        var view = View()
        view.isMinimized = !application.windows.isEmpty
        // Its own session counts if no window is in another session.
        view.isLocked = application.windows.isEmpty && sessions[application.session]?.isLocked == true
        for key in application.windows {
            guard let window = windows[key] else { continue }
            let session = sessions[window.session]
            view.isLocked = view.isLocked || session?.isLocked == true
            view.isUnsaved = view.isUnsaved || window.isUnsaved
            if let shown = shown(window, as: key) { view.digest ^= shown.hashValue }
            if window.minimized { continue }
            view.isMinimized = false
            let hasFocus = session?.focus == key
            view.isFocused = view.isFocused || hasFocus
            guard session?.inFront ?? true else { continue }
            if hasFocus {
                view.level = .focused
            } else if window.visible {
                view.level = max(view.level, .visible)
            }
        }
        if application.isAssumedVisible, sessions[application.session]?.inFront ?? true {
            view.level = max(view.level, .visible)
        }
        return view
    }
}

/// The effect of an application's windows.
struct View {
    var level = Application.WindowLevel.hidden
    var isFocused = false
    var isMinimized = false
    var isLocked = false
    var isUnsaved = false
    /// Differs from an earlier one if a window does, in whatever order they come.
    var digest = 0
}

extension Application {
    /// Applies the present effect of its windows.
    mutating func show(_ view: View) {
        windowLevel = view.level
        isFocused = view.isFocused
        isMinimized = view.isMinimized
        isLocked = view.isLocked
        hasUnsavedMark = view.isUnsaved
        windowDigest = view.digest
    }
}

extension Machine {
    /// nil: the entry means all windows of a process.
    func shown(_ window: Window, as key: WindowKey) -> ShownWindow? {
        if key.isWhole { return nil }
        let session = sessions[window.session]
        let isShown = !window.minimized && session?.inFront ?? true
        let state: SceneState =
            isShown && session?.focus == key
            ? .foregroundActive : isShown && window.visible ? .foregroundInactive : .background
        return ShownWindow(
            number: key.number, title: window.title, state: state, isMinimized: window.minimized,
            session: window.session)
    }
}
