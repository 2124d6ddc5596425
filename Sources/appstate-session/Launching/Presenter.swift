import AppStateBus
import Linux
import Windows

/// Finds the window of an application that is to be brought to the front.
struct Presenter {
    private let proc = Proc()
    private var windows: [ReportedWindow] = []
    /// Windows that have had the focus, the last at the end.
    private var focused: [UInt64] = []

    /// Takes the current windows.
    mutating func look(at windows: [ReportedWindow]) {
        self.windows = windows
        let numbers = Set(windows.map(\.number))
        focused.removeAll { !numbers.contains($0) }
        guard let window = windows.first(where: \.observed.focused)?.number, focused.last != window else {
            return
        }
        focused.removeAll { $0 == window }
        focused.append(window)
    }

    /// The window that had the focus last, otherwise a visible window, otherwise the first; nil: there is none. Windows
    /// that may belong to another process are skipped.
    ///
    /// - Parameter process: the application's main process. Windows of its descendants are the application's windows.
    func window(of process: Int32) -> UInt64? {
        var isOwn: [UInt32: Bool] = [:]
        let own = windows.filter { window in
            guard !window.observed.isShared else { return false }
            if let known = isOwn[window.pid] { return known }
            let answer = Self.isPart(window.pid, of: process, proc)
            isOwn[window.pid] = answer
            return answer
        }
        let numbers = Set(own.map(\.number))
        if let last = focused.last(where: numbers.contains) { return last }
        return (own.first(where: \.observed.visible) ?? own.first)?.number
    }

    /// The processes that have windows.
    var processes: Set<UInt32> { Set(windows.map(\.pid)) }

    /// Whether a process is the other one or a descendant of it.
    static func isPart(_ pid: UInt32, of process: Int32, _ proc: Proc) -> Bool {
        guard let pid = Int32(exactly: pid) else { return false }
        return pid == process || proc.lineage(of: pid).contains { $0.pid == process }
    }
}
