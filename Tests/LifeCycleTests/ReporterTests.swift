import AppStateContract
import Testing

@testable import LifeCycle

/// Reporters that come, go and report for other sessions; windows of processes below applications (§ 2).
@Suite("Reporters")
struct ReporterTests {
    /// Two applications with a window each; the first has the focus.
    private static func pair() throws -> (
        desk: Desk, mine: ReportedProcess, first: ApplicationNumber, second: ApplicationNumber
    ) {
        var desk = Desk()
        let (mine, other) = (desk.process(), desk.process())
        let (a, b) = (try desk.register(mine), try desk.register(other))
        try desk.update(1, mine, focused: true)
        try desk.update(2, other)
        return (desk, mine, a, b)
    }

    @Test("the windows of a reporter stay after it leaves, until the next one sends a whole set")
    func orphans() throws {
        let (begun, mine, a, b) = try Self.pair()
        var desk = begun
        desk.handle(.disconnected(Desk.reporter().connection))
        #expect(desk.states(a, b) == [.active, .inactive])
        desk.forget()
        let next = Desk.reporter(":1.10")
        try desk.perform(.replaceWindows([Desk.report(7, mine)], next))
        #expect(desk.states(a, b) == [.inactive, .background])
        #expect(desk.forgotten.isEmpty)
    }

    @Test("a reporter of another user or another session takes over nothing")
    func noTakeover() throws {
        for kind in 0..<2 {
            var desk = Desk()
            let mine = desk.process()
            let a = try desk.register(mine)
            try desk.update(1, mine)
            desk.handle(.disconnected(Desk.reporter().connection))
            let next =
                kind == 0
                ? Desk.reporter(":1.10", user: 1001, in: .user(Desk.user))
                : Desk.reporter(":1.10", in: .login("c7"))
            try desk.perform(.replaceWindows([], next))
            try desk.update(1, mine, visible: false, by: next)
            #expect(desk.state(a) == .inactive)
        }
    }

    @Test("root is a lasting reporter of the sessions that it reports on")
    func rootLeaves() throws {
        var desk = Desk()
        let root = Desk.reporter(":1.1", user: 0)
        let (mine, theirs, own) = (desk.process(), desk.process(user: 1001), desk.process(user: 0))
        let a = try desk.register(mine) { $0.suspension = .automatic }
        let b = try desk.register(theirs) { $0.suspension = .automatic }
        let c = try desk.register(own) { $0.suspension = .automatic }
        let gone = "the window reporter of its session is gone"
        func objections() -> [Bool] { [a, b, c].map { desk.machine.objections(to: $0).contains(gone) } }
        try desk.update(1, mine, by: root)
        try desk.update(2, theirs, by: root)
        desk.handle(.disconnected(root.connection))
        #expect(objections() == [true, true, false])
        #expect(desk.states(a, b) == [.inactive, .inactive])

        let next = Desk.reporter(":1.2", user: 0)
        try desk.perform(.replaceWindows([Desk.report(7, mine, minimized: true)], next))
        #expect(objections() == [false, true, false])
        #expect(desk.states(a, b) == [.background, .inactive], "nobody has reported on the other session")
        try desk.update(7, theirs, minimized: true, by: next)
        #expect(objections() == [false, false, false])
    }

    @Test("the next daemon knows whether root has called SetSession")
    func rootAfterRestart() throws {
        for hasCalled in [false, true] {
            var desk = Desk()
            let root = Desk.reporter(":1.1", user: 0)
            let (mine, theirs) = (desk.process(), desk.process(user: 1001))
            let a = try desk.register(mine)
            let b = try desk.register(theirs)
            if hasCalled { try desk.perform(.setSession(.login("c2"), root)) }
            try desk.update(1, mine, focused: true, by: root)
            try desk.update(2, theirs, by: root)
            let records = [a, b].compactMap { desk.machine.record(of: $0) }
            desk.machine = Machine()
            for record in records {
                let number = try desk.machine.restore(record)
                _ = desk.machine.reassert(number, at: desk.now)
            }
            #expect([a, b].compactMap { desk.machine.record(of: $0) } == records)
            try desk.update(2, theirs, focused: true, by: root)
            #expect(desk.states(a, b) == (hasCalled ? [.inactive, .active] : [.active, .active]))
            let session: SessionKey = hasCalled ? .login("c2") : .user(1001)
            #expect(desk.machine.focusedApplication(in: session) == b)
        }
    }

