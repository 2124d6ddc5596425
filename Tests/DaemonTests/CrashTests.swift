import AppStateBus
import AppStateContract
import Foundation
import Glibc
import Linux
import TestSupport
import Testing

/// The daemon is killed again and again, at any moment, while everything happens. APPSTATED_SOAK=1: 300 times. Kills
/// while memory is short are in PressureTests.
@Suite("Crashes", .enabled(if: App.isAvailable, "needs dbus-daemon, appstated and AppActor"))
struct CrashTests {
    private static let isLong = ProcessInfo.processInfo.environment["APPSTATED_SOAK"] == "1"

    @Test(
        "kills at random moments lose no application and no end, and leave nothing stopped without a hold"
    )
    func churn() throws {
        let seed = Generator.chosenSeed
        let count = Self.isLong ? 300 : 25
        print("\(count) crashes: APPSTATED_SEED=\(seed)")
        let churn = try Churn(Generator(seed: seed))
        for crash in 0..<count {
            try churn.live()
            try churn.crash()
            let wrong = try churn.compare()
            #expect(wrong == [], "crash \(crash)")
            guard wrong.isEmpty else { return }
        }
        try churn.finish()
        #expect(churn.violations == [])
        print("crashes: \(churn.deeds) deeds, \(churn.edges) edges seen by the subscriber")
    }
}

/// Twenty applications to which everything is done, what is known to have been done to each, and one subscriber
/// that starts over with each daemon.
private final class Churn {
    /// A call that was answered is in force. A call that was under way when the daemon died may be in force or not.
    private enum Known: Equatable {
        case yes, no, maybe
    }

    private final class Subject {
        let process: Child
        /// Policy suspends it in the background. Its process may be stopped at any moment, so it is asked nothing.
        let isAutomatic: Bool
        /// The child processes that it has made.
        let children: [Int32]
        /// Whether `Terminate` was called.
        var ending = Known.no
        let path: String
        var request = Known.no
        /// Whether another process stopped it with SIGSTOP or froze its cgroup.
        var foreign = Known.no
        private var isFrozenByOthers = false
        var minimized = Known.maybe
        var tasks: [UInt64: UInt64] = [:]
        let actor: App?
        /// Its own cgroup, if it has one and is frozen with it.
        let home: TestCgroup?

        init(
            _ process: Child, _ path: String, _ actor: App?, _ home: TestCgroup?, isAutomatic: Bool = false,
            children: [Int32] = []
        ) {
            self.process = process
            self.path = path
            self.actor = actor
            self.home = home
            self.isAutomatic = isAutomatic
            self.children = children
        }

        /// Stops it as another process would, by either means. What we have frozen already cannot be frozen again.
        func stopByOthers(byFreezer: Bool) throws {
            if byFreezer, let home, try !home.cgroup.wantsFrozen() {
                try home.cgroup.freeze()
                isFrozenByOthers = true
            } else {
                process.kill(SIGSTOP)
            }
        }

        func continueByOthers() throws {
            process.kill(SIGCONT)
            if isFrozenByOthers { try home?.cgroup.thaw() }
            isFrozenByOthers = false
        }

        /// Ends another's freeze of it once its process has ended.
        func leave() throws {
            if isFrozenByOthers, hasEnded { try home?.cgroup.thaw() }
        }

        var hasEnded: Bool {
            let state = try? Proc().stat(process.pid).state
            return state == nil || state == .zombie || state == .dead
        }

        /// Its children and the processes of its cgroup that are stopped, and its cgroup if that is frozen.
        var reading: [String] {
            get throws {
                let neighbours = try home?.cgroup.processes() ?? []
                let isFrozen = try home?.cgroup.wantsFrozen() == true
                return Set(children + neighbours).filter { (try? isStopped($0)) == true }
                    .map { "process \($0)" } + (isFrozen ? ["its cgroup"] : [])
            }
        }

        var stands: Bool {
            get throws { try isStopped(process.pid) || home?.cgroup.isFrozen() == true }
        }
    }

