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

    enum Key: Hashable {
        case whole(SessionKey, ProcessID)
        case single(ConnectionName, UInt64)
    }

    var windows: [Key: Window] = [:]
    var focus: [SessionKey: Key] = [:]
    var isInFront: [SessionKey: Bool] = [:]
    /// Only for sessions that have not ended.
    var isLocked: [SessionKey: Bool] = [:]
    var ended: [SessionKey] {
        isInFront.keys.filter { isLocked[$0] == nil }.sorted { $0.description < $1.description }
    }
    /// Applications for which something was reported.
    var reportedOn: Set<ApplicationNumber> = []

    mutating func setFocus(_ lineage: [ProcessID]?, in session: SessionKey, by user: UInt32, _ world: World) {
        let old = focus[session]
        guard let lineage else {
            focus[session] = nil
            drop(old, world)
            return
        }
        let key = Key.whole(session, lineage[0])
        let singles = windows.contains { entry in
            if case .single = entry.key {
                return entry.value.lineage.first == lineage[0] && entry.value.session == session
            }
            return false
        }
        windows[key] = Window(session: session, lineage: lineage, reporter: user, visible: !singles)
        focus[session] = key
        if old != key { drop(old, world) }
        note(key, world)
    }

    mutating func setMinimized(
        _ lineage: [ProcessID], _ minimized: Bool, in session: SessionKey, by user: UInt32, _ world: World
    ) {
        let process = lineage[0]
        var keys = windows.keys.filter { key in
            guard case .single = key, let window = windows[key], window.lineage.first == process else {
                return false
            }
            return user == 0 || window.session == session
        }
        if keys.isEmpty {
            let key = Key.whole(session, process)
            if windows[key] == nil {
                windows[key] = Window(session: session, lineage: lineage, reporter: user)
            }
            keys = [key]
        }
        for key in keys {
            windows[key]?.minimized = minimized
            note(key, world)
        }
        guard minimized else { return }
        for (other, key) in focus
        where windows[key]?.lineage.first == process && (user == 0 || other == session) {
            focus[other] = nil
            drop(key, world)
        }
    }

    mutating func update(
        _ key: Key, _ lineage: [ProcessID], foreign: Bool, focused: Bool?, visible: Bool?, minimized: Bool?,
        in session: SessionKey, by user: UInt32, _ world: World
    ) {
        var window = windows[key] ?? Window(session: session, lineage: [], reporter: user)
        if window.session != session {
            remove(key)
            window.session = session
        }
        window.lineage = foreign ? [] : lineage
        window.visible = visible ?? window.visible
        window.minimized = minimized ?? window.minimized
        windows[key] = window
        note(key, world)
        let whole = Key.whole(session, lineage[0])
        if windows[whole] != nil {
            if focus[session] == whole && focused != false {
                windows[whole]?.visible = false
            } else {
                remove(whole)
            }
        }
        switch focused {
        case true?:
            let old = focus[session]
            focus[session] = key
            if old != key { drop(old, world) }
        case false?:
            if focus[session] == key { focus[session] = nil }
        case nil: break
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
            if focus[windows[key]?.session ?? .user(0)] != key { drop(key, world) }
        }
    }

    /// Only applications are recorded, with their windows.
    mutating func forgetUnowned(_ world: World) {
        for (key, window) in windows where owner(window, world) == nil { remove(key) }
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

    private mutating func note(_ key: Key, _ world: World) {
        if let window = windows[key], let owner = owner(window, world) { reportedOn.insert(owner) }
    }

    /// A report on a process as a whole means nothing without the focus, unless it is the only report on an
    /// application.
    private mutating func drop(_ key: Key?, _ world: World) {
        guard let key, case .whole(let session, _) = key, let window = windows[key], focus[session] != key
        else { return }
        if owner(window, world) == nil || !window.visible { remove(key) }
    }
}
