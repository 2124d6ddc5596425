import AppStateBus
import AppStateContract
import TestSupport

/// A daemon with an application of root, a client that sees everything, and a polkit that answers what the test wants.
final class PolkitScene {
    let daemon: TestDaemon
    let client: Client
    let polkit: PolkitStandIn
    /// Root's application.
    let path: String
    let process: Child

    init() throws {
        daemon = try TestDaemon(policy: PolkitStandIn.policy)
        client = try daemon.subscriber()
        polkit = try PolkitStandIn(daemon, client)
        process = try Child("sleep", ["1000"])
        path = try client.register("org.example.Roots", process.pid)
    }

    func app(uid: UInt32 = App.nobody) throws -> App { try App(daemon.bus, uid: uid) }

    /// Waits until polkit has been asked this many times; returns the last question.
    @discardableResult
    func question(_ count: Int) throws -> PolkitStandIn.Question {
        try client.wait("question \(count) to polkit") { polkit.questions.count >= count }
        return polkit.questions[count - 1]
    }

    func answer(_ app: App, _ call: Int) throws -> String {
        try client.wait("the answer to call \(call)") { app.answer(to: call) != nil }
        return app.answer(to: call) ?? ""
    }

    /// Calls and returns the words of the answer; polkit can answer meanwhile.
    @discardableResult
    func call(_ app: App, _ words: String, isInteractive: Bool = false) throws -> String {
        try answer(app, try app.begin(words, isInteractive: isInteractive))
    }

    /// After this, every question that the daemon had asked has reached polkit.
    func settle() throws { try client.settle() }
}

/// The words of calls, as AppActor takes them.
enum Words {
    static let list = manager("ListApplications")

    static func manager(_ words: String) -> String { "\(BusNames.root) \(BusNames.manager) \(words)" }

    static func application(_ path: String, _ words: String) -> String {
        "\(path) \(BusNames.application) \(words)"
    }

    static func error(_ name: ErrorName) -> String { "error \(name.rawValue)" }
}
