import AppStateContract
import ArgumentParser
import Glibc
import Linux
import Usage

struct Timeline: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Draw a day of your applications: a row for each, a color for each state.",
        discussion: "Needs Usage=yes in session.conf, as usage does. A browser shows the picture.")

    @Option(
        help: ArgumentHelp("The file to write, or - for standard output.", valueName: "file"),
        completion: .file())
    var svg: String
    @Option(help: ArgumentHelp("The day. Default: the last 24 hours.", valueName: "YYYY-MM-DD"))
    var day: String?

    func run() throws {
        let now = Int64(Clock.realMicroseconds / 1_000_000)
        let (start, end) = try day.map(Self.bounds) ?? (now - 86_400, now)
        let chart = Chart(spans: try UsageLog.ofUser(at: now).spans, from: start, to: end)
        if chart.rows.isEmpty {
            throw Failure("nothing was recorded \(day.map { "on \($0)" } ?? "in the last 24 hours")")
        }
        if svg == "-" { return Terminal.emit(raw: chart.text, end: "") }
        try UserFile.write(chart.text, to: try UserFile.absolute(svg))
    }

    /// The midnights around a day, in the local time zone.
    static func bounds(of day: String) throws -> (Int64, Int64) {
        let parts = day.split(separator: "-", omittingEmptySubsequences: false).map { Int32($0) }
        guard parts.count == 3, let year = parts[0], let month = parts[1], let date = parts[2],
            (1970...9_999).contains(year), (1...12).contains(month), (1...31).contains(date)
        else { throw ValidationError("\"\(day)\" is no day: YYYY-MM-DD.") }
        func midnight(_ date: Int32) -> Int64 {
            var time = tm()
            (time.tm_year, time.tm_mon, time.tm_mday, time.tm_isdst) = (year - 1_900, month - 1, date, -1)
            return Int64(mktime(&time))
        }
        return (midnight(date), midnight(date + 1))
    }
}

/// A day as SVG. A browser picks the colours that suit it (prefers-color-scheme).
struct Chart {
    struct Row: Equatable {
        let id: String
        /// Seconds in each state.
        var seconds: [LifeCycleState: Int64] = [:]
        /// The commands of a path for each state: a horizontal stroke for each time in it.
        var strokes: [LifeCycleState: String] = [:]
    }

    let start: Int64
    let end: Int64
    /// Those that ran first are first.
    private(set) var rows: [Row] = []

    /// The states and their colours, light and dark.
    private static let colours: [(LifeCycleState, light: String, dark: String)] = [
        (.active, "#1a7f37", "#3fb950"), (.inactive, "#8fd19e", "#1f6f34"),
        (.background, "#d98e04", "#e3a72f"),
        (.suspended, "#8c959f", "#545d68"),
    ]
    private static let (left, top, width, height) = (240, 56, 1_200, 22)

    init(spans: [UsageLog.Span], from start: Int64, to end: Int64) {
        (self.start, self.end) = (start, end)
        var places: [String: Int] = [:]
        for span in spans.sorted(by: { $0.start < $1.start })
        where span.start < end && span.end > start && span.state != .notRunning {
            let place = places[span.id] ?? rows.count
            if place == rows.count { rows.append(Row(id: span.id)) }
            places[span.id] = place
            let (from, to) = (max(span.start, start), min(span.end, end))
            rows[place].seconds[span.state, default: 0] += to - from
            // What is shorter than the eye sees is a line all the same.
            let length = max(x(to) - x(from), 0.5)
            rows[place].strokes[span.state, default: ""] +=
                "M\(Self.tenths(x(from))) 0h\(Self.tenths(length))"
        }
    }

    private func x(_ time: Int64) -> Double {
        Double(Self.left) + Double(time - start) * Double(Self.width) / Double(max(1, end - start))
    }

    private static func tenths(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(tenths % 10)"
    }

    private static func moment(_ time: Int64) -> Substring {
        localTime(UInt64(max(0, time)) * 1_000_000).prefix(16)
    }

    /// The file.
    var text: String {
        let bottom = Self.top + rows.count * Self.height
        func rules(_ colour: KeyPath<(LifeCycleState, light: String, dark: String), String>) -> String {
            Self.colours.map { ".\($0.0.rawValue){stroke:\($0[keyPath: colour])}" }.joined()
        }
        var text = """
            <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 \(Self.left + Self.width + 40) \(bottom + 16)">
            <title>Applications, \(Self.moment(start)) to \(Self.moment(end))</title>
            <style>
            :root{color-scheme:light dark;background:#fff}
            text{font:13px system-ui,sans-serif;fill:#1f2328}.paper{fill:#fff}.grid{stroke:#d8dee4}
            path{stroke-width:14;fill:none}\(rules(\.light))
            @media (prefers-color-scheme:dark){:root{background:#0d1117}text{fill:#e6edf3}.paper{fill:#0d1117}
            .grid{stroke:#30363d}\(rules(\.dark))}
            </style>
            <rect class="paper" width="100%" height="100%"/>

            """
        for (index, (state, _, _)) in Self.colours.enumerated() {
            let x = Self.left + index * 130
            text += """
                <path class="\(state.rawValue)" d="M\(x) 16h14"/><text x="\(x + 20)" y="20">\(state.rawValue)</text>

                """
        }
        for hour in hours {
            let x = Self.tenths(x(hour))
            let label = Self.moment(hour).dropFirst(11)
            text += """
                <path class="grid" style="stroke-width:1" d="M\(x) \(Self.top - 6)V\(bottom)"/>\
                <text x="\(x)" y="\(Self.top - 12)" text-anchor="middle">\(label)</text>

                """
        }
        for (index, row) in rows.enumerated() {
            let y = Self.top + index * Self.height + Self.height / 2
            // An id has no character that XML takes for another.
            let name = row.id.count <= 28 ? row.id : "\(row.id.prefix(27))…"
            let times = Self.colours.compactMap { state, _, _ in
                row.seconds[state].map { "\(state.rawValue) \(span(of: $0))" }
            }
            text += """
                <g transform="translate(0 \(y))"><title>\(row.id): \(times.joined(separator: ", "))</title>\
                <text x="\(Self.left - 10)" y="4" text-anchor="end">\(name)</text>
                """
            // The state that matters most is drawn last, if one application ran twice.
            for (state, _, _) in Self.colours.reversed() {
                if let strokes = row.strokes[state] {
                    text += "<path class=\"\(state.rawValue)\" d=\"\(strokes)\"/>"
                }
            }
            text += "</g>\n"
        }
        return text + "</svg>\n"
    }

    /// Every second full hour; every hour if there are few.
    private var hours: [Int64] {
        var hours: [Int64] = []
        let step: Int64 = end - start > 12 * 3_600 ? 2 : 1
        // Hours of the local time: a zone may be half an hour off.
        let offset = Int64(LocalTime(at: start).offset)
        var hour = (start + offset + 3_600 * step - 1) / (3_600 * step) * 3_600 * step - offset
        while hour <= end {
            hours.append(hour)
            hour += 3_600 * step
        }
        return hours
    }
}
