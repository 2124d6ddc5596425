import AppStateBus
import AppStateContract
import Windows

/// One call of org.appstate1.Reporter.
enum Report: Equatable {
    case replace([Window])
    case update(Window)
    case remove(UInt64)

    /// A window as the daemon is told of it.
    struct Window: Equatable {
        /// Unique among all observers.
        let number: UInt64
        let pid: UInt32
        var observed: ObservedWindow

        /// Nil where nobody knows whose it is: the daemon could make nothing of it.
        init?(_ observed: ObservedWindow, of system: WindowSystem) {
            guard let process = observed.process, let pid = UInt32(exactly: process), pid > 0 else {
                return nil
            }
            number = system.number(of: observed)
            self.pid = pid
            self.observed = observed
        }

        /// Whether the daemon must be told. A title alone is not worth a call, and what the daemon does for each, such
        /// as writing it down: there are titles that count seconds. It goes along with the next change.
        func differs(from other: Window) -> Bool {
            pid != other.pid || observed.focused != other.observed.focused
                || observed.visible != other.observed.visible
                || observed.minimized != other.observed.minimized
                || observed.appID != other.observed.appID
                || observed.title != other.observed.title
                    && observed.hasUnsavedMark != other.observed.hasUnsavedMark
        }
    }

    /// The same windows with one focus, the first: of two, as on a compositor with two seats, each would take it from the
    /// other without end.
    static func withOneFocus(_ windows: [Window]) -> [Window] {
        var windows = windows
        for index in windows.indices.filter({ windows[$0].observed.focused }).dropFirst() {
            windows[index].observed.focused = false
        }
        return windows
    }

    /// What tells the daemon of `present` where it knows `told`.
    ///
    /// Windows that come to the front are first: an application that exchanges one window for another does not lose
    /// what it has on the way. That a window lost the focus goes without saying where another has got it.
    static func changes(from told: [UInt64: Window], to present: [Window]) -> [Report] {
        var known = told
        if let focused = present.first(where: \.observed.focused) { Self.focus(focused.number, in: &known) }
        let changed = present.filter { window in
            guard let before = told[window.number], let known = known[window.number] else { return true }
            return window.differs(from: window.observed.focused ? before : known)
        }
        let numbers = Set(present.map(\.number))
        return changed.filter(\.observed.focused).map(Report.update)
            + changed.filter { $0.observed.visible && !$0.observed.focused }.map(Report.update)
            + changed.filter { !$0.observed.visible }.map(Report.update)
            + told.keys.filter { !numbers.contains($0) }.sorted().map(Report.remove)
    }

    /// What the daemon knows when it has taken this report.
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

    /// There is one focus in a session (dbus-api, "Reporter").
    private static func focus(_ number: UInt64, in told: inout [UInt64: Window]) {
        for (other, window) in told where other != number && window.observed.focused {
            told[other]?.observed.focused = false
        }
    }

    /// The window that it is about; nil: all of them.
    var number: UInt64? {
        switch self {
        case .replace: nil
        case .update(let window): window.number
        case .remove(let number): number
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
    /// One line, for a person; of a whole set, one line for each window.
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

    /// What others named must not look like a line, or a colour, of its own.
    private func quoted(_ text: String) -> String {
        let scalars = text.unicodeScalars.map { $0.properties.generalCategory == .control ? " " : $0 }
        return "\"" + String(String.UnicodeScalarView(scalars)) + "\""
    }
}