    private static let size = 20

    private let daemon: TestDaemon
    private let client: Client
    private var subscriber: Client
    private var subjects: [Subject] = []
    /// Subjects that have ended or are no longer applications.
    private var former: [Subject] = []
    private var dice: Generator
    /// Each application's state as the subscriber knows it: what it read when it subscribed, and every edge since.
    private var told: [String: String] = [:]
    private var heard = 0
    /// `memory.low` of the slices above the applications' own cgroups, before any daemon has set it.
    private let ownProtection = Churn.protection
    private(set) var violations: [String] = []
    private(set) var deeds = 0
    private(set) var edges = 0

    init(_ dice: Generator) throws {
        self.dice = dice
        daemon = try TestDaemon(
            configuration:
                "[LifeCycle]\nBackgroundTaskMaxSec=1h\nBackgroundGraceSec=50ms\nTerminateGraceSec=200ms\n")
        client = try daemon.client()
        subscriber = try daemon.subscriber()
        for _ in 0..<Self.size { try spawn() }
        try begin()
    }

    private func spawn() throws {
        let home = TestCgroup.isAvailable && Bool.random(using: &dice) ? try TestCgroup("app-churn") : nil
        guard Int.random(in: 0..<2, using: &dice) == 0 else {
            let process = try Child("sleep", ["10000"])
            try home?.take(process.pid)
            let path = try client.register("org.example.Sleeper", process.pid)
            subjects.append(Subject(process, path, nil, home))
            return
        }
        let isAutomatic = Bool.random(using: &dice)
        let actor = try App(daemon.bus)
        try home?.take(actor.pid)
        let children = [try actor.make("fork")]
        let suspension = isAutomatic ? "automatic" : "manual"
        let path = try actor.register(
            "org.example.Actor", "suspension=s:\(suspension),launch-mode=s:background")
        let finish = "call \(path) \(BusNames.application) FinishLaunching"
        // It may be stopped before it has read the answer.
        if isAutomatic { actor.tell(finish) } else { try actor.ask(finish) }
        try client.wait("the launch") { try client.state(path) != "not-running" }
        subjects.append(
            Subject(actor.process, path, actor, home, isAutomatic: isAutomatic, children: children))
    }

    /// Waits until a subject that has ended, or is about to, is gone, and puts another in its place.
    private func replace(_ subject: Subject) throws {
        try client.wait("the end of \(subject.path)") {
            try subject.hasEnded && !client.list().contains { $0.hasPrefix(subject.path + " ") }
        }
        try retire(subject)
        try spawn()
    }

    private func retire(_ subject: Subject) throws {
        try subject.leave()
        subjects.removeAll { $0 === subject }
        former.append(subject)
    }

    // MARK: Deeds

    func live() throws {
        for _ in 0..<8 {
            guard let subject = subjects.randomElement(using: &dice) else { return }
            try act(subject)
        }
        // Ends one subject and puts another in its place.
        guard let subject = subjects.randomElement(using: &dice) else { return }
        switch Int.random(in: 0..<6, using: &dice) {
        case 0:
            subject.process.kill(SIGKILL)
            try replace(subject)
        case 1:
            try client.terminate(subject.path, force: Bool.random(using: &dice))
            try replace(subject)
        case 2 where subject.foreign == .no:
            try client.application(subject.path, "Unregister")
            try retire(subject)
            try spawn()
        default: break
        }
    }

