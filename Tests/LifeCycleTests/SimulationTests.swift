import AppStateContract
import TestSupport
import Testing

@testable import LifeCycle

/// Random histories under a virtual clock. A failure prints its seed; APPSTATED_SEED runs it again.
@Suite("Simulation")
struct SimulationTests {
    private static let seed = Generator.chosenSeed
    private static let parts = 10

    @Test("a million random steps keep every promise of the contract", arguments: 0..<parts)
    func randomSteps(part: Int) throws {
        let runs = 5
        let steps = Generator.chosenSteps / Self.parts / runs
        print("simulation: APPSTATED_SEED=\(Self.seed), part \(part): \(runs) runs of \(steps) steps")
        for run in 0..<runs {
            var simulation = try Simulation(seed: Self.seed &+ UInt64(part * runs + run))
            do {
                for _ in 0..<steps { try simulation.step() }
                try simulation.finish()
            } catch {
                Issue.record("seed \(Self.seed), part \(part), run \(run): \(error)\n\(simulation.history)")
                return
            }
        }
    }
}

struct Simulation {
    private var world = World()
    private var reports = Reports()
    private var objections = ToldObjections()
    private var inhibitors: [(number: ApplicationNumber, id: UInt64)] = []
    private var generator: Generator
    private var connections: [ConnectionName] = []
    /// The reporter of each user, by the user; each has had so many before.
    private var reporters: [UInt32: Int] = [:]
    private var nextConnection = 0
    private var log: [String] = []

    private static let users: [UInt32] = [0, 1000, 1001]
    private static let mostProcesses = 24

    init(seed: UInt64) throws {
        generator = Generator(seed: seed)
        try world.readMemory()
    }

    var history: String { log.suffix(30).joined(separator: "\n") }

    mutating func step() throws {
        world.now += UInt64.random(in: 0...400_000, using: &generator)
        if let deadline = world.machine.nextDeadline, deadline <= world.now || generator.chance(5) {
            world.now = max(world.now, deadline)
            note("time")
            try world.handle(.timePassed)
            try world.require(
                world.machine.nextDeadline.map { $0 > world.now } ?? true, "a deadline in the past")
        }
        if let reading = world.machine.nextReading, reading <= world.now {
            note("memory is read")
            try world.readMemory()
            try world.require(
                world.machine.nextReading.map { $0 > world.now } ?? true, "a reading in the past")
        }
        world.completeStops(&generator)
        if !world.pending.isEmpty, generator.chance(70) {
            note("\(world.pending[0])")
            try handlePending()
        } else {
            try act()
        }
        // The shell asks about each session that an application comes to be in.
        for key in reports.ended {
            reports.absentSince[key] = nil
            try world.handle(.sessionEnded(key))
        }
        try check()
    }

    /// Ends everything: nothing may be left over.
    mutating func finish() throws {
        for process in Array(world.processes.keys) { world.exit(process) }
        while !world.pending.isEmpty { try handlePending() }
        for connection in connections + Self.users.map({ self.reporter(of: $0).connection }) {
            try world.handle(.disconnected(connection))
        }
        for session in [SessionKey.login("c2")] + Self.users.map(SessionKey.user) {
            try world.handle(.session(session, inFront: true))
        }
        var reporter = ReporterIdentity(connection: ":9", user: 0, session: .user(0))
        _ = try world.perform(.setFocus(nil, reporter))
        reporter.user = 0
        for owner in Array(world.kept.keys) { _ = try world.perform(.cancelLaunch(owner, name: nil)) }
        let machine = world.machine
        try world.require(machine.schedule.isEmpty && machine.nextScheduledTime == nil, "launches are left")
        try world.require(machine.applications.isEmpty && machine.numbers.isEmpty, "applications are left")
        try world.require(
            machine.windowsByProcess.isEmpty && machine.windows.isEmpty,
            "windows of processes are left")
        try world.require(
            machine.countByUser.isEmpty && machine.reporters.isEmpty,
            "something is left: \(machine.countByUser) \(machine.reporters)")
        try world.require(
            machine.reportedObjections.isEmpty && machine.objected.isEmpty, "objections are left")
        try world.require(machine.deadlines.isEmpty, "deadlines are left")
        world.memory.available = 900 << 20
        for _ in 0..<10_000 {
            let next = [world.machine.nextDeadline, world.machine.nextReading].compactMap(\.self).min()
            guard let next else { break }
            world.now = max(world.now, next)
            try world.handle(.timePassed)
            if let reading = world.machine.nextReading, reading <= world.now { try world.readMemory() }
            while !world.pending.isEmpty { try handlePending() }
        }
        let pressure = world.machine.pressure
        try world.require(
            !pressure.isEventOpen && pressure.victim == nil && pressure.excluded.isEmpty
                && pressure.sizes.isEmpty && pressure.level == .normal, "pressure is left: \(pressure)")
        try world.require(world.held.isEmpty, "processes are held: \(world.held)")
        try world.require(world.told.isEmpty, "the removal of applications was not announced")
    }

