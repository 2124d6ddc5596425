import AppStateContract

/// A line for users. Text from applications cannot break out of the line or send commands to the terminal:
/// text is escaped when it is added, and colours are stored separately until it is written.
struct Line {
    enum Style {
        case bold
        case state(LifeCycleState)
        case ok
        /// What works without, but less well.
        case lacking
        case missing
        case chosen

        fileprivate var code: String {
            switch self {
            case .bold: "1"
            case .ok: "32"
            case .lacking: "33"
            case .missing: "1;31"
            case .chosen: "7"
            case .state(.active): "1;32"
            case .state(.inactive): "32"
            case .state(.background): "34"
            case .state(.suspended): "35"
            case .state(.notRunning): "2"
            }
        }
    }

    private struct Piece {
        var text: String
        let style: Style?
    }

    private var pieces: [Piece]

    init(_ text: String, _ style: Style? = nil) { pieces = [Piece(text: text.harmless, style: style)] }

    /// The name of a state, in its colour if the state is known.
    init(state: String) { self.init(state, LifeCycleState(rawValue: state).map { .state($0) }) }

    private init(pieces: [Piece]) { self.pieces = pieces }

    static func + (left: Line, right: Line) -> Line { Line(pieces: left.pieces + right.pieces) }

    /// The number of columns that the line takes.
    var width: Int { pieces.reduce(0) { $1.text.reduce($0) { $0 + $1.columns } } }

    /// The part of the line that fits, with an ellipsis at the end if something is left out.
    func cut(to width: Int) -> Line {
        guard self.width > width else { return self }
        var left = width - 1
        var kept: [Piece] = []
        for var piece in pieces where left >= 0 {
            var text = ""
            for character in piece.text {
                left -= character.columns
                if left < 0 {
                    text += width > 0 ? "…" : ""
                    break
                }
                text.append(character)
            }
            piece.text = text
            kept.append(piece)
        }
        return Line(pieces: kept)
    }

    /// The line padded with spaces to a width, at the end or at the beginning.
    func padded(to width: Int, before: Bool = false) -> Line {
        let spaces = Line(String(repeating: " ", count: max(width - self.width, 0)))
        return before ? spaces + self : self + spaces
    }

    /// The line in reverse video, without its colours.
    var chosen: Line { Line(pieces: [Piece(text: pieces.map(\.text).joined(), style: .chosen)]) }

    /// The line, truncated to the width of the terminal if the output goes to a terminal.
    var fitted: Line { Terminal.width.map { cut(to: $0) } ?? self }

    /// The text to write, with colours if they are enabled.
    var text: String {
        pieces.map { piece in
            guard Terminal.hasColours, let code = piece.style?.code, !piece.text.isEmpty else {
                return piece.text
            }
            return "\u{1B}[\(code)m\(piece.text)\u{1B}[0m"
        }.joined()
    }
}

extension Terminal {
    /// Writes one line for users.
    static func emit(_ line: Line) { emit(raw: line.text) }
}

extension String {
    /// The text in lines of at most this width, broken between words. A word that is longer has a line of its own.
    func wrapped(to width: Int) -> [String] {
        var lines: [String] = []
        for word in split(separator: " ") {
            if let last = lines.last, last.count + 1 + word.count <= width {
                lines[lines.count - 1] = "\(last) \(word)"
            } else {
                lines.append(String(word))
            }
        }
        return lines
    }

    /// The text with all characters escaped that could control a terminal, end a line or change the direction
    /// of text: C0, DEL and C1, the line and paragraph separators, and Unicode's bidi controls.
    var harmless: String {
        if unicodeScalars.allSatisfy({ !$0.isHarmful }) { return self }
        var harmless = String.UnicodeScalarView()
        for scalar in unicodeScalars {
            guard scalar.isHarmful else {
                harmless.append(scalar)
                continue
            }
            let digits = String(scalar.value, radix: 16)
            switch scalar {
            case "\n": harmless += "\\n".unicodeScalars
            case "\r": harmless += "\\r".unicodeScalars
            case "\t": harmless += "\\t".unicodeScalars
            case _ where scalar.value < 0x10: harmless += "\\x0\(digits)".unicodeScalars
            case _ where scalar.value < 0x100: harmless += "\\x\(digits)".unicodeScalars
            default: harmless += "\\u{\(digits)}".unicodeScalars
            }
        }
        return String(harmless)
    }
}