    /// Does one thing, and waits for the answer.
    private func act(_ subject: Subject) throws {
        deeds += 1
        switch Int.random(in: 0..<8, using: &dice) {
        case 0:
            try client.setFocus(subject.process.pid)
            subject.minimized = .no
        case 1, 2:
            let minimized = Bool.random(using: &dice)
            try client.setMinimized(subject.process.pid, minimized)
            subject.minimized = minimized ? .yes : .no
        case 3:
            do {
                try client.application(subject.path, "Suspend")
                subject.request = .yes
            } catch let failure as BusFailure where failure.name == ErrorName.notSuspendable.rawValue {}
        case 4:
            try client.application(subject.path, "Resume")
            subject.request = .no
            subject.foreign = .no
        case 5 where !subject.isAutomatic:
            try subject.stopByOthers(byFreezer: Bool.random(using: &dice))
            subject.foreign = .yes
            try settleStop(subject)
        case 6 where !subject.isAutomatic:
            try subject.continueByOthers()
            subject.foreign = .no
            try settleStop(subject)
        default:
            guard let actor = subject.actor, !subject.isAutomatic, subject.request == .no,
                subject.foreign == .no,
                let id = UInt64(
                    try actor.application(subject.path, "BeginBackgroundTask s:work").filter(\.isNumber))
            else { return }
            subject.tasks[id] = try deadlines(subject)[id]
        }
    }

    private func settleStop(_ subject: Subject) throws {
        let wanted = subject.foreign == .yes || subject.request == .yes
        do {
            try client.wait("\(subject.path) to be stopped: \(wanted)") {
                try subject.stands == wanted
                    && (try client.state(subject.path) == "suspended") == wanted
            }
        } catch {
            throw TestFailure(
                "\(error); it is stopped: \(try subject.stands); \(try client.explain(subject.path))")
        }
    }

    private func deadlines(_ subject: Subject) throws -> [UInt64: UInt64] {
        guard case .array(_, let rows) = try client.property(subject.path, "BackgroundTasks") else {
            return [:]
        }
        var found: [UInt64: UInt64] = [:]
        for case .structure(let row) in rows {
            if case .uint64(let id) = row[0], case .uint64(let deadline) = row[2] { found[id] = deadline }
        }
        return found
    }

    // MARK: The end of the daemon

    /// Makes calls without waiting for the answers, and kills the daemon somewhere among them.
    func crash() throws {
        for subject in subjects.shuffled(using: &dice).prefix(10) {
            deeds += 1
            switch Int.random(in: 0..<6, using: &dice) {
            case 5:
                let isForced = Bool.random(using: &dice)
                try send(subject.path, BusNames.application, "Terminate") { try $0.append(isForced) }
                subject.ending = .maybe
            case 0:
                try send(BusNames.root, BusNames.reporter, "SetFocus") {
                    try $0.append(UInt32(subject.process.pid))
                }
                subject.minimized = .maybe
            case 1:
                try send(BusNames.root, BusNames.reporter, "SetMinimized") {
                    try $0.append(UInt32(subject.process.pid))
                    try $0.append(true)
                }
                subject.minimized = .maybe
            case 2:
                try send(subject.path, BusNames.application, "Suspend")
                if subject.request != .yes { subject.request = .maybe }
            case 3:
                try send(subject.path, BusNames.application, "Resume")
                if subject.request != .no { subject.request = .maybe }
                if subject.foreign != .no { subject.foreign = .maybe }
            default:
                try subject.stopByOthers(byFreezer: Bool.random(using: &dice))
                subject.foreign = .maybe
            }
        }
        // The random moment is what is tested here, so nothing is awaited. Some moments are as late as the ends are.
        let latest = Int.random(in: 0..<4, using: &dice) == 0 ? 250_000_000 : 3_000_000
        var moment = timespec(tv_sec: 0, tv_nsec: Int.random(in: 0..<latest, using: &dice))
        nanosleep(&moment, nil)
        try daemon.end(SIGKILL)
        try subscriber.settleWithoutService()
        hear()
        try meanwhile()
        try daemon.start()
        subscriber = try daemon.subscriber()
        try begin()
    }

    private func meanwhile() throws {
        guard let subject = subjects.randomElement(using: &dice) else { return }
        switch Int.random(in: 0..<4, using: &dice) {
        case 0:
            try subject.stopByOthers(byFreezer: Bool.random(using: &dice))
            subject.foreign = .maybe
        case 1:
            // If no daemon sees a stop end, it is not known whose stop it was.
            try subject.continueByOthers()
            if subject.foreign != .no { subject.foreign = .maybe }
        default: break
        }
    }