    private mutating func note(_ what: String) {
        if log.count > 200 { log.removeFirst(100) }
        log.append("\(world.now) \(what)")
    }

    private mutating func handlePending() throws {
        let ended: ProcessID? =
            if case .exited(let process, _, _)? = world.pending.first { process } else { nil }
        try world.handlePending()
        if let ended {
            reports.processEnded(ended)
            objections.processEnded(ended)
        }
        reports.ownersChanged(world)
    }

    // MARK: What happens

    private mutating func act() throws {
        let kind = Int.random(in: 0..<100, using: &generator)
        let process = generator.pick(world.processes.keys.sorted { $0.pid < $1.pid })
        let number = generator.pick(world.told.keys.sorted())
        switch kind {
        case 0..<8: try spawn()
        case 8..<20: if let process { try register(process) }
        case 20..<34: try report(process)
        case 34..<42:
            if let process {
                note("STOP \(process)")
                world.foreignStop(process)
            }
        case 42..<48:
            if let process {
                note("CONT \(process)")
                world.foreignContinue(process)
            }
        case 48..<52:
            if let process {
                let isFrozen = generator.chance(50)
                note("\(isFrozen ? "freeze" : "thaw") \(process)")
                world.foreignFreeze(process, isFrozen)
            }
        case 52:
            if generator.chance(30) {
                try inhibit(number)
            } else if let number, generator.chance(50) {
                try request(.deliver(number, [delivery()], "open"))
            } else if let number {
                note("need \(number)")
                for _ in 0..<Int.random(in: 1...4, using: &generator) {
                    let need = generator.pick([Need.answer, .act, .read, .end]) ?? .answer
                    try world.handle(.needed(number, "call", need))
                }
            }
        case 53..<58:
            if let number {
                let holder = "uid:\(generator.pick(Self.users) ?? 0)"
                try request(
                    generator.chance(30)
                        ? .suspendUntilFocused(number, holder: holder)
                        : .suspend(number, holder: holder))
            }
        case 58..<65:
            if let number { try request(.resume(number, holder: "uid:\(generator.pick(Self.users) ?? 0)")) }
        case 65..<68:
            if let process {
                note("exit \(process)")
                world.exit(process)
            }
        case 68..<70: if let number { try request(.terminate(number, force: generator.chance(30))) }
        case 70..<72: if let number { try request(.unregister(number)) }
        case 72..<90: if let number { try delegate(number) }
        case 90..<92: try disconnect()
        case 92..<94: try session()
        case 94..<95:
            switch Int.random(in: 0..<12, using: &generator) {
            case 0..<3: try configure()
            case 10:
                note("the machine sleeps")
                for number in world.machine.suspendedForSleep { try world.handle(.sleepBegins(number)) }
            case 11:
                note("the machine is awake")
                try world.handle(.sleepEnded)
            case 3:
                let change = TimeChange.allCases.randomElement(using: &generator) ?? .midnight
                note("the time has changed: \(change.rawValue)")
                try world.handle(.timeChanged(change))
            default: try shortage()
            }
        case 95..<96: if generator.chance(30) { try crash() }
        case 96..<98: try exempt()
        case 98: try schedule()
        case 99: if let number { try request(.configure(number, rule())) }
        default: break
        }
    }

