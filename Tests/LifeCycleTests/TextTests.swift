import AppStateContract
import Testing

@testable import LifeCycle

/// The text that the daemon keeps for clients is counted for each user, and limited.
@Suite("Text that the daemon keeps")
struct TextTests {
    private static let user = Desk.user

    private func text(_ bytes: Int) -> String { String(repeating: "x", count: bytes) }

    private func refusal(_ user: UInt32 = TextTests.user) -> Refusal {
        .limitExceeded("bytes of text of user \(user)", limit: Machine.textPerUser)
    }

    private func report(_ window: UInt64, _ process: ReportedProcess, title: String?) -> WindowReport {
        var report = WindowReport(number: window, process: process)
        report.title = title
        return report
    }

    @Test("modes, tasks and window titles count towards one sum, and whatever ends makes room")
    func sum() throws {
        var desk = Desk()
        let process = desk.process()
        let number = try desk.register(process) {
            $0.backgroundModes = [text(600_000)]
            $0.delegate = ":1.1"
        }
        #expect(desk.machine.textByUser == [Self.user: 600_000])
        guard
            case .task(let task) = try desk.perform(
                .beginBackgroundTask(number, name: text(200_000), by: ":1.1"))
        else { throw refusal() }
        try desk.perform(.updateWindow(report(1, process, title: text(200_000)), Desk.reporter()))
        #expect(desk.machine.textByUser == [Self.user: 1_000_000])

        let before = desk.machine
        #expect(throws: refusal()) {
            try desk.perform(.beginBackgroundTask(number, name: text(50_000), by: ":1.1"))
        }
        #expect(throws: refusal()) {
            try desk.perform(.updateWindow(report(2, process, title: text(50_000)), Desk.reporter()))
        }
        let next = desk.process()
        #expect(throws: refusal()) { try desk.register(next) { $0.backgroundModes = [text(50_000)] } }
        #expect(desk.machine == before)

        // In place of the present title.
        try desk.perform(.updateWindow(report(1, process, title: text(240_000)), Desk.reporter()))
        try desk.perform(.endBackgroundTask(number, task: task))
        #expect(desk.machine.textByUser == [Self.user: 840_000])
        try desk.perform(.replaceWindows([report(3, process, title: text(300_000))], Desk.reporter()))
        #expect(desk.machine.textByUser == [Self.user: 900_000])
        try desk.perform(.removeWindow(3, Desk.reporter()))
        try desk.perform(.unregister(number))
        #expect(desk.machine.textByUser == [:])
    }

    @Test(
        "each user has a separate sum: applications count for their user, windows for their reporter's user")
    func users() throws {
        var desk = Desk()
        let process = desk.process(user: 1001)
        try desk.register(process) { $0.backgroundModes = [text(1_000_000)] }
        try desk.perform(
            .updateWindow(report(1, process, title: text(1_000_000)), Desk.reporter(":1.1", user: 0)))
        #expect(desk.machine.textByUser == [1001: 1_000_000, 0: 1_000_000])
        let other = desk.process()
        try desk.register(other) { $0.backgroundModes = [text(1_000_000)] }
    }

    @Test("all users together have a limit, too, but each user may always have a little")
    func allUsers() throws {
        var desk = Desk()
        let all = Refusal.limitExceeded("bytes of text of all users", limit: Machine.textOfAllUsers)
        let least = Machine.leastTextPerUser
        let users = UInt32(1)...8
        var numbers: [ApplicationNumber] = []
        for user in users {
            let process = desk.process(user: user)
            numbers.append(
                try desk.register(process) { $0.backgroundModes = [text(Machine.textPerUser)] })
        }
        let other = desk.process(user: 9)
        #expect(throws: all) { try desk.register(other) { $0.backgroundModes = [text(least + 1)] } }
        let number = try desk.register(other) {
            $0.backgroundModes = [text(least)]
            $0.delegate = ":1.1"
        }
        #expect(throws: all) {
            try desk.perform(.beginBackgroundTask(number, name: text(1), by: ":1.1"))
        }
        // What ends makes room.
        try desk.perform(.unregister(numbers[0]))
        try desk.perform(.beginBackgroundTask(number, name: text(1), by: ":1.1"))
    }

    @Test(
        "text ends with its connection or process, and is counted again after a restart"
    )
    func ends() throws {
        var desk = Desk()
        let process = desk.process()
        let number = try desk.register(process) { $0.backgroundModes = [text(10)] }
        try desk.perform(.beginBackgroundTask(number, name: text(100), by: ":1.1"))
        try desk.perform(.updateWindow(report(1, process, title: text(1_000)), Desk.reporter()))
        let record = try #require(desk.machine.record(of: number))
        var next = Machine()
        _ = try next.restore(record)
        // A record keeps the first 128 scalars of a title.
        #expect(next.textByUser == [Self.user: 10 + 100 + 128])
        desk.take(.disconnected(":1.1"))
        #expect(desk.machine.textByUser == [Self.user: 1_010])
        desk.take(.exited(process.lineage[0], .exited))
        #expect(desk.machine.textByUser == [:])
    }
}
