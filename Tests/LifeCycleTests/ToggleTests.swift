import AppStateContract
import Testing

@testable import LifeCycle

/// An application that is suspended until it gets the focus.
@Suite("Toggle")
struct ToggleTests {
    private func toggled(minimizing: Bool = false) throws -> Stage {
        var stage = try Stage.launched()
        try stage.focus()
        try stage.perform(
            .suspendUntilFocused(stage.number, holder: "uid:1000", minimizing: minimizing))
        stage.settle()
        try #require(stage.state == .suspended)
        #expect(stage.holds == [.toggle])
        return stage
    }

    @Test(
        "a toggled application stays suspended with its present focus, and runs when it gets the focus again")
    func focus() throws {
        var stage = try toggled()
        try stage.focus()
        stage.settle()
        #expect(stage.state == .suspended)
        try stage.unfocus()
        stage.settle()
        #expect(stage.state == .suspended)
        stage.forget()
        try stage.focus()
        #expect(stage.effects.contains(.resume(stage.number, sparingMain: false)))
        stage.settle()
        #expect(stage.state == .active && stage.holds.isEmpty)
    }

    @Test("another hold remains when the application gets the focus")
    func others() throws {
        var stage = try toggled()
        try stage.perform(.suspend(stage.number, holder: "uid:0"))
        try stage.unfocus()
        try stage.focus()
        stage.settle()
        #expect(stage.state == .suspended && stage.holds == [.request])
    }

    @Test("a Resume ends the hold, a demand does not")
    func resumed() throws {
        var stage = try toggled()
        stage.take(.needed(stage.number, "call by pid 7"))
        stage.settle()
        #expect(stage.state == .suspended)
        try stage.perform(.resume(stage.number, holder: "uid:1000"))
        stage.settle()
        #expect(stage.state == .active && stage.holds.isEmpty)
    }

    @Test("each reporter is asked to minimize its own windows that are not minimized")
    func minimizing() throws {
        var stage = try Stage.launched()
        let other = ReporterIdentity(
            connection: ":1.10", user: Stage.user, session: .user(Stage.user))
        for number in UInt64(1)...3 {
            var report = WindowReport(number: number, process: stage.reported)
            report.minimized = number == 2
            try stage.perform(.updateWindow(report, stage.reporter))
        }
        try stage.perform(.updateWindow(WindowReport(number: 9, process: stage.reported), other))
        stage.forget()
        try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000", minimizing: true))
        let asked = stage.effects.filter { if case .minimize = $0 { true } else { false } }
        #expect(asked.count == 2)
        #expect(asked.contains(.minimize(":1.9", [1, 3])) && asked.contains(.minimize(":1.10", [9])))
    }

    @Test("an application that is being terminated cannot be toggled")
    func terminating() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(throws: Refusal.self) {
            try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000", minimizing: false))
        }
    }
}