    /// Something happens that scheduled launches are about.
    private mutating func schedule() throws {
        guard let id = ApplicationID("org.example.\(generator.chance(50) ? "A" : "B")") else { return }
        let user = generator.pick(Self.users) ?? 0
        let owner = ScheduleOwner(user: user, application: id)
        let name = "\(UInt64.random(in: 0...20, using: &generator))"
        let isMet = generator.chance(50)
        let later = UInt64.random(in: 0...10_000_000, using: &generator)
        note("schedule of \(owner): \(name)")
        switch Int.random(in: 0..<8, using: &generator) {
        case 0, 1, 2:
            let trigger = generator.pick([
                ScheduledLaunch.Trigger.network, .power, .time(world.realTime + later),
            ])
            try world.schedule(ScheduledLaunch(owner: owner, name: name, trigger: trigger ?? .network))
        case 3: try request(.cancelLaunch(owner, name: name))
        case 4: try world.meet(isMet ? .network : .power, generator.chance(50))
        case 5:
            world.realTime += later
            try world.handle(.realTime(world.realTime))
        case 6: try world.agentComes(for: user)
        default:
            guard let number = generator.pick(world.told.keys.sorted()) else { return }
            try request(.deliver(number, [.scheduledLaunchDue(name)], "time"))
        }
    }

    private mutating func delivery() -> Announcement {
        switch Int.random(in: 0..<4, using: &generator) {
        case 0: .openURLs(["note:1"], options: [])
        case 1: .backgroundTransferFinished(String(Int.random(in: 0..<99, using: &generator)), result: [])
        case 2: .continueUserActivity("reading", info: [])
        default: .messageReceived(from: "org.example.B", name: "hi", payload: [])
        }
    }

    private mutating func rule() -> Rule? {
        guard generator.chance(80) else { return nil }
        var rule = Rule()
        rule.suspension = generator.pickOrNone([.automatic, .never])
        rule.backgroundGrace = generator.pickOrNone([0, 2_000_000, .max])
        rule.suspendWhen = generator.pickOrNone([.background, .inactive, .sleep])
        rule.unsavedMark = generator.pickOrNone([true, false])
        rule.backgroundCPUQuota = generator.chance(20) ? 20 : nil
        rule.relaunchReclaimed = generator.pickOrNone([true, false])
        return rule
    }

    private mutating func spawn() throws {
        guard world.processes.count < Self.mostProcesses else { return }
        let parent =
            generator.chance(40) ? generator.pick(world.processes.keys.sorted { $0.pid < $1.pid }) : nil
        let user = parent.flatMap { world.processes[$0]?.user } ?? generator.pick(Self.users) ?? 0
        let process = world.spawn(user: user, parent: parent)
        note("spawn \(process) of \(user) below \(parent?.description ?? "nobody")")
    }

    private mutating func register(_ process: ProcessID) throws {
        guard let truth = world.processes[process], let id = ApplicationID("org.example.A") else { return }
        var registration = Registration(
            id: id, process: process, user: truth.user, session: session(of: truth.user))
        registration.byItself = generator.chance(50)
        registration.adopted = !registration.byItself && generator.chance(50)
        registration.launched = !registration.byItself && !registration.adopted && generator.chance(50)
        registration.suspension = generator.pickOrNone([SuspensionPolicy.automatic, .manual, .never])
        registration.launchMode = generator.pickOrNone([LaunchMode.foreground, .background])
        registration.stopped = truth.reading.signal == .stopped
        if generator.chance(50) {
            let connection = connect()
            registration.delegate = connection
        }
        note("\(registration)")
        world.held.insert(process)
        let former = world.machine.application(of: process)
        // A delegate that takes the application over receives everything from the beginning.
        if let former, former.awaitsOwnRegistration, registration.byItself {
            world.told[former.number]?.delegateState = nil
        }
        let isTaken = try world.perform(.register(registration))
        if !isTaken, !world.machine.isRelevant(with: process) { world.held.remove(process) }
        let isTakenOver = former?.awaitsOwnRegistration == true && registration.byItself
        let isReplaced =
            former?.isAdopted == true && registration.byItself
            || former?.isMirrored == true && !registration.adopted
        try world.require(
            former == nil || isTaken == (isReplaced || isTakenOver),
            "\(former?.number.description ?? "") was not replaced as expected")
        try world.require(
            former?.number != world.numbers[process] || !isTaken || isTakenOver,
            "\(process) has kept its application")
        if isTaken, let number = world.numbers[process] {
            try world.require(
                (world.machine.applications[number]?.registrant == .itself) == registration.byItself,
                "it is not known of \(number) who has registered it")
        }
        let isVisible =
            (registration.launchMode ?? (registration.byItself ? .foreground : .background)) == .foreground
        if let number = world.machine.application(of: process)?.number, world.told[number]?.isFresh == true {
            world.told[number]?.assumedVisible = isVisible
            world.told[number]?.isFresh = false
            world.noteLook(at: process)
        }
        reports.ownersChanged(world)
    }