    private func send(
        _ path: String, _ interface: String, _ member: String,
        _ body: (borrowing Message) throws -> Void = { _ in }
    ) throws {
        let message = try client.bus.newCall(
            destination: BusNames.service, path: path, interface: interface, member: member)
        try body(message)
        try client.bus.send(message)
    }

    // MARK: The subscriber

    /// Reads the list while nothing is under way: a daemon that has just taken over applications still examines them.
    private func begin() throws {
        var before = 0
        repeat {
            try subscriber.settle()
            before = subscriber.received.count
            told = [:]
            for row in try subscriber.list() {
                let words = row.split(separator: " ").map(String.init)
                told[words[0]] = words.last
            }
            try subscriber.settle()
        } while subscriber.received.count != before
        heard = before
    }

    /// Compares every edge that came since with the known states.
    private func hear() {
        for signal in subscriber.received[heard...] where signal.interface == BusNames.application {
            guard signal.member == "StateChanged" else { continue }
            edges += 1
            let (from, to) = (signal.arguments[0], signal.arguments[1])
            if let state = told[signal.path], state != from {
                violations.append("\(signal) while it was \(state)")
            }
            told[signal.path] = to
        }
        heard = subscriber.received.count
    }

    // MARK: What must hold

    /// Returns what is wrong once nothing is under way.
    func compare() throws -> [String] {
        var wrong: [String] = []
        let deadline = ContinuousClock.now + .seconds(300)
        repeat {
            do {
                wrong = try look()
            } catch let failure as BusFailure where failure.name == ErrorName.noSuchApplication.rawValue {
                wrong = ["\(failure)"]
            } catch let failure as KernelFailure where failure.isNoSuchProcess {
                wrong = ["\(failure)"]
            }
            try subscriber.settle()
        } while !wrong.isEmpty && ContinuousClock.now < deadline
        hear()
        while subjects.count < Self.size { try spawn() }
        return wrong + violations
    }

    private func look() throws -> [String] {
        var wrong: [String] = []
        let rows = try client.list()
        // Either it has ended as requested, or the request was lost and has no effect later.
        for subject in subjects where subject.ending == .maybe {
            let isListed = rows.contains { $0.hasPrefix(subject.path + " ") }
            if !isListed, subject.hasEnded {
                try retire(subject)
            } else if isListed, try client.explain(subject.path)["terminating"] == .bool(false) {
                subject.ending = .no
            } else {
                wrong.append("\(subject.path) has not ended yet")
            }
        }
        if !wrong.isEmpty { return wrong }
        if rows.count != subjects.count { wrong.append("\(rows.count) applications, not \(subjects.count)") }
        for subject in subjects {
            guard let row = rows.first(where: { $0.hasPrefix(subject.path + " ") }) else {
                wrong.append("\(subject.path) is lost")
                continue
            }
            // It is not removed yet, or has ended since.
            if subject.hasEnded || subject.ending == .yes {
                wrong.append("\(row) is still there")
                continue
            }
            let words = row.split(separator: " ").map(String.init)
            if words[2] != String(subject.process.pid) {
                wrong.append("\(row) is not \(subject.process.pid)")
            }
            wrong += try look(subject, state: words[4]).map { "\(row): \($0)" }
        }
        let isProtected = rows.contains { $0.hasSuffix(" active") }
        if !isProtected, Self.protection != ownProtection {
            wrong.append("no application is active, and the slices above have \(Self.protection)")
        }
        return wrong
    }

    /// Empty without a memory controller.
    private static var protection: [String: String] {
        var found: [String: String] = [:]
        guard let base = TestCgroup.base else { return found }
        for slice in [base] + base.ancestors {
            found[slice.path] = try? String(contentsOfFile: slice.directory + "/memory.low", encoding: .utf8)
        }
        return found
    }

