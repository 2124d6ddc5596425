import AppStateContract
import Testing

@testable import LifeCycle

/// The ends of background transfers.
@Suite("Ends of transfers")
struct TransferTests {
    private func end(_ id: String) -> Announcement { .backgroundTransferFinished(id, result: []) }

    private func told(_ stage: Stage) -> Int {
        stage.heard(.delegate).count { $0.signal == .backgroundTransferFinished }
    }

    @Test(
        "the end of a transfer resumes what policy has suspended, with a background task until it is dealt with"
    )
    func resumed() throws {
        var settings = Settings()
        settings.backgroundGrace = 1_000
        var stage = try Stage.launched(suspension: .automatic, settings)
        try stage.minimize()
        stage.now += 1_000_000
        stage.handle(.timePassed)
        stage.handle(.stopCompleted(stage.number))
        #expect(stage.state == .suspended)
        try stage.perform(.deliver(stage.number, [end("7")], "transfer"))
        stage.handle(.resumeCompleted(stage.number, StopReading(signal: .none)))
        #expect(stage.state == .background)
        #expect(told(stage) == 1)
        #expect(stage.application.tasks.map(\.name) == ["transfer 7"])
        try stage.perform(.finishTransfer(stage.number, id: "7"))
        #expect(stage.application.tasks == [])
        #expect(throws: Refusal.noSuchTransfer(stage.number, "7")) {
            try stage.perform(.finishTransfer(stage.number, id: "7"))
        }
    }

    @Test("the end of a transfer is told once, also by the next daemon")
    func once() throws {
        var stage = try Stage.launched()
        try stage.perform(.deliver(stage.number, [end("7")], "transfer"))
        try stage.perform(.finishTransfer(stage.number, id: "7"))
        try stage.perform(.deliver(stage.number, [end("7"), end("8")], "transfer"))
        #expect(told(stage) == 2)
        let restored = try Application(stage.application.record())
        #expect(restored.transfers == ["7", "8"])
        #expect(restored.tasks.map(\.name) == ["transfer 8"])
    }

    @Test("the task of a transfer survives its delegate, and ends at its limit")
    func limited() throws {
        var stage = try Stage.launched(suspension: .automatic)
        try stage.minimize()
        try stage.perform(.deliver(stage.number, [end("7")], "transfer"))
        stage.handle(.disconnected(Stage.delegate))
        #expect(stage.application.tasks.count == 1)
        stage.now = stage.application.tasks[0].deadline
        stage.handle(.timePassed)
        #expect(stage.application.tasks == [])
    }

    @Test("an application that is launched for the end of a transfer is told once it has launched")
    func launched() throws {
        var stage = try Stage.launched(delegate: false) {
            $0.launched = true
            $0.launchMode = .background
            $0.deliveries = [end("7")]
        }
        try stage.perform(.becomeDelegate(stage.number, Stage.delegate))
        #expect(told(stage) == 1)
        #expect(stage.application.tasks.map(\.name) == ["transfer 7"])
    }

    @Test(
        "the end of a transfer is refused if its user has too many background tasks, and nothing has changed")
    func tooMany() throws {
        var settings = Settings()
        settings.limits.backgroundTasksPerUser = 1
        var stage = try Stage.launched(settings)
        try stage.perform(.deliver(stage.number, [end("1")], "transfer"))
        let user = stage.application.user
        let refusal = Refusal.limitExceeded(
            "background tasks and scheduled launches of user \(user)", limit: 1)
        #expect(throws: refusal) {
            try stage.perform(.deliver(stage.number, [end("2")], "transfer"))
        }
        #expect(stage.application.transfers == ["1"])
    }
}
