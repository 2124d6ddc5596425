import AppStateContract

/// Which application a window belongs to, and what its windows make of it.
extension Machine {
    /// Adds or replaces a window; answers the applications whose windows are others now.
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
        window.owner = owner(of: window)
        if let process = window.process { windowsByProcess[process, default: []].insert(key) }
        if let owner = window.owner {
            applications[owner]?.windows.insert(key)
            applications[owner]?.isAssumedVisible = false
            touched.insert(owner)
        }
        windows[key] = window
        return touched
    }

    /// Removes a window; answers the application that it belonged to.
    mutating func remove(
        _ key: WindowKey, at now: Microseconds, _ effects: inout [Effect]
    ) -> Set<ApplicationNumber> {
        guard let window = windows.removeValue(forKey: key) else { return [] }
        unindex(key, window)
        orphans.remove(key)
        if case .reported(let connection, let number) = key { reporters[connection]?.windows.remove(number) }
        if let owner = window.owner { applications[owner]?.windows.remove(key) }
        if sessions[window.session]?.focus == key {
            sessions[window.session]?.focus = nil
            if window.owner != nil && !window.minimized { effects.append(.focusChanged(window.session)) }
        }
        tidy(window.session)
        if let process = window.process, !isConcerned(with: process) { effects.append(.forget(process)) }
        return window.owner.map { [$0] } ?? []
    }

    /// Gives windows to other owners after `process` was registered or is no longer.
    mutating func reattribute(
        windowsBelow process: ProcessID, at now: Microseconds, _ effects: inout [Effect]
    ) -> Set<ApplicationNumber> {
        var touched: Set<ApplicationNumber> = []
        for (key, window) in windows where window.lineage.contains(process) {
            touched.formUnion(put(window, as: key))
            if windows[key]?.owner != window.owner, sessions[window.session]?.focus == key, !window.minimized
            {
                effects.append(.focusChanged(window.session))
            }
            touched.formUnion(dropIfPointless(key, at: now, &effects))
        }
        return touched
    }

    /// The one focus of a session goes to `key`; whoever had it has it no longer.
    mutating func moveFocus(
        to key: WindowKey?, in session: SessionKey, touching others: Set<ApplicationNumber> = [],
        because reason: StateChangeReason = .focus, at now: Microseconds, _ effects: inout [Effect]
    ) {
        var touched = others
        let before = focusedApplication(in: session)
        let old = sessions[session]?.focus
        sessions[session, default: Session()].focus = key
        if let old, old != key {
            if let owner = windows[old]?.owner { touched.insert(owner) }
            touched.formUnion(dropIfPointless(old, at: now, &effects))
        }
        if let owner = key.flatMap({ windows[$0]?.owner }) { touched.insert(owner) }
        // Who loses it before who gets it, so that no two are seen active at once.
        let winner = focusedApplication(in: session)
        refresh(touched.filter { $0 != winner }, reason, at: now, &effects)
        if let winner { refresh([winner], reason, at: now, &effects) }
        if before != winner { effects.append(.focusChanged(session)) }
        tidy(session)
    }

    /// A process as a whole is no window: without focus it is kept only where it says something of an
    /// application whose windows nobody reports one by one.
    private mutating func dropIfPointless(
        _ key: WindowKey, at now: Microseconds, _ effects: inout [Effect]
    ) -> Set<ApplicationNumber> {
        guard case .process(let session, _) = key, let window = windows[key],
            sessions[session]?.focus != key, window.owner == nil || !window.visible
        else { return [] }
        return remove(key, at: now, &effects)
    }

    /// Recomputes what its windows make of each application.
    mutating func refresh(
        _ numbers: some Sequence<ApplicationNumber>, _ reason: StateChangeReason,
        at now: Microseconds, _ effects: inout [Effect]
    ) {
        for number in numbers.sorted() {
            guard let application = applications[number] else { continue }
            let view = view(of: application)
            update(number, reason, at: now, &effects) {
                $0.windowLevel = view.level
                $0.isFocused = view.isFocused
                $0.isMinimized = view.isMinimized
            }
        }
    }

    mutating func refreshAll(
        in session: SessionKey, _ reason: StateChangeReason, at now: Microseconds, _ effects: inout [Effect]
    ) {
        refresh(concerned(by: session), reason, at: now, &effects)
    }

    /// The applications that a change of the session can change.
    func concerned(by session: SessionKey) -> Set<ApplicationNumber> {
        Set(
            applications.values.lazy.filter { application in
                application.session == session
                    || application.windows.contains { self.windows[$0]?.session == session }
            }.map(\.number))
    }

    /// What the windows make of an application: the pure part of § 2.
    func view(
        of application: Application
    ) -> (level: Application.WindowLevel, isFocused: Bool, isMinimized: Bool) {
        var level = Application.WindowLevel.hidden
        var isFocused = false
        var isMinimized = !application.windows.isEmpty
        for key in application.windows {
            guard let window = windows[key], !window.minimized else { continue }
            isMinimized = false
            let session = sessions[window.session]
            let hasFocus = session?.focus == key
            isFocused = isFocused || hasFocus
            guard session?.inFront ?? true else { continue }
            if hasFocus { level = .focused } else if window.visible { level = max(level, .visible) }
        }
        if application.isAssumedVisible, sessions[application.session]?.inFront ?? true {
            level = max(level, .visible)
        }
        return (level, isFocused, isMinimized)
    }

    /// Forgets a session of which nothing is known.
    mutating func tidy(_ session: SessionKey) {
        if sessions[session] == Session() { sessions[session] = nil }
    }

    private func owner(of window: Window) -> ApplicationNumber? {
        guard let number = owner(of: window.lineage), let application = applications[number],
            window.reporterUser == 0 || window.reporterUser == application.user
        else { return nil }
        return number
    }

    private mutating func unindex(_ key: WindowKey, _ window: Window) {
        guard let process = window.process else { return }
        windowsByProcess[process]?.remove(key)
        if windowsByProcess[process]?.isEmpty == true { windowsByProcess[process] = nil }
    }
}
