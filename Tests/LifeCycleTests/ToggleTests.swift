import AppStateContract
import Testing

@testable import LifeCycle

/// An application that is suspended until it gets the focus.
@Suite("Toggle")
struct ToggleTests {
    private func toggled() throws -> Stage {
        var stage = try Stage.launched()
        try stage.focus()
        try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000"))
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
        #expect(stage.effects.contains(.resume(stage.number)))
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
        stage.handle(.needed(stage.number, "call by pid 7"))
        stage.settle()
        #expect(stage.state == .suspended)
        try stage.perform(.resume(stage.number, holder: "uid:1000"))
        stage.settle()
        #expect(stage.state == .active && stage.holds.isEmpty)
    }

    @Test("an application that is being terminated cannot be toggled")
    func terminating() throws {
        var stage = try Stage.launched()
        try stage.perform(.terminate(stage.number, force: false))
        #expect(throws: Refusal.self) {
            try stage.perform(.suspendUntilFocused(stage.number, holder: "uid:1000"))
        }
    }

    @Test("an application that is being launched is not suspended: it never becomes suspended")
    func launching() throws {
        var stage = Stage()
        try stage.register()
        try #require(stage.application.isLaunching)
        for request: Request in [
            .suspend(stage.number, holder: "uid:0"), .suspendUntilFocused(stage.number, holder: "uid:0"),
        ] {
            #expect(
                throws: Refusal.notSuspendable(stage.number, "it is being launched")
            ) { try stage.perform(request) }
        }
        #expect(stage.holds.isEmpty)
        try stage.perform(.finishLaunching(stage.number, by: Stage.delegate))
        try stage.perform(.suspend(stage.number, holder: "uid:0"))
        stage.settle()
        #expect(stage.state == .suspended)
    }
}
