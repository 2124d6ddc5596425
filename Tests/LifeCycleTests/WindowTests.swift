import AppStateContract
import Testing

@testable import LifeCycle

/// The effect of window reports on applications (§ 2; Reporter in the D-Bus API).
@Suite("Windows")
struct WindowTests {
    @Test("one application has a session's focus, and the loser is notified before the winner")
    func oneFocus() throws {
        var desk = Desk()
        let first = desk.process()
        let second = desk.process()
        let a = try desk.register(first)
        let b = try desk.register(second)
        for (loser, winner) in [(first, second), (second, first)] {
            try desk.focus(loser)
            desk.forget()
            try desk.focus(winner)
            let numbers = winner == second ? (a, b) : (b, a)
            #expect(
                desk.edges.firstIndex(of: "\(numbers.0): active→inactive") ?? .max
                    < desk.edges.firstIndex(of: "\(numbers.1): inactive→active") ?? -1, "\(desk.edges)")
            #expect(desk.focusChanges == [.user(Desk.user)])
        }
    }

    @Test("focus that moves with a window to another process is lost before it is gained")
    func focusMovesWithWindow() throws {
        var desk = Desk()
        let first = desk.process()
        let second = desk.process()
        let a = try desk.register(first)
        let b = try desk.register(second)
        try desk.update(1, second, focused: true)
        desk.forget()
        try desk.update(1, first)
        #expect(desk.states(a, b) == [.active, .background])
        #expect(desk.edges.first == "2: active→inactive", "\(desk.edges)")
        #expect(desk.focusChanges == [.user(Desk.user)])
    }

    @Test(
        "focus on an unregistered process, on none or on another user's takes the focus from our applications"
    )
    func focusElsewhere() throws {
        for kind in 0..<3 {
            var desk = Desk()
            let mine = desk.process()
            let a = try desk.register(mine)
            let stranger = desk.process()
            let foreign = desk.process(user: 1001)
            let b = try desk.register(foreign) { $0.session = .user(1001) }
            try desk.focus(mine)
            try desk.focus(foreign, by: Desk.reporter(":1.10", user: 1001))
            #expect(desk.states(a, b) == [.active, .active], "each session has a focus of its own")
            desk.forget()
            try desk.focus([nil, stranger, foreign][kind])
            #expect(desk.states(a, b) == [.inactive, .active])
            #expect(desk.focusChanges == [.user(Desk.user)])
        }
    }

    @Test("root gives the focus in the session of the process, and takes it in every session")
    func rootFocus() throws {
        var desk = Desk()
        let mine = desk.process()
        let theirs = desk.process(user: 1001)
        let a = try desk.register(mine)
        let b = try desk.register(theirs)
        let root = Desk.reporter(":1.1", user: 0)
        try desk.focus(mine, by: root)
        try desk.focus(theirs, by: root)
        #expect(desk.states(a, b) == [.active, .active])
        desk.forget()
        try desk.focus(nil, by: root)
        #expect(desk.states(a, b) == [.inactive, .inactive])
        #expect(desk.focusChanges == [.user(1000), .user(1001)], "in an order that is always the same")
    }

    @Test("root's windows are in the sessions of their processes, until it calls SetSession")
    func rootWindows() throws {
        var desk = Desk()
        let other = SessionKey.login("c2")
        let (mine, theirs) = (desk.process(), desk.process(user: 1001, in: other))
        let a = try desk.register(mine)
        let b = try desk.register(theirs)
        let root = Desk.reporter(":1.1", user: 0)
        try desk.perform(
            .replaceWindows(
                [Desk.report(1, mine, focused: true), Desk.report(2, theirs, focused: true)], root))
        #expect(desk.states(a, b) == [.active, .active], "each session has a focus of its own")
        #expect(desk.machine.focusedApplication(in: .user(0)) == nil)
        desk.handle(.session(other, inFront: false))
        #expect(desk.states(a, b) == [.active, .background])
        desk.handle(.session(other, inFront: true))
        #expect(desk.states(a, b) == [.active, .active])

        // A number that is used for a window in another session.
        try desk.update(2, mine, visible: false, by: root)
        #expect(desk.states(a, b) == [.active, .background])
        #expect(desk.machine.focusedApplication(in: other) == nil)
        try desk.update(1, mine, focused: false, by: root)
        #expect(desk.states(a, b) == [.inactive, .background])
        try desk.perform(.replaceWindows([Desk.report(3, theirs)], root))
        #expect(desk.states(a, b) == [.background, .inactive])

        try desk.perform(.setSession(other, root))
        desk.handle(.session(other, inFront: false))
        try desk.update(1, mine, focused: true, by: root)
        #expect(desk.machine.focusedApplication(in: other) == a)
        #expect(desk.states(a, b) == [.background, .background])
    }

    @Test("SetFocus restores a minimized window, and SetMinimized takes the focus away")
    func minimizedAndFocus() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine)
        try desk.focus(mine)
        desk.forget()
        try desk.minimize(mine)
        #expect(desk.state(a) == .background)
        #expect(desk.machine.focusedApplication(in: .user(Desk.user)) == nil)
        #expect(desk.focusChanges == [.user(Desk.user)])
        #expect(desk.machine.applications[a]?.isMinimized == true)
        try desk.minimize(mine, false)
        #expect(desk.state(a) == .inactive, "the focus does not come back by itself")
        try desk.minimize(mine)
        try desk.focus(mine)
        #expect(desk.state(a) == .active)
        #expect(desk.machine.applications[a]?.isMinimized == false)
    }

    @Test("keys that are missing in a report keep their value; a new window is visible but not focused")
    func partialKeys() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine)
        try desk.update(1, mine)
        #expect(desk.state(a) == .inactive)
        try desk.update(1, mine, visible: false)
        try desk.update(1, mine)
        #expect(desk.state(a) == .background)
        try desk.update(1, mine, minimized: true)
        try desk.update(1, mine, visible: true)
        #expect(desk.state(a) == .background)
        try desk.update(1, mine, minimized: false)
        #expect(desk.state(a) == .inactive)
        try desk.update(1, mine, focused: true)
        try desk.update(1, mine, visible: true)
        #expect(desk.state(a) == .active)
    }

    @Test("the most visible window determines the state of an application")
    func highest() throws {
        var desk = Desk()
        let mine = desk.process()
        let other = desk.process()
        let a = try desk.register(mine)
        try desk.update(1, mine, visible: false)
        try desk.update(2, mine, visible: true)
        try desk.update(3, mine, minimized: true)
        #expect(desk.state(a) == .inactive)
        #expect(desk.machine.applications[a]?.isMinimized == false, "one of them is not minimized")
        try desk.update(1, mine, focused: true)
        #expect(desk.state(a) == .active)
        try desk.focus(other)
        #expect(desk.state(a) == .inactive)
        try desk.perform(.removeWindow(2, Desk.reporter()))
        #expect(desk.state(a) == .background)
        try desk.perform(.removeWindow(1, Desk.reporter()))
        #expect(desk.machine.applications[a]?.isMinimized == true)
        try desk.perform(.removeWindow(1, Desk.reporter()))
        #expect(desk.state(a) == .background)
    }

    @Test("removing a focused window takes the focus away, and gives it to no other window")
    func removeFocused() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine)
        try desk.update(1, mine, focused: true)
        try desk.update(2, mine)
        desk.forget()
        try desk.perform(.removeWindow(1, Desk.reporter()))
        #expect(desk.state(a) == .inactive)
        #expect(desk.focusChanges == [.user(Desk.user)])
    }

    @Test("a whole set replaces all windows of its reporter in one step")
    func replace() throws {
        var desk = Desk()
        let first = desk.process()
        let second = desk.process()
        let a = try desk.register(first)
        let b = try desk.register(second)
        try desk.update(1, first, focused: true)
        try desk.update(2, second)
        desk.forget()
        try desk.perform(.replaceWindows([Desk.report(3, first, focused: true)], Desk.reporter()))
        #expect(desk.states(a, b) == [.active, .background])
        #expect(desk.edges == ["2: inactive→background"], "\(desk.edges)")
        #expect(desk.focusChanges.isEmpty, "the same application has it")
        try desk.perform(.replaceWindows([], Desk.reporter()))
        #expect(desk.states(a, b) == [.background, .background])
    }

    @Test("a process is forgotten when its last window is gone, and not before")
    func forgets() throws {
        var desk = Desk()
        let process = desk.process()
        let other = desk.process()
        try desk.update(1, process)
        try desk.perform(.replaceWindows([Desk.report(2, process)], Desk.reporter()))
        #expect(desk.forgotten.isEmpty, "one window took the place of the other")
        try desk.update(2, other)
        #expect(desk.forgotten == [process.lineage[0]], "its only window is another process's now")
        desk.forget()
        desk.handle(.exited(other.lineage[0], .exited))
        #expect(desk.forgotten == [other.lineage[0]])
    }

    @Test("window reports replace what was reported for the process as a whole")
    func wholeGivesWay() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine)
        try desk.minimize(mine)
        try desk.update(1, mine)
        #expect(desk.state(a) == .inactive)
        try desk.focus(mine)
        try desk.update(1, mine, visible: true)
        #expect(desk.state(a) == .active, "the focus that SetFocus gave stays with the process")
        try desk.update(1, mine, focused: false)
        #expect(desk.state(a) == .inactive)
        try desk.focus(mine)
        try desk.focus(nil)
        try desk.update(1, mine, visible: false)
        #expect(desk.state(a) == .background)
    }

    @Test("a reporter's windows are limited, and its own whole set may replace them")
    func windowsOfReporter() throws {
        var desk = Desk(windowsPerUser: 10_000)
        let mine = desk.process()
        try desk.register(mine)
        let limit = UInt64(Machine.windowsPerReporter)
        for number in 0..<limit { try desk.update(number, mine) }
        #expect(throws: Refusal.self) { try desk.update(limit, mine) }
        #expect(throws: Refusal.self) {
            try desk.perform(.replaceWindows((0...limit).map { Desk.report($0, mine) }, Desk.reporter()))
        }
        try desk.update(3, mine, visible: false)
        try desk.perform(.replaceWindows((limit..<2 * limit).map { Desk.report($0, mine) }, Desk.reporter()))
        try desk.update(1, mine, by: Desk.reporter(":1.10"))
        #expect(desk.machine.windows.count == Int(limit) + 1)
    }

    @Test("another user's windows count for no application, and take the focus from ours")
    func foreignWindows() throws {
        var desk = Desk()
        let mine = desk.process()
        let foreign = desk.process(user: 1001)
        let a = try desk.register(mine)
        let b = try desk.register(foreign)
        try desk.update(1, foreign, visible: true, by: Desk.reporter(":1.10", user: 1001))
        try desk.update(1, mine, focused: true)
        try desk.update(2, foreign, focused: true)
        #expect(desk.states(a, b) == [.inactive, .inactive])
        try desk.update(3, foreign)
    }
}