extension Unicode.Scalar {
    fileprivate var isHarmful: Bool {
        switch properties.generalCategory {
        case .control, .lineSeparator, .paragraphSeparator: true
        default: properties.isBidiControl
        }
    }
}

extension Character {
    /// The columns that the character takes, at most. A terminal that combines characters needs fewer.
    fileprivate var columns: Int {
        isASCII ? 1 : unicodeScalars.reduce(0) { $0 + $1.columns }
    }
}

extension Unicode.Scalar {
    fileprivate var columns: Int {
        // It can turn the character before it into an emoji, which takes two columns.
        if self == "\u{FE0F}" { return 1 }
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark: return 0
        case .format where properties.isDefaultIgnorableCodePoint && self != "\u{AD}": return 0
        default: break
        }
        return properties.isEmojiPresentation || Self.wide.contains { $0.contains(value) } ? 2 : 1
    }

    /// The blocks that contain wide or fullwidth characters according to UAX #11.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2329...0x232A, 0x2630...0x2637, 0x268A...0x268F, 0x2E80...0x303E, 0x3040...0xA4CF,
        0xA960...0xA97F, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF00...0xFF60,
        0xFFE0...0xFFE6, 0x1_6FE0...0x1_B2FF, 0x1_D300...0x1_D376, 0x1_F000...0x1_FAFF, 0x2_0000...0x3_FFFD,
    ]
}

/// Rows in columns, truncated to the width of the terminal.
struct Table {
    let titles: [String]
    /// The columns that shrink if there is too little room, in this order, and the width that each keeps. A column may
    /// appear more than once. If a line is still too long after that, it is truncated at its end.
    let givingWay: [(column: Int, least: Int)]
    private var rows: [[Line]] = []

    init(_ titles: [String], givingWay: [(column: Int, least: Int)]) {
        self.titles = titles
        self.givingWay = givingWay
    }

    mutating func add(_ row: [Line]) { rows.append(row) }

    func emit() {
        for line in lines(width: Terminal.width) { Terminal.emit(line) }
    }

    /// The lines for a terminal of this width, or the whole lines if there is no terminal.
    func lines(width: Int?) -> [Line] {
        let all = [titles.map { Line($0, .bold) }] + rows
        var widths = titles.indices.map { column in all.map { $0[column].width }.max() ?? 0 }
        if let width {
            for (column, least) in givingWay {
                let excess = widths.reduce(2 * (widths.count - 1), +) - width
                if excess > 0 { widths[column] = min(widths[column], max(least, widths[column] - excess)) }
            }
        }
        return all.map { row in
            var line = Line("")
            for (column, cell) in row.enumerated() {
                let shown = cell.cut(to: widths[column])
                line = line + (column == row.count - 1 ? shown : shown.padded(to: widths[column] + 2))
            }
            return width.map { line.cut(to: $0) } ?? line
        }
    }
}

extension OutputOptions {
    /// Shows rows: as JSON, as a table, or with a sentence if there are none.
    func show<Row>(
        _ rows: [Row], asJSON: (Row) -> JSON, in table: Table, cells: (Row) -> [Line],
        ifNone sentence: @autoclosure () -> String
    ) {
        if json { return Terminal.emit(JSON.array(rows.map(asJSON))) }
        if rows.isEmpty { return Terminal.warn(sentence()) }
        var table = table
        for row in rows { table.add(cells(row)) }
        table.emit()
    }
}

/// Names and their values, in two columns.
enum Field {
    /// That of ProtectedDataAvailable.
    private static let usual = 22

    /// The width of the name's column: the usual width, or half of the terminal if that is narrower.
    private static func column(_ width: Int?) -> Int {
        width.map { min(usual, max(1, $0 / 2 - 2)) } ?? usual
    }

    static func line(_ name: String, _ value: Line, width: Int? = Terminal.width) -> Line {
        let column = column(width)
        let label = column < usual ? Line(name).cut(to: column) : Line(name)
        let line = label.padded(to: column, before: true) + Line(": ") + value
        return width.map { line.cut(to: $0) } ?? line
    }

    /// A line with another value of the same name.
    static func further(_ value: Line, width: Int? = Terminal.width) -> Line {
        let line = Line(String(repeating: " ", count: column(width) + 2)) + value
        return width.map { line.cut(to: $0) } ?? line
    }
}
