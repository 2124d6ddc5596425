import AppStateContract
import LifeCycle

/// The window reports as they came in. Their meaning is worked out again for each question. Slow and simple, to verify
/// the machine's bookkeeping.
struct Reports {
    struct Window {
        var session: SessionKey
        var lineage: [ProcessID]
        var reporter: UInt32
        var visible = true
        var minimized = false
    }

    struct Key: Hashable, Comparable {
        /// Empty: a process as a whole.
        let connection: ConnectionName
        let number: UInt64

        static func whole(_ process: ProcessID) -> Key { Key(connection: "", number: UInt64(process.pid)) }

        static func < (left: Self, right: Self) -> Bool {
            (left.connection, left.number) < (right.connection, right.number)
        }
    }

    /// One report of a window.
    struct Report {
        var key: Key
        var lineage: [ProcessID]
        var isForeign: Bool
        var focused: Bool?
        var visible: Bool?
        var minimized: Bool?
        var session: SessionKey
        var user: UInt32
    }

    var windows: [Key: Window] = [:]
    var focus: [SessionKey: Key] = [:]
    var isInFront: [SessionKey: Bool] = [:]
    /// Only for sessions that have not ended.
    var isLocked: [SessionKey: Bool] = [:]
    var ended: [SessionKey] { isInFront.keys.filter { isLocked[$0] == nil }.sorted() }
    /// Applications for which something was reported.
    var reportedOn: Set<ApplicationNumber> = []
    /// The sessions that each reporter that is there has reported on.
    var reporters: [ConnectionName: Set<SessionKey>] = [:]
    /// Since when a session has had no reporter any longer.
    var absentSince: [SessionKey: Microseconds] = [:]

    mutating func setFocus(_ lineage: [ProcessID]?, in session: SessionKey, by user: UInt32, _ world: World) {
        guard let lineage else { return moveFocus(nil, in: session, world) }
        let keys = windows.filter { $0.value.lineage.first == lineage[0] && $0.value.session == session }.keys
            .sorted()
        let key = keys.first { windows[$0]?.minimized == false } ?? keys.first ?? .whole(lineage[0])
        if keys.isEmpty { remove(key) }
        windows[key, default: Window(session: session, lineage: lineage, reporter: user)].minimized = false
        moveFocus(key, in: session, world)
        note(key, world)
    }

    mutating func setMinimized(
        _ lineage: [ProcessID], _ minimized: Bool, in session: SessionKey, by user: UInt32, _ world: World
    ) {
        var keys = windows.keys.filter { key in
            windows[key].map { $0.lineage.first == lineage[0] && (user == 0 || $0.session == session) }
                == true
        }
        if keys.isEmpty {
            let key = Key.whole(lineage[0])
            remove(key)
            windows[key] = Window(session: session, lineage: lineage, reporter: user)
            keys = [key]
        }
        for key in keys {
            windows[key]?.minimized = minimized
            note(key, world)
            for (other, focused) in focus where minimized && focused == key {
                moveFocus(nil, in: other, world)
            }
        }
    }

    mutating func update(_ report: Report, _ world: World) {
        reporters[report.key.connection, default: []].insert(report.session)
        absentSince[report.session] = nil
        let former = windows[report.key]
        if former?.session != report.session { remove(report.key) }
        var window = former ?? Window(session: report.session, lineage: [], reporter: report.user)
        window.session = report.session
        window.lineage = report.isForeign ? [] : report.lineage
        window.visible = report.visible ?? window.visible
        window.minimized = report.minimized ?? window.minimized
        windows[report.key] = window
        note(report.key, world)
        var isFocused = report.focused
        let whole = Key.whole(report.lineage[0])
        if !report.isForeign, windows[whole]?.session == report.session {
            if focus[report.session] == whole { isFocused = isFocused ?? true }
            remove(whole)
        }
        if isFocused == true { moveFocus(report.key, in: report.session, world) }
        if isFocused == false, focus[report.session] == report.key {
            moveFocus(nil, in: report.session, world)
        }
    }

