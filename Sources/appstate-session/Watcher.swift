import Systemd

/// Watches one thing: it starts when it is made, and stops when it is released. It tells the agent what it finds:
/// processes that must not be suspended (`Objections.set`), and applications that are needed (`DaemonConnection.need`).
protocol Watcher: AnyObject {
    /// Takes what all watchers need to know, at the beginning and whenever it changes.
    func follow(_ situation: Situation)
}

extension Watcher {
    func follow(_ situation: Situation) {}
}

/// What watchers need to know.
struct Situation: Equatable {
    var applications = Applications()
    /// A monitor of the session bus sees calls to suspended applications.
    var seesCalls = true
}

/// Watchers that start and stop together.
final class Watchers {
    private let journal: Journal
    private var running: [any Watcher] = []
    /// What is not watched, because it could not be.
    private(set) var missing: [String] = []

    init(journal: Journal) { self.journal = journal }

    /// Starts a watcher. One that cannot start is logged once, and the others go on without it.
    ///
    /// - Parameter subject: what it watches, for the user.
    func start(_ subject: String, in situation: Situation, _ make: () throws -> any Watcher) {
        do {
            let watcher = try make()
            watcher.follow(situation)
            running.append(watcher)
        } catch {
            missing.append(subject)
            journal.log(.notice, "not watched: \(subject): \(error)")
        }
    }

    func follow(_ situation: Situation) {
        for watcher in running { watcher.follow(situation) }
    }

    func stop() { (running, missing) = ([], []) }
}
