import Testing
import Windows

@testable import appstate_session

/// What the daemon is told, and in which order.
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

    @Test("what comes to the front is first, what is gone is last")
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

    @Test("the focus goes from one to another and back in one report each")
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

    @Test("of windows that have the focus at the same time the first counts, and nothing is told twice")
    func oneFocus() throws {
        let windows = Report.withOneFocus(
            try [window(1), window(2, focused: true), window(3, focused: true)])
        #expect(windows.map(\.observed.focused) == [false, true, false])
        var known: [UInt64: Report.Window] = [:]
        for change in Report.changes(from: known, to: windows) { change.apply(to: &known) }
        #expect(Report.changes(from: known, to: windows) == [])
    }

    @Test("a title alone is not told; it goes along")
    func title() throws {
        let before = try [window(1, title: "0:01")]
        #expect(Report.changes(from: told(before), to: try [window(1, title: "0:02")]) == [])
        let after = try [window(1, title: "0:03", focused: true)]
        #expect(Report.changes(from: told(before), to: after) == [.update(after[0])])
    }

    @Test("one that nobody knows the process of is not told")
    func stranger() {
        #expect(Report.Window(ObservedWindow(number: 1, process: nil), of: .x11) == nil)
    }

    @Test("numbers of two window systems are never the same")
    func numbers() {
        let window = ObservedWindow(number: 1 << 48 - 1, process: 1)
        let numbers = WindowSystem.allCases.map { $0.number(of: window) }
        #expect(Set(numbers).count == numbers.count)
    }

    @Test("minimized wins over visible, and that over focused")
    func contradictions() {
        let away = ObservedWindow(number: 1, process: 1, focused: true, visible: true, minimized: true)
        #expect(!away.visible && !away.focused)
        let hidden = ObservedWindow(number: 1, process: 1, focused: true, visible: false)
        #expect(!hidden.focused)
    }

    @Test("a title of somebody else's does not look like a line of its own")
    func description() throws {
        let report = Report.update(try window(1, title: "a\nRemoveWindow 0x1\u{1b}[31m"))
        #expect(!report.description.contains("\n") && !report.description.contains("\u{1b}"))
    }

    @Test("the command line")
    func arguments() {
        #expect(Arguments([]) == .run(Arguments.Options()))
        #expect(
            Arguments(["--session", "c1", "--verbose"])
                == .run(Arguments.Options(session: "c1", isVerbose: true)))
        #expect(Arguments(["--session=c1"]) == .run(Arguments.Options(session: "c1")))
        #expect(Arguments(["--launch-only"]) == .run(Arguments.Options(launchesOnly: true)))
        #expect(Arguments(["--session"]) == .wrong("--session needs an id"))
    }
}
