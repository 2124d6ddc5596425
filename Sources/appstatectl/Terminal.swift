import AppStateContract
import Glibc

/// What standard output can show.
enum Terminal {
    static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

    /// Colours on a terminal only, and not where NO_COLOR is set (no-color.org).
    static var hasColours: Bool {
        isTerminal && getenv("NO_COLOR") == nil && getenv("TERM").map { String(cString: $0) } != "dumb"
    }

    /// The columns there are: COLUMNS, else the terminal's; nil where lines may be of any length.
    static var width: Int? {
        if let columns = getenv("COLUMNS").flatMap({ Int(String(cString: $0)) }), columns > 0 {
            return columns
        }
        guard isTerminal else { return nil }
        var size = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 else { return 80 }
        return Int(size.ws_col)
    }

    static func warn(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        _ = write(STDERR_FILENO, bytes, bytes.count)
    }

    /// One line, at once: a reader at the other end of a pipe waits for it.
    static func emit(_ line: String) {
        var bytes = Array((line + "\n").utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
            if count < 0 {
                if errno == EINTR { continue }
                // Nobody reads any more, as after `| head`.
                exit(0)
            }
            bytes = bytes.dropFirst(count)
        }
    }

    static func coloured(_ text: String, as state: String) -> String {
        guard hasColours else { return text }
        let code: String
        switch LifeCycleState(rawValue: state) {
        case .active?: code = "1;32"
        case .inactive?: code = "32"
        case .background?: code = "34"
        case .suspended?: code = "35"
        case .notRunning?: code = "2"
        case nil: return text
        }
        return "\u{1B}[\(code)m\(text)\u{1B}[0m"
    }

    static func bold(_ text: String) -> String { hasColours ? "\u{1B}[1m\(text)\u{1B}[0m" : text }
}

/// Rows in columns, cut to what the terminal shows.
struct Table {
    let titles: [String]
    /// The column that gives way when there is too little room.
    let flexible: Int
    /// The column whose texts are states.
    let stateColumn: Int?
    private var rows: [[String]] = []

    init(_ titles: [String], flexible: Int, stateColumn: Int? = nil) {
        self.titles = titles
        self.flexible = flexible
        self.stateColumn = stateColumn
    }

    mutating func add(_ row: [String]) { rows.append(row) }

    func print() {
        var widths = titles.indices.map { column in
            ([titles] + rows).map { $0[column].count }.max() ?? 0
        }
        if let width = Terminal.width {
            let excess = widths.reduce(2 * (widths.count - 1), +) - width
            if excess > 0 { widths[flexible] = max(8, widths[flexible] - excess) }
        }
        Terminal.emit(Terminal.bold(line(titles, widths)))
        for row in rows { Terminal.emit(line(row, widths)) }
    }

    private func line(_ cells: [String], _ widths: [Int]) -> String {
        var line = ""
        for (column, cell) in cells.enumerated() {
            let text = cell.cut(to: widths[column])
            let shown = column == stateColumn ? Terminal.coloured(text, as: cell) : text
            line += shown
            if column < cells.count - 1 {
                line += String(repeating: " ", count: widths[column] - text.count + 2)
            }
        }
        return line
    }
}

extension String {
    /// As much as fits, ended by an ellipsis where something is left out.
    func cut(to width: Int) -> String {
        count <= width ? self : prefix(max(width - 1, 0)) + "…"
    }
}