    private mutating func connect() -> ConnectionName {
        if connections.count > 12, let old = generator.pick(connections) { return old }
        nextConnection += 1
        connections.append(":1.\(nextConnection)")
        return connections[connections.count - 1]
    }

    private func session(of user: UInt32) -> SessionKey { user == 1001 ? .login("c2") : .user(user) }

    private func reporter(of user: UInt32) -> ReporterIdentity {
        ReporterIdentity(
            connection: ":r\(user).\(reporters[user] ?? 0)", user: user, session: session(of: user))
    }

    private mutating func report(_ process: ProcessID?) throws {
        let user = generator.pick(Self.users) ?? 0
        let reporter = reporter(of: user)
        guard let process, let truth = world.processes[process] else { return }
        let lineage = world.lineage(of: process)
        let reported = ReportedProcess(lineage: lineage, user: truth.user, session: session(of: truth.user))
        let isForeign = user != 0 && truth.user != user
        let session = user == 0 ? reported.session : reporter.session
        world.held.insert(process)
        defer { if !world.machine.isRelevant(with: process) { world.held.remove(process) } }
        switch Int.random(in: 0..<8, using: &generator) {
        case 0, 1:
            note("focus \(process) by \(user)")
            _ = try world.perform(.setFocus(reported, reporter))
            reports.setFocus(
                isForeign ? nil : lineage, in: isForeign ? reporter.session : session, by: user, world)
        case 2:
            let minimized = generator.chance(50)
            note("minimized \(process) \(minimized) by \(user)")
            if try world.perform(.setMinimized(reported, minimized, reporter)) {
                reports.setMinimized(lineage, minimized, in: session, by: user, world)
            }
        case 3, 4:
            let (report, told) = windowReport(UInt64.random(in: 1...6, using: &generator), process, reporter)
            let old = reports.windows[told.key]?.lineage.first
            note("\(report)")
            if try world.perform(.updateWindow(report, reporter)) { reports.update(told, world) }
            if let old, !world.machine.isRelevant(with: old) { world.held.remove(old) }
        case 5: try replaceWindows(reporter)
        case 6:
            guard generator.chance(20) else { return }
            note("\(reporter.connection) is gone")
            try world.handle(.disconnected(reporter.connection))
            reports.left(reporter.connection, at: world.now)
            reporters[user, default: 0] += 1
        default:
            let window = UInt64.random(in: 1...6, using: &generator)
            note("remove \(window) of \(user)")
            _ = try world.perform(.removeWindow(window, reporter))
            reports.remove(Reports.Key(connection: reporter.connection, number: window))
        }
    }

    private mutating func replaceWindows(_ reporter: ReporterIdentity) throws {
        var set: [(WindowReport, Reports.Report)] = []
        for process in world.processes.keys.sorted(by: { $0.pid < $1.pid }) where generator.chance(15) {
            set.append(windowReport(UInt64(set.count + 1), process, reporter))
        }
        note("all windows of \(reporter.connection): \(set.map(\.0))")
        let processes = set.map(\.0.process.lineage[0])
        world.held.formUnion(processes)
        if try world.perform(.replaceWindows(set.map(\.0), reporter)) {
            reports.replace(
                set.map(\.1), by: reporter.connection, of: reporter.user, in: reporter.session, world)
        }
        for process in processes where !world.machine.isRelevant(with: process) {
            world.held.remove(process)
        }
    }