    @Test(
        "policy lifts its holds 10 s after the last reporter of a session is gone, and adds none until the next"
    )
    func lostReporter() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine) { $0.suspension = .automatic }
        try desk.update(1, mine, minimized: true)
        desk.pass(5 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended)
        desk.handle(.disconnected(Desk.reporter().connection))
        desk.pass(10 * Desk.second - 1)
        desk.settle()
        #expect(desk.state(a) == .suspended, "another one may be on its way")
        desk.pass(1)
        desk.settle()
        #expect(desk.state(a) == .background, "nobody could tell that it is wanted")
        desk.pass(3_600 * Desk.second)
        #expect(desk.state(a) == .background)
        #expect(desk.machine.objections(to: a).contains("the window reporter of its session is gone"))
        // The next one reports the objections only after it has reported the windows.
        try desk.perform(.replaceWindows([], Desk.reporter(":1.10")))
        desk.pass(5 * Desk.second - 1)
        #expect(desk.state(a) == .background)
        desk.pass(1)
        desk.settle()
        #expect(desk.state(a) == .suspended)
    }

    @Test(
        "SetFocus gives the focus to a window of the process, or to the process as a whole until it has one")
    func byHand() throws {
        var desk = Desk()
        let (mine, other) = (desk.process(), desk.process())
        let (a, b) = (try desk.register(mine), try desk.register(other))
        try desk.update(1, mine, visible: false)
        try desk.update(2, mine, minimized: true)
        try desk.focus(mine)
        #expect(desk.state(a) == .active)
        #expect(desk.machine.shownWindows(of: a).map(\.state) == [.foregroundActive, .background])
        try desk.focus(other)
        #expect(desk.states(a, b) == [.background, .active])
        try desk.perform(.replaceWindows([Desk.report(1, mine, focused: true)], Desk.reporter()))
        #expect(desk.states(a, b) == [.active, .inactive], "nothing else is known of it")
        try desk.update(3, other, visible: false)
        #expect(desk.states(a, b) == [.active, .background])
    }

    @Test("SetFocus and SetMinimized do not make their caller a lasting reporter")
    func passing() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine) { $0.suspension = .automatic }
        try desk.focus(mine)
        try desk.minimize(mine)
        desk.handle(.disconnected(Desk.reporter().connection))
        desk.pass(5 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended)
        try desk.perform(.removeWindow(9, Desk.reporter()))
        #expect(desk.machine.reporters.isEmpty)
    }

    @Test("SetSession moves the reporter's windows; the session that it leaves has lost nothing")
    func setSession() throws {
        var desk = Desk()
        let mine = desk.process()
        let other = desk.process()
        let a = try desk.register(mine) { $0.suspension = .automatic }
        let b = try desk.register(other)
        try desk.update(1, mine, focused: true)
        try desk.focus(other, by: Desk.reporter(":1.8", in: .login("c2")))
        desk.handle(.session(.login("c2"), inFront: false))
        #expect(desk.states(a, b) == [.active, .background])
        desk.forget()
        try desk.perform(.setSession(.login("c2"), Desk.reporter()))
        #expect(desk.states(a, b) == [.background, .background])
        #expect(desk.focusChanges == [.user(Desk.user)])
        #expect(desk.machine.focusedApplication(in: .login("c2")) == b)
        desk.handle(.session(.login("c2"), inFront: true))
        #expect(desk.states(a, b) == [.inactive, .active])
        try desk.update(1, mine, visible: false)
        desk.pass(5 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .suspended, "nothing is lost")
        desk.handle(.disconnected(Desk.reporter().connection))
        desk.pass(Machine.reporterAbsence)
        desk.settle()
        #expect(desk.state(a) == .background, "now it is")
    }

    @Test("a session that is not in front shows nothing; its focus returns when it is in front again")
    func session() throws {
        var desk = Desk()
        let mine = desk.process()
        let a = try desk.register(mine)
        let assumed = desk.process()
        let b = try desk.register(assumed) { $0.launchMode = .foreground }
        try desk.focus(mine)
        #expect(desk.states(a, b) == [.active, .inactive])
        desk.forget()
        desk.handle(.session(.user(Desk.user), inFront: false))
        #expect(desk.states(a, b) == [.background, .background])
        #expect(desk.focusChanges.isEmpty)
        #expect(desk.machine.applications[a]?.isFocused == true)
        try desk.focus(assumed)
        #expect(desk.states(a, b) == [.background, .background])
        desk.handle(.session(.user(Desk.user), inFront: true))
        #expect(desk.states(a, b) == [.inactive, .active])
        desk.handle(.session(.login("c9"), inFront: true))
        #expect(desk.machine.sessions[.login("c9")] == nil, "of which nothing is known")
    }

    // MARK: Extents

    @Test("a helper's window belongs to the application around it until the helper registers itself")
    func helper() throws {
        var desk = Desk()
        let mine = desk.process()
        let helper = desk.process(below: desk.process(below: mine))
        let a = try desk.register(mine)
        try desk.update(1, helper, focused: true)
        #expect(desk.state(a) == .active)
        desk.forget()
        let b = try desk.register(helper)
        #expect(desk.states(a, b) == [.background, .active])
        #expect(
            desk.edges.firstIndex(of: "1: active→inactive") ?? .max
                < desk.edges.firstIndex(of: "2: inactive→active") ?? -1, "\(desk.edges)")
        #expect(desk.focusChanges == [.user(Desk.user)])
        desk.forget()
        try desk.perform(.unregister(b))
        #expect(desk.state(a) == .active)
        #expect(desk.focusChanges == [.user(Desk.user)])
        #expect(desk.forgotten.isEmpty, "its window is still there")
        desk.handle(.exited(helper.lineage[0], .exited))
        #expect(desk.state(a) == .background)
        #expect(desk.forgotten == [helper.lineage[0]])
    }

    @Test("the nearest registered process owns a window, even if it belongs to another user")
    func nearest() throws {
        var desk = Desk()
        let outer = desk.process()
        let inner = desk.process(below: outer, user: 1001)
        let helper = desk.process(below: inner)
        let a = try desk.register(outer)
        let b = try desk.register(inner)
        try desk.update(1, helper, focused: true)
        #expect(desk.states(a, b) == [.background, .background], "it is not this reporter's to speak of")
        try desk.update(1, helper, focused: true, by: Desk.reporter(":1.1", user: 0, in: .user(1000)))
        #expect(desk.states(a, b) == [.background, .active])
    }
}
