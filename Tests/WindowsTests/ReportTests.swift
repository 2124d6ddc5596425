import Testing
import Windows

@testable import appstate_session

/// What the agent sends to the daemon, and in which order.
@Suite("Reports")
struct ReportTests {
    private func window(
        _ number: UInt64, title: String = "", focused: Bool = false, visible: Bool = true,
        minimized: Bool = false
    ) throws -> Report.Window {
        try #require(
            Report.Window(
                ObservedWindow(
                    number: number, process: 7, title: title, focused: focused, visible: visible,
                    minimized: minimized), of: .x11))
    }

    private func told(_ windows: [Report.Window]) -> [UInt64: Report.Window] {
        Dictionary(uniqueKeysWithValues: windows.map { ($0.number, $0) })
    }

    @Test("the window that gets the focus is reported first, windows that are gone last")
    func order() throws {
        let before = try [window(1, focused: true), window(2), window(3, visible: false), window(4)]
        let after = try [
            window(1, minimized: true), window(2, focused: true), window(3), window(5, visible: false),
        ]
        let changes = Report.changes(from: told(before), to: after)
        #expect(
            changes == [
                .update(after[1]), .update(after[2]), .update(after[0]), .update(after[3]),
                .remove(before[3].number),
            ])
    }

    @Test("a change of the focus from one window to another takes one report")
    func focus() throws {
        let first = try [window(1, focused: true), window(2)]
        let second = try [window(1), window(2, focused: true)]
        var known = told(first)
        for (next, expected) in [(second, second[1]), (first, first[0]), (second, second[1])] {
            let changes = Report.changes(from: known, to: next)
            #expect(changes == [.update(expected)])
            for change in changes { change.apply(to: &known) }
            #expect(known == told(next))
        }
        let none = try [window(1), window(2)]
        #expect(Report.changes(from: known, to: none) == [.update(none[1])])
        let away = try [window(1, focused: true), window(2, visible: false)]
        #expect(Report.changes(from: known, to: away) == [.update(away[0]), .update(away[1])])
    }

    @Test("of several focused windows the first counts, and nothing is reported twice")
    func oneFocus() throws {
        let windows = Report.withOneFocus(
            try [window(1), window(2, focused: true), window(3, focused: true)])
        #expect(windows.map(\.observed.focused) == [false, true, false])
        var known: [UInt64: Report.Window] = [:]
        for change in Report.changes(from: known, to: windows) { change.apply(to: &known) }
        #expect(Report.changes(from: known, to: windows) == [])
    }

    @Test("a changed title alone is reported only with the next report, or when titles are due")
    func title() throws {
        let before = try [window(1, title: "0:01")]
        #expect(Report.changes(from: told(before), to: try [window(1, title: "0:02")]) == [])
        let late = try [window(1, title: "0:02")]
        #expect(Report.changes(from: told(before), to: late, withTitles: true) == [.update(late[0])])
        let after = try [window(1, title: "0:03", focused: true)]
        #expect(Report.changes(from: told(before), to: after) == [.update(after[0])])
    }

    @Test("a window without a known process is not reported")
    func stranger() {
        #expect(Report.Window(ObservedWindow(number: 1, process: nil), of: .x11) == nil)
    }

    @Test("minimized overrides visible, and invisible overrides focused")
    func contradictions() {
        let away = ObservedWindow(number: 1, process: 1, focused: true, visible: true, minimized: true)
        #expect(!away.visible && !away.focused)
        let hidden = ObservedWindow(number: 1, process: 1, focused: true, visible: false)
        #expect(!hidden.focused)
    }
}
