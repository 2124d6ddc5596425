import AppStateContract

/// Which application a window belongs to, and how an application's windows affect its state.
extension Machine {
    /// Adds or replaces a window. Returns the applications whose windows have changed.
    @discardableResult
    mutating func put(_ window: Window, as key: WindowKey) -> Set<ApplicationNumber> {
        var window = window
        var touched: Set<ApplicationNumber> = []
        if let old = windows[key] {
            if let owner = old.owner {
                applications[owner]?.windows.remove(key)
                touched.insert(owner)
            }
            unindex(key, old)
        }
        window.owner = owner(of: window.lineage, reportedBy: window.reporterUser)
        if let process = window.process { windowsByProcess[process, default: []].insert(key) }
        if let owner = window.owner {
            applications[owner]?.windows.insert(key)
            applications[owner]?.isAssumedVisible = false
            touched.insert(owner)
        }
        windows[key] = window
        return touched
    }

    /// Removes a window. Returns the application that it belonged to.
    mutating func remove(_ key: WindowKey) -> Set<ApplicationNumber> {
        guard let window = windows.removeValue(forKey: key) else { return [] }
        unindex(key, window)
        if case .reported(let connection, let number) = key { reporters[connection]?.windows.remove(number) }
        if let owner = window.owner { applications[owner]?.windows.remove(key) }
        if sessions[window.session]?.focus == key { sessions[window.session]?.focus = nil }
        tidy(window.session)
        if let process = window.process, !isConcerned(with: process) { step.effects.append(.forget(process)) }
        return window.owner.map { [$0] } ?? []
    }

    /// Assigns windows to other owners after `process` was registered or is no longer registered. The windows of an
    /// application below it stay where they are: there may be a thousand such applications.
    mutating func reattribute(windowsBelow process: ProcessID) -> Set<ApplicationNumber> {
        var touched: Set<ApplicationNumber> = []
        let below = windows.filter { $0.value.lineage.contains(process) }
        for (key, window) in below.sorted(by: { WindowKey.inOrder($0.key, $1.key) })
        where owner(of: window.lineage, reportedBy: window.reporterUser) != window.owner {
            touched.formUnion(put(window, as: key))
            touched.formUnion(dropIfPointless(key))
        }
        return touched
    }

    /// Whether reports of one user count for another user's applications: only those of root do.
    static func mayReport(_ reporter: UInt32, about user: UInt32) -> Bool {
        reporter == 0 || reporter == user
    }

    /// Moves the only focus of a session to `key`. The window that had it loses it.
    mutating func moveFocus(
        to key: WindowKey?, in session: SessionKey, touching others: Set<ApplicationNumber> = [],
        because reason: StateChangeReason = .focus
    ) {
        var touched = others
        let old = sessions[session]?.focus
        sessions[session, default: Session()].focus = key
        if let old, old != key {
            if let owner = windows[old]?.owner { touched.insert(owner) }
            touched.formUnion(dropIfPointless(old))
        }
        if let owner = key.flatMap({ windows[$0]?.owner }) { touched.insert(owner) }
        refresh(touched, reason)
        tidy(session)
    }

    /// An entry for a whole process is not a window. Without the focus it is kept only if it adds information
    /// about an application whose windows are not reported one by one.
    private mutating func dropIfPointless(_ key: WindowKey) -> Set<ApplicationNumber> {
        guard case .process(let session, _) = key, let window = windows[key],
            sessions[session]?.focus != key, window.owner == nil || !window.visible
        else { return [] }
        return remove(key)
    }

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
            let grace = settings.backgroundGrace
            let suspends = applications[number].map(policySuspends) ?? false
            updateAnnouncing(number, reason) {
                // This comes before the edges that result from it (§ 3).
                $0.setProtected(view.isLocked, within: $0.ownGrace(grace), isSuspended: suspends, &$1)
                $0.show(view)
            }
        }
    }

    /// An application that is being launched has not read the clock yet.
    mutating func tell(_ number: ApplicationNumber, of change: TimeChange) {
        guard let application = applications[number], application.state != .notRunning else { return }
        updateAnnouncing(number, .session) { $0.announce(.significantTimeChange, with: .cause(change), &$1) }
    }

    mutating func restartGrace(_ number: ApplicationNumber) {
        guard let grace = applications[number]?.grace, grace != .none else { return }
        let settings = settings
        updateAnnouncing(number, .windows) { $0.restartGrace(settings, at: $1.now) }
    }

    /// The applications that a change of the session can affect.
    func concerned(by session: SessionKey) -> Set<ApplicationNumber> {
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

    /// Forgets a session without information, and an ended session once nothing is left in it.
    mutating func tidy(_ session: SessionKey) {
        guard let known = sessions[session] else { return }
        if known == Session() || known.hasEnded && !sessionsOfConcern.contains(session) {
            sessions[session] = nil
        }
    }

    /// The application that a window counts for, if its reporter may report on that application.
    func owner(of lineage: [ProcessID], reportedBy user: UInt32) -> ApplicationNumber? {
        guard let number = owner(of: lineage), let application = applications[number],
            Self.mayReport(user, about: application.user)
        else { return nil }
        return number
    }

    private mutating func unindex(_ key: WindowKey, _ window: Window) {
        guard let process = window.process else { return }
        windowsByProcess[process]?.remove(key)
        if windowsByProcess[process]?.isEmpty == true { windowsByProcess[process] = nil }
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
