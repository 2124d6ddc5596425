import AppStateBus
import AppStateContract
import Windows

/// One call of org.appstate1.Reporter.
enum Report: Equatable {
    case replace([Window])
    case update(Window)
    case remove(UInt64)

    /// A window in the form in which it is reported to the daemon.
    struct Window: Equatable {
        /// Unique among all observers.
        let number: UInt64
        let pid: UInt32
        var observed: ObservedWindow

        /// Nil if the process of the window is unknown: the daemon could not use the window.
        init?(_ observed: ObservedWindow, of system: WindowSystem) {
            guard let process = observed.process, let pid = UInt32(exactly: process), pid > 0 else {
                return nil
            }
            number = system.number(of: observed)
            self.pid = pid
            self.observed = observed
        }

        /// Whether the change must be reported at once. A change of the title alone is not worth a call and the
        /// daemon's work for it, such as recording it: some titles change every second. The new title is sent
        /// with the next change, or a little later.
        func differs(from other: Window) -> Bool {
            pid != other.pid || observed.focused != other.observed.focused
                || observed.visible != other.observed.visible
                || observed.minimized != other.observed.minimized
                || observed.appID != other.observed.appID
                || observed.title != other.observed.title
                    && observed.hasUnsavedMark != other.observed.hasUnsavedMark
        }
    }

    /// The same windows, each once, with only one focus, the first. With two focused windows, as on a
    /// compositor with two seats, each would take the focus from the other again and again. Any client of an
    /// X server may list a window twice.
    static func withOneFocus(_ windows: [Window]) -> [Window] {
        var numbers: Set<UInt64> = []
        var windows = windows.filter { numbers.insert($0.number).inserted }
        for index in windows.indices.filter({ windows[$0].observed.focused }).dropFirst() {
            windows[index].observed.focused = false
        }
        return windows
    }

    /// The reports that bring the daemon from `told` to `present`.
    ///
    /// Windows that come to the front are first: an application that replaces one window by another does not lose its
    /// state on the way. The loss of the focus is not reported if another window has got it.
    ///
    /// - Parameter withTitles: a window with another title has changed.
    static func changes(
        from told: [UInt64: Window], to present: [Window], withTitles: Bool = false
    ) -> [Report] {
        var known = told
        if let focused = present.first(where: \.observed.focused) { Self.focus(focused.number, in: &known) }
        let changed = present.filter { window in
            guard let before = told[window.number], let known = known[window.number] else { return true }
            return window.differs(from: window.observed.focused ? before : known)
                || withTitles && window.observed.title != before.observed.title
        }
        let numbers = Set(present.map(\.number))
        return mostImportantFirst(changed).map(Report.update)
            + told.keys.filter { !numbers.contains($0) }.sorted().map(Report.remove)
    }

    /// The focused window, then those that are visible.
    static func mostImportantFirst(_ windows: [Window]) -> [Window] {
        windows.filter(\.observed.focused)
            + windows.filter { $0.observed.visible && !$0.observed.focused }
            + windows.filter { !$0.observed.visible && !$0.observed.focused }
    }

    /// The reports after which the daemon knows windows by their new numbers; nil: the changes are enough.
    ///
    /// The daemon takes the removal of a window for its end, and resumes a suspended application. Therefore it gets the
    /// whole set if a window of a process that still has one is gone. Before that, it gets the removals of windows
    /// whose processes have none any more, because they were closed.
    ///
    /// - Parameter all: every window may have a new number. Otherwise, only a shared window may: it gets its own number
    ///   once its owner is known.
    static func renumbering(
        from told: [UInt64: Window], to present: [Window], all: Bool
    ) -> [Report]? {
        let numbers = Set(present.map(\.number))
        let pids = Set(present.map(\.pid))
        let gone = told.values.filter { !numbers.contains($0.number) }
        let isRenumbered = gone.contains { (all || $0.observed.isShared) && pids.contains($0.pid) }
        guard isRenumbered else { return nil }
        let closed = gone.filter { !pids.contains($0.pid) }.map(\.number).sorted()
        return closed.isEmpty ? [Report.replace(present)] : closed.map(Report.remove)
    }

    /// Changes `told` to the set that the daemon knows after it has accepted this report.
    func apply(to told: inout [UInt64: Window]) {
        switch self {
        case .replace(let windows):
            told = Dictionary(windows.map { ($0.number, $0) }) { first, _ in first }
        case .update(let window):
            if window.observed.focused { Self.focus(window.number, in: &told) }
            told[window.number] = window
        case .remove(let number): told[number] = nil
        }
    }

    /// A session has one focus (dbus-api, "Reporter").
    private static func focus(_ number: UInt64, in told: inout [UInt64: Window]) {
        for (other, window) in told where other != number && window.observed.focused {
            told[other]?.observed.focused = false
        }
    }

    var method: ReporterMethod {
        switch self {
        case .replace: .replaceWindows
        case .update: .updateWindow
        case .remove: .removeWindow
        }
    }

    /// Appends the arguments of the method.
    func write(to message: borrowing Message) throws(BusFailure) {
        switch self {
        case .replace(let windows):
            try message.withContainer(.array, "(tua{sv})") {
                for window in windows {
                    try message.withContainer(.struct, "tua{sv}") { try Self.write(window, to: message) }
                }
            }
        case .update(let window): try Self.write(window, to: message)
        case .remove(let number): try message.append(number)
        }
    }

    private static func write(_ window: Window, to message: borrowing Message) throws(BusFailure) {
        let observed = window.observed
        try message.append(window.number)
        try message.append(window.pid)
        try message.appendDictionary([
            (WindowKeyName.focused.rawValue, .bool(observed.focused)),
            (WindowKeyName.visible.rawValue, .bool(observed.visible)),
            (WindowKeyName.minimized.rawValue, .bool(observed.minimized)),
            (WindowKeyName.unsavedChanges.rawValue, .bool(observed.hasUnsavedMark)),
            (WindowKeyName.title.rawValue, .string(observed.title)),
            (WindowKeyName.appID.rawValue, .string(observed.appID)),
        ])
    }
}

extension Report: CustomStringConvertible {
    /// One line for users; for a whole set, one more line for each window.
    var description: String {
        switch self {
        case .replace(let windows):
            (["\(method.rawValue) \(windows.count)"] + windows.map { "  \($0)" }).joined(separator: "\n")
        case .update(let window): "\(method.rawValue) \(window)"
        case .remove(let number): "\(method.rawValue) \(Self.name(of: number))"
        }
    }

    fileprivate static func name(of number: UInt64) -> String { "0x" + String(number, radix: 16) }
}

extension Report.Window: CustomStringConvertible {
    var description: String {
        let words = [
            Report.name(of: number), "pid \(pid)", observed.focused ? "focused" : nil,
            observed.visible ? "visible" : nil, observed.minimized ? "minimized" : nil,
            observed.hasUnsavedMark ? "unsaved" : nil,
        ]
        return words.compactMap { $0 }.joined(separator: " ")
            + " \(quoted(observed.appID)) \(quoted(observed.title))"
    }

    /// Text of other programs must not look like a separate line, or be shown as a colour.
    private func quoted(_ text: String) -> String {
        let scalars = text.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : $0 }
        return "\"" + String(String.UnicodeScalarView(scalars)) + "\""
    }
}
