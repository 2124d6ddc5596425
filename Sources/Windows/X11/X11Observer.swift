import CXCB

/// Watches the windows that an X11 window manager manages, by the Extended Window Manager Hints.
///
/// All windows of _NET_CLIENT_LIST are reported, whatever their type: a panel or the desktop is an application's
/// visible window too, and the process that shows one must not be stopped. Withdrawn windows are not reported, nor are
/// windows that the window manager does not manage (menus, tooltips), unless they are large or have the focus.
///
/// When a window manager ends, the windows stay, and the next window manager begins with an empty list.
/// Therefore a mapped window is kept, listed or not, with its last reported state.
public final class X11Observer: WindowObserver {
    public let system = WindowSystem.x11
    public private(set) var windows: [ObservedWindow] = []
    private let connection: XConnection
    private let atoms: Atoms
    private var desk = Desk()
    private var stale = Stale()
    private var manager: Int32?
    /// The hints that the window manager supports; empty: it does not say.
    private var supported: Set<xcb_atom_t> = []
    private lazy var borrowed = BorrowedFocus(connection)

    /// Connects, and reads the present set.
    ///
    /// - Parameter display: as in DISPLAY; nil for DISPLAY itself.
    public init(display: String? = nil) throws(ObserverFailure) {
        connection = try XConnection(display: display)
        atoms = Atoms(connection)
        // First the events, then the values: a change in between is seen twice rather than never.
        connection.select([.propertyChange, .substructureNotify], of: connection.root)
        stale.root = AtomName.ofRoot
        stale.overrides = Set(connection.overrides())
        try dispatch()
    }

    public var subject: String { "X11 display \(connection.display)" }
    public var descriptor: Int32 { connection.descriptor }

    public var desktopProcesses: Set<Int32> {
        desk.fixtures.union([connection.server, manager].compactMap(\.self))
    }

    public func onStall(_ handler: @escaping (_ times: Int) -> Void) { connection.onStall = handler }

    public func minimize(_ windows: [UInt64]) throws(ObserverFailure) {
        for window in windows.compactMap(xcb_window_t.init(exactly:)) where desk.clients[window] != nil {
            connection.iconify(window, by: atoms[.changeState])
        }
        connection.flush()
    }

    public func activate(_ windows: [UInt64], token: String?) throws(ObserverFailure) {
        let time = token.flatMap(StartupID.time(of:)) ?? 0
        for window in windows.compactMap(xcb_window_t.init(exactly:)) {
            guard let client = desk.clients[window] else { continue }
            // Not every window manager switches to the desktop of a window that is activated.
            if let desktop = desk.elsewhere(client) {
                connection.show(desktop: desktop, at: time, by: atoms[.currentDesktop])
            }
            connection.activate(window, at: time, by: atoms[.activeWindow])
        }
        connection.flush()
    }

    public func takeFocus(from windows: [UInt64]) -> Bool {
        borrowed.take(from: windows.compactMap(xcb_window_t.init(exactly:)))
    }

    public func giveFocusBack() { borrowed.giveBack() }

    public func isGrabbed(for windows: [UInt64]) -> Bool {
        borrowed.isGrabbed(for: windows.compactMap(xcb_window_t.init(exactly:)), on: desktopProcesses)
    }

    public func dispatch() throws(ObserverFailure) {
        takeEvents()
        // Reading takes a round trip, during which more may come: window managers report that nothing is active before
        // they report what is. But a window that changes without an end must not keep the others from being reported.
        for _ in 0..<Self.mostRounds where !stale.isEmpty {
            readRoot()
            readWindows()
            readOverrides()
            readMapping()
            takeEvents()
        }
        guard connection.isAlive else {
            throw .ended("the X server at display \(connection.display) has ended")
        }
        // Events that were taken from the socket do not make it readable again.
        if stale.isEmpty, !isBehind { connection.flush() } else { connection.wake() }
        windows = desk.picture
    }

    private static let mostRounds = 8

    // MARK: Changes

    /// The data that must be read again.
    private struct Stale {
        var root: Set<AtomName> = []
        var windows: [xcb_window_t: Set<AtomName>] = [:]
        /// Windows whose process is not known yet.
        var newcomers: Set<xcb_window_t> = []
        /// Windows that were mapped, and that no window manager manages.
        var overrides: Set<xcb_window_t> = []
        /// Windows may be viewable now that were not before, or no longer.
        var isMapping = false