    /// A whole set; `session`: what an empty one is about.
    mutating func replace(
        _ reports: [Report], by connection: ConnectionName, of user: UInt32, in session: SessionKey,
        _ world: World
    ) {
        let sessions = reports.isEmpty ? [session] : Set(reports.map(\.session))
        for (key, window) in windows where !reports.contains(where: { $0.key == key }) {
            let isLeftBehind =
                !key.connection.isEmpty && reporters[key.connection] == nil && window.reporter == user
            if key.connection == connection || isLeftBehind && sessions.contains(window.session) {
                remove(key)
            }
        }
        reporters[connection, default: []].formUnion(sessions)
        for session in sessions { absentSince[session] = nil }
        for report in reports { update(report, world) }
    }

    /// A reporter is gone, and leaves its set.
    mutating func left(_ connection: ConnectionName, at now: Microseconds) {
        for (key, window) in windows where key.connection == connection && window.lineage.isEmpty {
            remove(key)
        }
        for session in reporters.removeValue(forKey: connection) ?? []
        where !reporters.values.contains(where: { $0.contains(session) }) && !ended.contains(session) {
            absentSince[session] = absentSince[session] ?? now
        }
    }

    mutating func remove(_ key: Key) {
        windows[key] = nil
        for (session, value) in focus where value == key { focus[session] = nil }
    }

    mutating func processEnded(_ process: ProcessID) {
        for (key, window) in windows where window.lineage.first == process { remove(key) }
    }

    /// After a registration or an end: windows may have new owners.
    mutating func ownersChanged(_ world: World) {
        for key in Array(windows.keys) {
            note(key, world)
            drop(key, world)
        }
    }

    /// Only applications are recorded, with their windows and sessions.
    mutating func forgetUnowned(_ world: World) {
        for (key, window) in windows where owner(window, world) == nil { remove(key) }
        reporters = [:]
        for (key, window) in windows where key != .whole(window.lineage[0]) {
            reporters[key.connection, default: []].insert(window.session)
        }
        let recorded = Set(world.told.keys.flatMap { sessions(of: $0, world) })
        absentSince = absentSince.filter { recorded.contains($0.key) }.mapValues { _ in 0 }
    }

    /// Its own session and those of its windows.
    func sessions(of number: ApplicationNumber, _ world: World) -> Set<SessionKey> {
        let own = world.machine.applications[number].map { [$0.session] } ?? []
        return Set(own + windows.values.filter { owner($0, world) == number }.map(\.session))
    }

    func owner(_ window: Window, _ world: World) -> ApplicationNumber? {
        for process in window.lineage {
            guard let number = world.numbers[process] else { continue }
            return window.reporter == 0 || window.reporter == world.told[number]?.user ? number : nil
        }
        return nil
    }

    /// The level that the windows give each application that has any: 0 hidden, 1 visible, 2 focused.
    func levels(_ world: World) -> [ApplicationNumber: Int] {
        var levels: [ApplicationNumber: Int] = [:]
        for (key, window) in windows where !window.minimized && isInFront[window.session] ?? true {
            guard let owner = owner(window, world) else { continue }
            let level = focus[window.session] == key ? 2 : window.visible ? 1 : 0
            levels[owner] = max(levels[owner] ?? 0, level)
        }
        return levels
    }

    private mutating func moveFocus(_ key: Key?, in session: SessionKey, _ world: World) {
        let old = focus[session]
        focus[session] = key
        if let old { drop(old, world) }
    }

    private mutating func note(_ key: Key, _ world: World) {
        if let window = windows[key], let owner = owner(window, world) { reportedOn.insert(owner) }
    }

    /// An unregistered process as a whole is remembered only while it has the focus.
    private mutating func drop(_ key: Key, _ world: World) {
        guard key.connection.isEmpty, let window = windows[key], focus[window.session] != key else { return }
        if owner(window, world) == nil { remove(key) }
    }
}
