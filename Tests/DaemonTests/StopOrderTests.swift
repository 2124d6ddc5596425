import AppStateContract
import Glibc
import Linux
import TestSupport
import Testing

/// Freezes, stops and requests of different users, in every order. An application that is stopped has a hold on record,
/// and runs once all users have resumed it.
@Suite(
    "Stops in every order", .enabled(if: App.canBeOthers, App.whatOthersNeed),
    .enabled(if: TestCgroup.isAvailable, Comment(rawValue: TestCgroup.whatIsMissing)))
struct StopOrderTests {
    private enum Step: String, CaseIterable {
        case freeze
        case stop = "SIGSTOP"
        case `continue` = "SIGCONT"
        case suspend = "root's Suspend"
        case resume = "root's Resume"
        case ownResume = "the owner's Resume"
    }

    /// An application of the user nobody in a cgroup of its own.
    private final class Scene {
        let daemon: TestDaemon
        let root: Client
        let owner: App
        let home: TestCgroup
        let child: Child
        let path: String

        init() throws {
            daemon = try TestDaemon()
            root = try daemon.subscriber()
            owner = try App(daemon.bus, uid: App.nobody)
            home = try TestCgroup("app-orders", owner: App.nobody)
            child = try Child("sleep", ["1000"], uid: App.nobody)
            try home.take(child.pid)
            path = try root.register("org.example.App", child.pid)
        }

        func take(_ step: Step) throws {
            switch step {
            // Wait until the step has worked: a Resume that comes first would have nothing to lift.
            case .freeze:
                try home.cgroup.freeze()
                try root.wait("the freeze") { try home.cgroup.isFrozen() }
            case .stop:
                child.kill(SIGSTOP)
                try root.wait("the stop") { try stands }
            case .continue: child.kill(SIGCONT)
            case .suspend: try root.application(path, "Suspend")
            case .resume: try root.application(path, "Resume")
            case .ownResume: try owner.application(path, "Resume")
            }
        }

        var stands: Bool {
            get throws { try isStopped(child.pid) || home.cgroup.isFrozen() }
        }

        /// Whether the state is correct, and the application has a hold exactly when it is stopped or frozen.
        var isTrue: Bool {
            get throws {
                let stands = try stands
                return try stands == (root.state(path) == "suspended") && stands != root.holds(path).isEmpty
            }
        }
    }

    @Test("after any four of six steps in any order, the application runs once both users resume it")
    func orders() throws {
        let scene = try Scene()
        var taken: [Step] = []
        func wait(_ what: String, until done: () throws -> Bool) throws {
            do {
                try scene.root.wait(what, until: done)
            } catch {
                let order = taken.map(\.rawValue).joined(separator: ", ")
                throw TestFailure("\(order): \(error); \(try scene.root.explain(scene.path))")
            }
        }
        func play(_ steps: [Step]) throws {
            for step in steps {
                try scene.take(step)
                try wait("a correct state after \(step.rawValue)") { try scene.isTrue }
            }
        }
        func goOn() throws {
            for step in Step.allCases where !taken.contains(step) {
                taken.append(step)
                defer { taken.removeLast() }
                guard taken.count == 4 else {
                    try goOn()
                    continue
                }
                try play(taken + [.resume, .ownResume])
                try wait("the application to run") { try !scene.stands }
            }
        }
        try goOn()
    }
}