        var isEmpty: Bool { root.isEmpty && windows.isEmpty && overrides.isEmpty && !isMapping }
    }

    private static let mostEvents = 10_000
    /// More events may have arrived than were taken.
    private var isBehind = false

    private func takeEvents() {
        // A client may change its windows faster than the changes are read.
        var left = Self.mostEvents
        while left > 0, let event = connection.nextEvent() {
            left -= 1
            switch event {
            case .property(let window, let atom):
                guard let name = atoms.name(of: atom) else { continue }
                if window == connection.root {
                    if AtomName.ofRoot.contains(name) { stale.root.insert(name) }
                } else if AtomName.ofWindow.contains(name), desk.clients[window] != nil {
                    stale.windows[window, default: []].insert(name)
                }
            case .destroyed(let window):
                // Its number may be reused, so the next window with that number must be read again.
                if desk.clients[window] != nil { stale.root.insert(.clientList) }
                drop(window)
                dropOverride(window)
            case .unmapped(let window):
                // For good, or while it is given to another parent.
                if desk.clients[window]?.isListed == false { stale.root.insert(.clientList) }
                dropOverride(window)
                stale.isMapping = true
            case .mapped(let window, let isOverride):
                if isOverride { stale.overrides.insert(window) }
                stale.isMapping = true
            case .focusMoved: stale.root.insert(.activeWindow)
            case .selection, .message: break
            }
        }
        isBehind = left == 0
    }

    private func dropOverride(_ window: xcb_window_t) {
        stale.overrides.remove(window)
        // It may have had the focus.
        if desk.overrides.removeValue(forKey: window) != nil { stale.root.insert(.activeWindow) }
    }

    private func drop(_ window: xcb_window_t) {
        desk.clients[window] = nil
        stale.windows[window] = nil
        stale.newcomers.remove(window)
    }

    // MARK: Reading

    private func readRoot() {
        // What a former window manager has left counts only if the present one supports it, too.
        if stale.root.contains(.supported) || stale.root.contains(.supportingWMCheck) {
            stale.root.formUnion([.supported, .currentDesktop, .showingDesktop])
        }
        // The list is read before the active window, which is in it.
        let names = AtomName.allCases.filter(stale.root.contains)
        stale.root = []
        let questions = names.map { ($0, connection.ask(connection.root, atoms[$0], words: $0.words)) }
        for (name, question) in questions {
            guard let property = connection.answer(to: question) else { return }
            switch name {
            case .clientList: take(list: property.numbers)
            case .activeWindow: take(active: property.numbers.first ?? 0)
            case .supported: supported = Set(property.numbers)
            case .currentDesktop:
                desk.current = isSupported(name) ? property.numbers.first : nil
                stale.isMapping = true
            case .showingDesktop:
                desk.isShown = isSupported(name) && property.numbers.first == 1
                stale.isMapping = true
            case .supportingWMCheck:
                // A new window manager may have found the windows with values that it only takes over.
                for window in desk.clients.keys { stale.windows[window] = AtomName.ofWindow }
                take(manager: property.numbers.first)
            default: break
            }
        }
    }

    private func take(manager window: xcb_window_t?) {
        manager = nil
        desk.leavesMapped = false
        guard let window else { return }
        let process = connection.askProcesses(of: [window])
        let name = connection.ask(window, atoms[.netName], words: AtomName.netName.words)
        manager = connection.answer(to: process)[connection.client(of: window)]
        desk.overrides = desk.overrides.filter { $0.value.process != manager }
        desk.leavesMapped = connection.answer(to: name).map { Desk.leavesMapped($0.text) } ?? false
        stale.isMapping = true
    }

    private func isSupported(_ name: AtomName) -> Bool {
        supported.isEmpty || supported.contains(atoms[name])
    }

    /// Most window managers report that nothing is active while the focus goes from one window to the next.
    /// In this case the X server knows better: an application must not lose the focus when the focus moves to
    /// another of its windows.
    private func take(active: xcb_window_t) {
        if active == 0, borrowed.isTaken { return }
        if active != 0 { desk.active = active }
        desk.focusedOverride = nil
        guard active == 0 || !desk.overrides.isEmpty else { return }
        let focus = connection.focus()
        if desk.clients[focus] == nil, focus > 1 {
            let own = desk.overrides.keys.filter {
                connection.client(of: $0) == connection.client(of: focus)
            }
            desk.focusedOverride = own.contains(focus) ? focus : own.min()
        }
        guard active == 0 else { return }
        if desk.clients[focus] != nil {
            desk.active = focus
        } else if let before = desk.active, focus > 1,
            connection.client(of: focus) == connection.client(of: before)
        {
            // The focus is inside the window that had it, or in a window of the application that is not managed.
        } else {
            desk.active = nil
        }
    }