    /// A report about a window of this process, and what it means.
    private mutating func windowReport(
        _ number: UInt64, _ process: ProcessID, _ reporter: ReporterIdentity
    ) -> (WindowReport, Reports.Report) {
        let user = world.processes[process]?.user ?? 0
        let reported = ReportedProcess(
            lineage: world.lineage(of: process), user: user, session: session(of: user))
        var report = WindowReport(number: number, process: reported)
        report.focused = generator.pickOrNone([true, false])
        report.visible = generator.pickOrNone([true, false])
        report.minimized = generator.pickOrNone([true, false])
        report.unsavedChanges = generator.pickOrNone([true, false])
        return (
            report,
            Reports.Report(
                key: Reports.Key(connection: reporter.connection, number: number),
                lineage: reported.lineage, isForeign: reporter.user != 0 && user != reporter.user,
                focused: report.focused, visible: report.visible, minimized: report.minimized,
                session: reporter.user == 0 ? reported.session : reporter.session, user: reporter.user)
        )
    }

    private mutating func exempt() throws {
        let user = generator.pick(Self.users) ?? 0
        let reporter = ReporterIdentity(connection: connect(), user: user, session: session(of: user))
        var reports: [ObjectionReport] = []
        var entries: [ToldObjections.Entry] = []
        for process in world.processes.keys.sorted(by: { $0.pid < $1.pid }) where generator.chance(10) {
            guard let truth = world.processes[process] else { continue }
            let lineage = world.lineage(of: process)
            let reported = ReportedProcess(
                lineage: lineage, user: truth.user, session: session(of: truth.user))
            let reason = generator.chance(50) ? "audio" : "clipboard"
            reports.append(ObjectionReport(process: reported, reason: reason))
            guard user == 0 || truth.user == user else { continue }
            entries.append(
                ToldObjections.Entry(
                    connection: reporter.connection, user: user, lineage: lineage, reason: reason))
        }
        note("exempt by \(user), \(reporter.connection): \(entries)")
        for report in reports { world.held.insert(report.process.lineage[0]) }
        _ = try world.perform(.replaceObjections(reports, reporter))
        for report in reports where !world.machine.isRelevant(with: report.process.lineage[0]) {
            world.held.remove(report.process.lineage[0])
        }
        objections.replace(by: reporter.connection, entries)
    }

    private mutating func inhibit(_ number: ApplicationNumber?) throws {
        if generator.chance(50), let index = inhibitors.indices.randomElement(using: &generator) {
            let (number, id) = inhibitors.remove(at: index)
            note("the inhibitor \(id) of \(number) is closed")
            try world.handle(.uninhibited(number, id))
        } else if let number {
            let id = (inhibitors.map(\.id).max() ?? 0) + 1
            inhibitors.append((number, id))
            try request(.inhibit(number, Application.Inhibitor(id, who: "make", why: "a build")))
        }
    }

    private mutating func request(_ request: Request) throws {
        note("\(request)")
        _ = try world.perform(request)
        reports.ownersChanged(world)
    }

    private mutating func delegate(_ number: ApplicationNumber) throws {
        guard let connection = world.machine.applications[number]?.delegate else {
            if generator.chance(20) {
                // The new delegate reads the state itself.
                world.told[number]?.delegateState = nil
                try request(.becomeDelegate(number, connect()))
            }
            return
        }
        let serial = UInt64.random(in: 0...8, using: &generator)
        switch Int.random(in: 0..<5, using: &generator) {
        case 0, 1: try request(.finishLaunching(number, by: connection))
        case 2: try request(.acknowledge(number, serial: serial, by: connection))
        case 3:
            switch Int.random(in: 0..<4, using: &generator) {
            case 0: try request(.answerPings(number, by: connection))
            case 1:
                try request(.beginContinuedTask(number, name: "task", title: "", total: 4, by: connection))
            case 2: try request(.setTaskProgress(number, task: serial, completed: serial / 2))
            default: try request(.cancelTask(number, task: serial))
            }
        default:
            if generator.chance(20) {
                try request(.setUnsavedChanges(number, generator.chance(50)))
            } else if generator.chance(30) {
                try request(.finishTransfer(number, id: String(serial)))
            } else if generator.chance(50) {
                try request(.beginBackgroundTask(number, name: "task", by: connection))
            } else {
                try request(.endBackgroundTask(number, task: serial))
            }
        }
    }