    private func look(_ subject: Subject, state: String) throws -> [String] {
        var wrong: [String] = []
        let holds = try client.holds(subject.path)
        let stands = try subject.stands
        let isRequested = holds.contains("request uid:\(getuid())")
        let isForeign = holds.contains { $0.hasPrefix("signal") }
        let isByPolicy = holds.contains { $0.hasPrefix("policy") }
        // The effects of a pending stop are not visible yet.
        if try !stands && Proc().hasPendingStop(subject.process.pid) { wrong.append("is about to stop") }
        if stands != (state == "suspended") { wrong.append("stopped: \(stands)") }
        if stands == holds.isEmpty { wrong.append("stopped: \(stands), holds \(holds)") }
        let reading = try subject.reading
        if holds.isEmpty, !reading.isEmpty { wrong.append("nobody holds it, and stopped: \(reading)") }
        if isByPolicy, !subject.isAutomatic { wrong.append("policy holds it") }
        if subject.isAutomatic, state == "background" { wrong.append("policy does not hold it") }
        if subject.request == .yes, !isRequested { wrong.append("the request is lost: \(holds)") }
        if subject.request == .no, isRequested { wrong.append("a request that nobody made") }
        if subject.foreign == .yes, !stands { wrong.append("runs, and was stopped by somebody else") }
        if subject.foreign == .no, isForeign { wrong.append("nobody has stopped it: \(holds)") }
        if subject.minimized == .yes, try client.property(subject.path, "Minimized") != .bool(true) {
            wrong.append("is not minimized any more")
        }
        let tasks = try deadlines(subject)
        if Set(tasks.keys) != Set(subject.tasks.keys) { wrong.append("tasks \(tasks), not \(subject.tasks)") }
        if !stands {
            // Its limit advances in the background only, so it may end later than it was to end when it began.
            for (id, deadline) in subject.tasks {
                let end = tasks[id] ?? 0
                let isMissing = end == .never || deadline != .never && end < deadline
                if state == "background" ? isMissing : end != .never {
                    wrong.append("task \(id) ends at \(end) in \(state), not \(deadline)")
                }
            }
        }
        if wrong.isEmpty {
            // What was uncertain is known now.
            subject.request = isRequested ? .yes : .no
            subject.foreign = isForeign ? .yes : .no
        }
        return wrong
    }

    /// Returns each subject whose announced state is wrong, and each former subject that is still stopped.
    private func announced() throws -> [String] {
        try subscriber.settle()
        hear()
        var wrong = try look()
        for subject in subjects {
            let stands = try subject.stands
            if stands != (told[subject.path] == "suspended") {
                wrong.append(
                    "\(subject.path) was told \(told[subject.path] ?? "nothing"), stopped: \(stands)")
            }
        }
        return try wrong + leftBehind(former)
    }

    private func leftBehind(_ subjects: [Subject]) throws -> [String] {
        try subjects.flatMap { subject -> [String] in
            let isItself = !subject.hasEnded && (try? isStopped(subject.process.pid)) == true
            let all = try (isItself ? ["its process"] : []) + subject.reading
            return all.map { "\(subject.path) is over, and stopped: \($0)" }
        }
    }

    /// Checks that all states are as announced, then lets all subjects go and checks that none stays stopped.
    func finish() throws {
        var wrong: [String] = []
        let deadline = ContinuousClock.now + .seconds(300)
        repeat { wrong = try announced() } while !wrong.isEmpty && ContinuousClock.now < deadline
        #expect(wrong == [])
        for subject in subjects {
            try client.application(subject.path, "Resume")
            // Policy suspends an automatic one again.
            if !subject.isAutomatic { try client.wait("\(subject.path) to run") { try !subject.stands } }
        }
        try daemon.end(SIGTERM)
        #expect(try leftBehind(former + subjects) == [])
    }
}

extension Client {
    /// Receives everything that was sent before the service ended: the bus driver, too, answers in order.
    fileprivate func settleWithoutService() throws {
        _ = try bus.id()
        var hasCome = false
        while !hasCome { hasCome = try !loop.runOnce(timeout: 0) }
    }
}