    private func take(list: [xcb_window_t]) {
        let listed = Set(list)
        let missing = desk.list.filter { !listed.contains($0) && desk.clients[$0] != nil }
        let left = missing.isEmpty ? [] : connection.mapped(of: missing)
        for window in missing {
            desk.clients[window]?.isListed = false
            guard !left.contains(window) else { continue }
            connection.select([], of: window)
            drop(window)
        }
        for window in list {
            desk.clients[window]?.isListed = true
            guard desk.clients[window] == nil else { continue }
            connection.select([.propertyChange, .structureNotify, .focusChange], of: window)
            desk.clients[window] = Desk.Client()
            stale.windows[window] = AtomName.ofWindow
            stale.newcomers.insert(window)
        }
        desk.list = list + missing.filter(left.contains)
    }

    private func readWindows() {
        let (changed, newcomers) = (stale.windows, stale.newcomers)
        stale.windows = [:]
        stale.newcomers = []
        let processQuestion = newcomers.isEmpty ? nil : connection.askProcesses(of: Array(newcomers))
        let questions = changed.flatMap { window, names in
            names.map { (window, $0, connection.ask(window, atoms[$0], words: $0.words)) }
        }
        if let processQuestion {
            let processes = connection.answer(to: processQuestion)
            for window in newcomers {
                desk.clients[window]?.process = processes[connection.client(of: window)]
            }
        }
        for (window, name, question) in questions {
            if let property = connection.answer(to: question) {
                take(property, name, of: window)
            } else {
                drop(window)
            }
        }
    }

    /// Frames and the like are the desktop's own, and show nothing of an application.
    private func readOverrides() {
        let windows = connection.overrides(among: Array(stale.overrides))
        stale.overrides = []
        guard !windows.isEmpty else { return }
        let question = connection.askProcesses(of: windows)
        let large = connection.large(of: windows)
        let processes = connection.answer(to: question)
        let desktop = desktopProcesses
        for window in windows {
            guard desk.clients[window] == nil, let process = processes[connection.client(of: window)],
                !desktop.contains(process)
            else { continue }
            desk.overrides[window] = Desk.Override(process: process, isLarge: large.contains(window))
            stale.root.insert(.activeWindow)
        }
    }

    /// Which windows the X server shows although the window manager says that they are elsewhere.
    private func readMapping() {
        guard stale.isMapping else { return }
        stale.isMapping = false
        let away = desk.clients.filter { desk.isAway($0.value) }.map(\.key)
        let viewable = desk.leavesMapped ? [] : connection.viewable(of: away)
        for window in away { desk.clients[window]?.isViewable = viewable.contains(window) }
    }

    private func take(_ property: XConnection.Property, _ name: AtomName, of window: xcb_window_t) {
        switch name {
        case .state: desk.clients[window]?.isHidden = property.numbers.contains(atoms[.hidden])
        case .desktop:
            desk.clients[window]?.desktop = property.numbers.first
            stale.isMapping = true
        case .type:
            // The first known type counts; these two are never in second place.
            let types = [atoms[.typeDesktop], atoms[.typeDock]]
            desk.clients[window]?.isFixture = property.numbers.first.map(types.contains) ?? false
        case .netName: desk.clients[window]?.netName = property.text
        case .name: desk.clients[window]?.name = property.text
        case .windowClass: desk.clients[window]?.windowClass = property.secondText
        default: break
        }
    }
}

extension XConnection.Property {
    fileprivate var numbers: [UInt32] {
        if case .numbers(let numbers) = self { numbers } else { [] }
    }

    fileprivate var text: String {
        if case .bytes(let bytes) = self { ObservedWindow.text(bytes) } else { "" }
    }

    /// The class in WM_CLASS: the second of two texts, each closed by a NUL; the first if there is no other (ICCCM,
    /// "WM_CLASS Property").
    fileprivate var secondText: String {
        guard case .bytes(let bytes) = self else { return "" }
        let texts = bytes.split(separator: 0, maxSplits: 1, omittingEmptySubsequences: false)
        return texts.map(ObservedWindow.text).last { !$0.isEmpty } ?? ""
    }
}
