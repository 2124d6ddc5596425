import AppStateBus
import AppStateContract
import Windows

/// A window in the form in which it is reported to the daemon.
struct ReportedWindow: Equatable {
    /// Unique among all observers.
    let number: UInt64
    let pid: UInt32
    var observed: ObservedWindow

    /// Nil if the process of the window is unknown: the daemon could not use the window.
    init?(_ observed: ObservedWindow, of system: WindowSystem) {
        guard let process = observed.process, let pid = UInt32(exactly: process), pid > 0 else { return nil }
        number = system.number(of: observed)
        self.pid = pid
        self.observed = observed
    }

    /// The same windows, each once, with only one focus, the first. A compositor with two seats has two focused windows.
    /// Any client of an X server may list a window twice.
    static func withOneFocus(_ windows: [ReportedWindow]) -> [ReportedWindow] {
        var numbers: Set<UInt64> = []
        var windows = windows.filter { numbers.insert($0.number).inserted }
        for index in windows.indices.filter({ windows[$0].observed.focused }).dropFirst() {
            windows[index].observed.focused = false
        }
        return windows
    }

    /// The same window, with as much of its title as says something about the state of the application.
    var untitled: ReportedWindow {
        var window = self
        window.observed.title = observed.hasUnsavedMark ? "*" : ""
        return window
    }

    /// Appends the window as ReplaceWindows takes it.
    func write(to message: borrowing Message) throws(BusFailure) {
        try message.append(number)
        try message.append(pid)
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

extension ReportedWindow: CustomStringConvertible {
    /// One line for users.
    var description: String {
        let words = [
            "0x" + String(number, radix: 16), "pid \(pid)", observed.focused ? "focused" : nil,
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