    private mutating func disconnect() throws {
        guard let connection = generator.pick(connections) else { return }
        note("\(connection) leaves")
        connections.removeAll { $0 == connection }
        try world.handle(.disconnected(connection))
        objections.replace(by: connection, [])
    }

    private mutating func session() throws {
        let key = session(of: generator.pick(Self.users) ?? 0)
        let isLocked = generator.chance(30)
        let inFront = !isLocked && generator.chance(70)
        reports.isInFront[key] = inFront
        if !inFront, generator.chance(20) {
            note("\(key) ends")
            reports.isLocked[key] = nil
            return
        }
        note("\(key) in front: \(inFront), locked: \(isLocked)")
        reports.isLocked[key] = isLocked
        try world.handle(.session(key, inFront: inFront, isLocked: isLocked))
    }

    private mutating func crash() throws {
        note("crash")
        inhibitors = []
        reports.forgetUnowned(world)
        objections.forgetUnowned(world)
        try world.crash(&generator)
        for connection in world.machine.connections.sorted()
        where connection.hasPrefix(":r")
            && !Self.users.contains(where: { reporter(of: $0).connection == connection })
        {
            try world.handle(.disconnected(connection))
            reports.left(connection, at: world.now)
        }
        reports.ownersChanged(world)
        for (key, inFront) in reports.isInFront.sorted(by: { $0.key.description < $1.key.description }) {
            guard let isLocked = reports.isLocked[key] else { continue }
            try world.handle(.session(key, inFront: inFront, isLocked: isLocked))
        }
    }

    /// Memory becomes short or available again; a trigger may fire.
    private mutating func shortage() throws {
        let megabytes = UInt64.random(in: 10...400, using: &generator)
        world.memory.available = megabytes << 20
        world.memory.swapTotal = generator.chance(50) ? 0 : 1 << 30
        world.memory.swapFree = world.memory.swapTotal
        churn()
        if let source = generator.pick(World.sources), generator.chance(70) {
            let level: MemoryPressure = generator.chance(70) ? .warning : .critical
            note("\(level) of \(source), \(megabytes) MiB")
            try world.readMemory(trigger: (source, level))
        } else {
            note("memory was taken, \(megabytes) MiB")
            try world.readMemory()
        }
    }

    /// File pages have been evicted and read back, and a process has waited for memory.
    private mutating func churn() {
        var files = world.memory.files ?? FileCache(cached: 0, evicted: 0, reclaimed: 0, refaulted: 0)
        files.cached = UInt64.random(in: 0...400, using: &generator) << 20
        if generator.chance(50) { files.evicted += UInt64.random(in: 0...200, using: &generator) << 20 }
        if generator.chance(80) { files.reclaimed += UInt64.random(in: 0...200, using: &generator) << 20 }
        if generator.chance(50) { files.refaulted += UInt64.random(in: 0...200, using: &generator) << 20 }
        world.memory.files = generator.chance(95) ? files : nil
        let searches = (world.memory.searches ?? 0) + UInt64.random(in: 0...2, using: &generator)
        world.memory.searches = generator.chance(80) ? searches : nil
        world.memory.waited += UInt64.random(in: 0...500_000, using: &generator)
        world.memory.front = nil
        if let number = world.machine.front(of: World.sources[0]), generator.chance(50) {
            world.memory.front = FrontMemory(
                number, cached: files.cached / 2, refaulted: files.refaulted / 2,
                waited: world.memory.waited / 2)
        }
    }

    private mutating func configure() throws {
        var settings = Settings()
        settings.pressure.thrashingLimit = generator.pickOrNone([1, 1_000, 100_000])
        settings.backgroundGrace = generator.pick([0, 1_000_000, 5_000_000])
        settings.backgroundTaskMax = generator.pickOrNone([3_000_000])
        settings.drainEvery = generator.pickOrNone([2_000_000])
        settings.unresponsive = generator.pickOrNone([1_000_000])
        settings.mode = generator.chance(80) ? .enforce : .observe
        settings.launchTimeoutAction = generator.chance(70) ? .continue : .terminate
        note("settings")
        try world.handle(.configured(settings))
    }

