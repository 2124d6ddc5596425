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
}
