import AppStateContract
import Testing

@testable import LifeCycle

/// Unsaved changes (§ 6): which applications have some, and that these are ended last.
@Suite("Unsaved changes")
struct UnsavedTests {
    private func isUnsaved(_ stage: Stage) -> Bool { stage.application.hasUnsavedChanges }

    private func changes(_ stage: Stage) -> Int {
        stage.effects.count { effect in
            if case .changed(_, let properties) = effect {
                properties.contains(.unsavedChanges)
            } else {
                false
            }
        }
    }

    @Test("the application reports and withdraws unsaved changes, and each change is announced once")
    func said() throws {
        var stage = try Stage.launched()
        #expect(!isUnsaved(stage))
        for unsaved in [true, false, true] {
            stage.forget()
            try stage.perform(.setUnsavedChanges(stage.number, unsaved))
            #expect(isUnsaved(stage) == unsaved && changes(stage) == 1)
            stage.forget()
            try stage.perform(.setUnsavedChanges(stage.number, unsaved))
            #expect(changes(stage) == 0)
        }
        // What the application reported does not change with the mark of a window.
        try show(1, unsaved: true, on: &stage)
        try show(1, unsaved: false, on: &stage)
        #expect(isUnsaved(stage) && changes(stage) == 0)
    }

    private func show(_ window: UInt64, unsaved: Bool?, minimized: Bool = false, on stage: inout Stage) throws
    {
        var report = WindowReport(number: window, process: stage.reported)
        report.minimized = minimized
        report.unsavedChanges = unsaved
        try stage.perform(.updateWindow(report, stage.reporter))
    }

    @Test("one marked window is enough, minimized or not, until its changes are saved or the window is gone")
    func marked() throws {
        var stage = try Stage.launched()
        try show(1, unsaved: nil, on: &stage)
        #expect(!isUnsaved(stage))
        try show(2, unsaved: true, minimized: true, on: &stage)
        #expect(isUnsaved(stage) && changes(stage) == 1)
        // A missing key says nothing.
        try show(2, unsaved: nil, on: &stage)
        try show(1, unsaved: false, on: &stage)
        #expect(isUnsaved(stage) && changes(stage) == 1)
        try stage.perform(.removeWindow(2, stage.reporter))
        #expect(!isUnsaved(stage) && changes(stage) == 2)
    }

    @Test("a rule can ignore the mark of windows, but not what the application itself reports")
    func rule() throws {
        var stage = try Stage.launched()
        try show(1, unsaved: true, on: &stage)
        var rule = Rule()
        rule.unsavedMark = false
        try stage.perform(.configure(stage.number, rule))
        #expect(!isUnsaved(stage))
        try stage.perform(.setUnsavedChanges(stage.number, true))
        #expect(isUnsaved(stage))
        try stage.perform(.setUnsavedChanges(stage.number, false))
        rule.unsavedMark = true
        try stage.perform(.configure(stage.number, rule))
        #expect(isUnsaved(stage))
        try stage.perform(.configure(stage.number, nil))
        #expect(isUnsaved(stage))
    }

    @Test(
        "the record keeps what the application reported, the mark, and the rule",
        arguments: [nil, true, false] as [Bool?])
    func record(mark: Bool?) throws {
        for said in [true, false] {
            var stage = try Stage.launched()
            try stage.perform(.setUnsavedChanges(stage.number, said))
            try show(1, unsaved: true, on: &stage)
            var rule = Rule()
            rule.unsavedMark = mark
            try stage.perform(.configure(stage.number, rule))
            let record = try #require(stage.machine.record(of: stage.number))
            var next = Machine()
            _ = try next.restore(record)
            _ = next.reassert(stage.number, at: stage.now)
            let restored = try #require(next.applications[stage.number])
            #expect(
                restored.saysUnsaved == said && restored.hasUnsavedMark && restored.rule?.unsavedMark == mark)
            #expect(restored.hasUnsavedChanges == stage.application.hasUnsavedChanges)
            #expect(next.record(of: stage.number) == record)
        }
    }

    @Test("applications with unsaved changes are ended last, each with a notice")
    func order() throws {
        var desk = PressureDesk()
        // Suspended for the longest time, and the largest.
        let said = try desk.held(90 << 20)
        let marked = try desk.stopped(80 << 20)
        let others = try (0..<3).map { try desk.held(UInt64(30 - $0) << 20) }
        let stopped = try (0..<3).map { try desk.stopped(UInt64(30 - $0) << 20) }
        let running = try desk.background(20 << 20)
        let late = try desk.background(20 << 20)
        try desk.perform(.setUnsavedChanges(said, true))
        try desk.perform(.setUnsavedChanges(late, true))
        var report = WindowReport(number: 1, process: try desk.process(marked))
        report.minimized = true
        report.unsavedChanges = true
        try desk.perform(.updateWindow(report, Desk.reporter()))
        var order: [ApplicationNumber] = []
        desk.forget()
        desk.runShort()
        for _ in 0..<10 {
            let ended = desk.reclaimed + desk.willReclaim
            #expect(ended.count == 1)
            guard let victim = ended.first else { return }
            #expect(
                desk.notices == ([said, marked, late].contains(victim) ? [.losesUnsaved] : []), "\(victim)")
            order.append(victim)
            desk.forget()
            try desk.exit(victim)
        }
        #expect(order == others + stopped + [running, said, marked, late])
    }
}