    // MARK: What must hold

    private func check() throws {
        let levels = reports.levels(world)
        for (number, application) in world.told {
            guard let record = world.machine.applications[number] else {
                throw World.Violation(description: "\(number) is gone without a removal")
            }
            try world.require(
                record.state == application.state, "\(number) is \(record.state), told \(application.state)")
            try world.require(
                application.owed == nil, "\(number) still awaits \(String(describing: application.owed))")
            let isAssumed =
                application.assumedVisible && !reports.reportedOn.contains(number)
                && reports.isInFront[record.session] ?? true
            let level = max(levels[number] ?? 0, isAssumed ? 1 : 0)
            try world.require(
                record.windowLevel.rawValue == level,
                "\(number) is at window level \(record.windowLevel), not \(level)")
            let reasons = objections.reasons(number, world)
            try world.require(
                record.reportedReasons == reasons,
                "\(number) is exempt for \(record.reportedReasons), not \(reasons)")
            try world.require(
                reasons.isEmpty || !record.holds.contains { $0.reason == .policy },
                "\(number) is exempt for \(reasons), and policy holds it")
            let held = inhibitors.filter { $0.number == number }.map(\.id)
            try world.require(
                Set(record.inhibitors.map(\.id)) == Set(held),
                "\(number) has the inhibitors \(record.inhibitors), not \(held)")
            try world.require(
                held.isEmpty || !record.holds.contains { $0.reason == .policy },
                "\(number) is inhibited, and policy holds it")
            let known = world.machine.objections(to: record)
            try world.require(
                Array(record.outlook.objections.prefix(known.count)) == known
                    && record.outlook.deadline == world.machine.suspensionDeadline(of: record)
                    && record.outlook.rank == world.machine.lastingRank(of: record),
                "\(number) was told of as \(record.outlook), and now has \(known)")
            let absence = reports.sessions(of: number, world).compactMap { reports.absentSince[$0] }.min()
            try world.require(
                absence.map { $0 + Machine.reporterAbsence > world.now } ?? true
                    || !record.holds.contains { $0.reason == .policy },
                "the reporter of \(number)'s session is gone, and policy holds it")
            let highest = record.rule?.suspendWhen == .inactive ? 1 : 0
            try world.require(
                level <= highest || !record.holds.contains { $0.reason == .policy },
                "\(number) is at window level \(level), and policy holds it")
            try world.require(
                record.rule?.backgroundCPUQuota == nil || !record.holds.contains { $0.reason == .policy },
                "\(number) is slowed, and policy holds it")
            let counts =
                !record.isStopped
                && (record.state == .background || record.state == .inactive && highest == 1 && level == 1)
            for task in record.tasks where task.limit != .endless {
                try world.require(
                    (task.deadline != .never) == (counts || task.isCancelled && !record.isStopped),
                    "the limit of \(number)'s task is \(task.limit) in \(record.state)")
            }
            if record.ping?.deadline != nil || record.unresponsive == .mainLoop, !record.isStopped {
                try world.require(record.answersPings, "\(number) is pinged, and does not answer pings")
            }
            if record.ping?.deadline != nil {
                try world.require(
                    record.state == .active || record.state == .inactive,
                    "\(number) must answer a ping in \(record.state)")
            }
            if case .open = record.stop.drain {
                try world.require(
                    !world.machine.pressure.isEventOpen, "\(number) is drained while memory is short")
            }
            guard world.pending.isEmpty, !record.isPending else { continue }
            let isStopped =
                record.stop.drain.isUnderWay || world.processes[record.process]?.isHalted ?? false
            let expected: LifeCycleState =
                record.isLaunching
                ? .notRunning
                : isStopped ? .suspended : level == 2 ? .active : level == 1 ? .inactive : .background
            try world.require(
                record.state == expected, "\(number) is \(record.state), and the facts say \(expected)")
            try world.require(
                record.holds.isEmpty || isStopped, "\(number) is held by \(record.holds) and runs")
            try world.require(
                !isStopped || !record.allHolds.isEmpty, "\(number) is stopped without a hold")
        }
    }
}
