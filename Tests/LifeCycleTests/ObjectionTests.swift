import AppStateContract
import Testing

@testable import LifeCycle

/// What reporters exempt from suspension, for as long as they report it (§ 2).
@Suite("Objections by reporters")
struct ObjectionTests {
    private func tell(
        _ desk: inout Desk, _ rows: [(ReportedProcess, String)],
        by reporter: ReporterIdentity = Desk.reporter()
    ) throws {
        try desk.perform(
            .replaceObjections(rows.map { ObjectionReport(process: $0.0, reason: $0.1) }, reporter))
    }

    /// An application in the background for which no reporter reports windows.
    private func idle(_ desk: inout Desk) throws -> (ApplicationNumber, ReportedProcess) {
        let process = desk.process()
        return (try desk.register(process) { $0.suspension = .automatic }, process)
    }

    private func wait(_ desk: inout Desk) {
        desk.pass(5 * Desk.second)
        desk.settle()
    }

    @Test("an objected application is not suspended, and ListObjections names each reason once")
    func exempt() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        try tell(&desk, [(process, "clipboard"), (process, "audio"), (process, "audio")])
        wait(&desk)
        #expect(desk.state(a) == .background)
        #expect(desk.machine.objections(to: a) == ["reported audio", "reported clipboard"])
        #expect(desk.machine.applications[a]?.backgroundTimeRemaining(at: desk.now) == .max)
    }

    @Test("a new objection resumes an application suspended by policy, but not one suspended on request")
    func late() throws {
        var desk = Desk()
        let (a, first) = try idle(&desk)
        let (b, second) = try idle(&desk)
        try desk.perform(.suspend(b, holder: "uid:1000"))
        wait(&desk)
        #expect(desk.states(a, b) == [.suspended, .suspended])
        try tell(&desk, [(first, "audio"), (second, "audio")])
        desk.settle()
        #expect(desk.states(a, b) == [.background, .suspended])
    }

    @Test("a fresh grace period begins when the last objection is withdrawn")
    func takenBack() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        try tell(&desk, [(process, "audio"), (process, "clipboard")])
        wait(&desk)
        try tell(&desk, [(process, "clipboard")])
        wait(&desk)
        #expect(desk.state(a) == .background)
        try tell(&desk, [])
        desk.pass(4 * Desk.second)
        desk.settle()
        #expect(desk.state(a) == .background, "there are gaps between two pieces of music")
        wait(&desk)
        #expect(desk.state(a) == .suspended)
        #expect(desk.forgotten == [], "it is registered still")
    }

    @Test("a reporter's objections end with its connection; another reporter's for the same process stay")
    func connection() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        try tell(&desk, [(process, "audio")])
        try tell(&desk, [(process, "audio")], by: Desk.reporter(":1.10"))
        desk.handle(.disconnected(":1.9"))
        wait(&desk)
        #expect(desk.state(a) == .background)
        desk.handle(.disconnected(":1.10"))
        wait(&desk)
        #expect(desk.state(a) == .suspended)
        #expect(desk.machine.connections.isEmpty)
    }

    @Test("an objection of a descendant process counts for its application until the process ends")
    func descendant() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        let child = desk.process(below: process)
        try tell(&desk, [(child, "audio")])
        wait(&desk)
        #expect(desk.state(a) == .background)
        desk.handle(.exited(child.lineage[0], .exited))
        #expect(desk.forgotten == [child.lineage[0]])
        wait(&desk)
        #expect(desk.state(a) == .suspended)
    }

    @Test("an objection of an unregistered process is kept, and counts for the nearest registered ancestor")
    func registeredLater() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        let child = desk.process(below: process)
        try tell(&desk, [(child, "audio")])
        let b = try desk.register(child) { $0.suspension = .automatic }
        #expect(desk.machine.objections(to: a) == [])
        #expect(desk.machine.objections(to: b) == ["reported audio"])
        wait(&desk)
        #expect(desk.states(a, b) == [.suspended, .background])
        try desk.perform(.unregister(b))
        desk.settle()
        #expect(desk.state(a) == .background)
        desk.forget()
        try tell(&desk, [])
        #expect(desk.forgotten == [child.lineage[0]])
    }

    @Test("a reporter cannot exempt another user's process, but root can")
    func otherUser() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        try tell(&desk, [(process, "audio")], by: Desk.reporter(":1.10", user: 1001))
        #expect(desk.machine.objections(to: a) == [])
        #expect(!desk.machine.connections.contains(":1.10"))
        try tell(&desk, [(process, "audio")], by: Desk.reporter(":1.11", user: 0))
        #expect(desk.machine.objections(to: a) == ["reported audio"])
    }

    @Test("a restored machine knows the objections and their reporters")
    func restored() throws {
        var desk = Desk()
        let (a, process) = try idle(&desk)
        let child = desk.process(below: process)
        try tell(&desk, [(child, "audio"), (process, "clipboard")])
        wait(&desk)
        let record = try #require(desk.machine.record(of: a))
        var next = Desk()
        next.now = desk.now
        #expect(try next.machine.restore(record) == a)
        #expect(next.machine.reassert(a, at: next.now) == [])
        #expect(next.machine.reportedProcesses == [process.lineage[0], child.lineage[0]])
        #expect(next.machine.connections == [":1.9"])
        #expect(next.machine.objections(to: a) == desk.machine.objections(to: a))
        next.handle(.disconnected(":1.9"))
        wait(&next)
        #expect(next.state(a) == .suspended)
    }
}
