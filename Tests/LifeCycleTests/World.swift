import AppStateContract
import TestSupport

@testable import LifeCycle

/// A small world that carries out what the machine orders, and knows the truth: what a process does, what was reported,
/// and what was announced to whom. It never asks the machine for an answer that it can know itself.
struct World {
    struct Process {
        let id: ProcessID
        let user: UInt32
        var parent: ProcessID?
        /// The process has its own cgroup, and the daemon stops it by freezing.
        let isByFreezer: Bool
        /// Stopped by SIGSTOP from any sender; beneath a freeze, SIGSTOP is pending.
        var isStopped = false
        /// The daemon sent such a SIGSTOP, ...
        var isStopOurs = false
        /// ... and so did another process, since the last SIGCONT.
        var isForeignStop = false
        /// Some process wrote to the freezer of its cgroup.
        var isFrozen = false
        /// The cgroup was not frozen when the daemon froze it.
        var isFreezeOurs = false
        /// The daemon's stop is under way.
        var stopOrdered = false

        var isHalted: Bool { isStopped || isFrozen }

        var reading: StopReading {
            StopReading(
                signal: !isStopped ? .none : isFrozen ? .pending : .stopped,
                freeze: isFrozen
                    ? StopReading.Freeze(cgroup: "c", isOurs: isFreezeOurs, isComplete: true) : nil)
        }

        mutating func stop() {
            if !isByFreezer {
                // One that is stopped already gets no signal.
                if !isStopped { (isStopped, isStopOurs) = (true, true) }
            } else if !isFrozen {
                (isFrozen, isFreezeOurs) = (true, true)
            }
        }

        mutating func thawOurs() {
            if isFreezeOurs { (isFrozen, isFreezeOurs) = (false, false) }
        }

        /// Ends the daemon's stop. A SIGSTOP that follows the daemon's stays pending, so the daemon sees it.
        mutating func undoStop(sparingMain: Bool) {
            thawOurs()
            if isStopOurs, !isForeignStop, !sparingMain { isStopped = false }
            isStopOurs = false
        }

        /// SIGCONT ends every stop.
        mutating func receiveSIGCONT() { (isStopped, isStopOurs, isForeignStop) = (false, false, false) }
    }

    /// An application as the announced signals describe it.
    struct Told {
        let process: ProcessID
        let user: UInt32
        var state = LifeCycleState.notRunning
        /// Registered as visible, until a reporter reports its windows.
        var assumedVisible = false
        var isFresh = true
        /// The state as announced to its delegate, without the edges to and from suspended.
        var delegateState: LifeCycleState?
        /// What must be announced next, after an edge or a will-signal.
        var owed: ApplicationSignal?
        /// The last announcement about its protected data.
        var isProtected: Bool?
        var owedEdge: Edge?
    }

    struct Violation: Error, CustomStringConvertible {
        let description: String
    }

    var machine = Machine()
    var now: Microseconds = 1_000_000
    var processes: [ProcessID: Process] = [:]
    var told: [ApplicationNumber: Told] = [:]
    /// The application of each process, as announced.
    var numbers: [ProcessID: ApplicationNumber] = [:]
    /// Processes whose pidfd the shell holds.
    var held: Set<ProcessID> = []
    var pending: [Fact] = []
    /// The shell takes over from one that was killed.
    private var isTakingOver = false
    /// What is left of the machine's memory.
    var memory = MemorySample(available: 800 << 20, total: 1_000 << 20, swapTotal: 0)
    /// What is on the disk.
    var kept: [ScheduleOwner: [ScheduledLaunch]] = [:]
    /// The conditions for launches that are met, and CLOCK_REALTIME as the shell has reported it last.
    var met: Set<LaunchTrigger> = []
    var realTime: Microseconds = 0
    /// The users whose agent has just come.
    private var agents: Set<UInt32> = []
    static let sources = [PressureSource(path: "/machine"), PressureSource(path: "/slice", user: 1000)]
    private var nextPid: Int32 = 100

    // MARK: Scheduled launches

    /// The shell watches only what is awaited.
    mutating func meet(_ trigger: LaunchTrigger, _ isMet: Bool) throws {
        if isMet { met.insert(trigger) } else { met.remove(trigger) }
        if machine.awaits(trigger) { try handle(.condition(trigger, isMet)) }
    }

    mutating func agentComes(for user: UInt32) throws {
        agents = [user]
        try handle(.agentCame(user: user))
        agents = []
    }

    mutating func schedule(_ launch: ScheduledLaunch) throws {
        guard try perform(.scheduleLaunch(launch)) else { return }
        let kind = launch.trigger.kind
        if machine.awaits(kind), kind != .time { try handle(.condition(kind, met.contains(kind))) }
    }

    /// Whether it may be launched now.
    private func isDue(_ launch: ScheduledLaunch) -> Bool {
        guard kept[launch.owner]?.contains(launch) == true else { return false }
        if agents.contains(launch.owner.user) { return true }
        return switch launch.trigger {
        case .time(let time): time <= realTime
        case .network, .power: met.contains(launch.trigger.kind)
        }
    }

    // MARK: The kernel's side

    mutating func spawn(user: UInt32, parent: ProcessID?) -> ProcessID {
        nextPid += 1
        let id = ProcessID(pid: nextPid, startTime: UInt64(nextPid) * 7)
        processes[id] = Process(id: id, user: user, parent: parent, isByFreezer: nextPid % 2 == 0)
        return id
    }

    func lineage(of id: ProcessID) -> [ProcessID] {
        var line: [ProcessID] = []
        var next: ProcessID? = id
        while let current = next, let process = processes[current] {
            line.append(current)
            next = process.parent
        }
        return line.isEmpty ? [id] : line
    }

    mutating func exit(_ id: ProcessID) {
        guard processes.removeValue(forKey: id) != nil else { return }
        for child in processes.keys where processes[child]?.parent == id { processes[child]?.parent = nil }
        if held.contains(id) { pending.append(.exited(id, .exited)) }
    }

    /// SIGSTOP or SIGCONT by another process; the sensor sees it.
    mutating func foreignStop(_ id: ProcessID) {
        processes[id]?.isStopped = true
        processes[id]?.isForeignStop = true
        noteLook(at: id, sender: "pid 7")
    }

    mutating func foreignContinue(_ id: ProcessID) {
        processes[id]?.receiveSIGCONT()
        noteLook(at: id)
    }

    /// A write to cgroup.freeze by another process.
    mutating func foreignFreeze(_ id: ProcessID, _ isFrozen: Bool) {
        processes[id]?.isFrozen = isFrozen
        if !isFrozen { processes[id]?.isFreezeOurs = false }
        noteLook(at: id)
    }

    /// The process is read when the fact is reported.
    mutating func noteLook(at id: ProcessID, sender: String? = nil) {
        if let number = machine.application(of: id)?.number {
            pending.append(.observed(number, StopReading(signal: .none), sender: sender))
        }
    }

    // MARK: The shell's side

    /// Reads the memory of all sources.
    mutating func readMemory(trigger: (PressureSource, MemoryPressure)? = nil) throws {
        var readings = MemoryReadings([:])
        for source in Self.sources {
            readings.sources[source] = MemoryReadings.Reading(
                memory, trigger: trigger?.0 == source ? trigger?.1 : nil)
        }
        if machine.needsSizes(at: now, hasTriggered: trigger != nil) {
            let sizes = machine.applications.keys.map { ($0, UInt64($0.rawValue % 7) << 24) }
            readings.sizes = MemoryReadings.Sizes(Dictionary(uniqueKeysWithValues: sizes))
        }
        try handle(.memory(readings))
    }

    mutating func perform(_ request: Request) throws -> Bool {
        let effects: [Effect]
        do {
            effects = try machine.perform(request, at: now).effects
        } catch {
            return false
        }
        try carryOut(effects)
        return true
    }

    mutating func handle(_ fact: Fact) throws {
        try carryOut(machine.handle(fact, at: now))
    }

    /// Takes the first pending fact, in the order in which the shell would report them.
    mutating func handlePending() throws {
        guard !pending.isEmpty else { return }
        let fact = pending.removeFirst()
        if let current = current(fact) { try handle(current) }
    }

    /// The shell looks before it reports.
    private mutating func current(_ fact: Fact) -> Fact? {
        switch fact {
        case .observed(let number, _, let sender):
            return reading(of: number).map { .observed(number, $0, sender: sender) }
        case .stopCompleted(let number):
            guard let process = told[number]?.process, let reading = reading(of: number) else { return nil }
            if reading.isStopped(before: true) || reading.signal == .pending { return fact }
            // Another process continued it before the stop was seen: the shell sends its signal again.
            if case .ordered? = machine.applications[number]?.stop.phase.progress {
                processes[process]?.stopOrdered = true
            }
            return nil
        case .checked(let number, .clear):
            guard let reading = reading(of: number) else { return nil }
            return .checked(number, .clear(isStopped: reading.isStopped(before: true)))
        case .resumeCompleted(let number, _):
            return reading(of: number).map { .resumeCompleted(number, $0) }
        case .exited(let process, _, _): return held.contains(process) ? fact : nil
        default: return fact
        }
    }

    private func reading(of number: ApplicationNumber) -> StopReading? {
        (told[number]?.process).flatMap { processes[$0]?.reading }
    }

    private mutating func carryOut(_ effects: [Effect]) throws {
        for effect in effects { try carryOut(effect) }
    }

    private mutating func carryOut(_ effect: Effect) throws {
        switch effect {
        case .added(let number):
            guard let application = machine.applications[number] else {
                throw Violation(description: "\(number) was added and is not there")
            }
            told[number] = Told(process: application.process, user: application.user)
            numbers[application.process] = number
        case .removed(let number, _):
            guard let application = told.removeValue(forKey: number) else {
                throw Violation(description: "\(number) was removed twice")
            }
            numbers[application.process] = nil
            try require(
                processes[application.process]?.isFreezeOurs != true,
                "\(number) was removed while the daemon has it frozen")
            try require(
                application.owed == nil,
                "\(number) was removed before \(String(describing: application.owed))"
            )
        case .announce(let number, let announcement, let audience):
            try hear(number, announcement, audience)
        case .announceEnd(let number, let announcement, _):
            // It is sent even to a delegate that is stopped.
            try hearAsDelegate(number, announcement)
            try require(announcement.edge?.to == .notRunning, "\(number) ends with \(announcement)")
        case .changed, .focusChanged, .notice, .ended, .memoryPressureChanged, .lowMemoryWarning, .resources:
            break
        case .confirmHang(let number):
            let state = told[number]?.state
            try require(
                state == .active || state == .inactive, "\(number) counts as hanging, and is not in front")
            // Every third application is being debugged.
            if !number.rawValue.isMultiple(of: 3) { pending.append(.hangs(number)) }
        case .launch(let launch):
            try require(isDue(launch), "\(launch) is not due")
            pending.append(.launchSettled(launch, isKept: now % 3 == 0))
        case .scheduleChanged(let owner):
            kept[owner] = machine.scheduledLaunches(of: owner)
            try require(
                kept[owner]?.count ?? 0 <= Schedule.mostOfApplication, "\(owner) has too many launches")
        case .relaunch(let relaunch):
            try require(
                machine.memoryPressure == .normal, "\(relaunch.id) is started again while memory is short")
        case .pageOut(let number, _):
            try require(told[number]?.state == .suspended, "\(number) is paged out but not suspended")
            try require(machine.settings.mode == .enforce, "\(number) is paged out in observe mode")
            pending.append(.pagedOut(number, bytes: UInt64(number.rawValue % 3) << 22))
        case .willReclaim(let number):
            // What the shell before has begun goes on.
            if !isTakingOver { try allowReclaim(number, in: .background) }
        case .reclaim(let number):
            try allowReclaim(number, in: .suspended)
            guard let process = told[number]?.process else { return }
            if processes[process]?.isHalted == true {
                // Some processes cannot die for a while.
                if process.pid % 5 != 0 { exit(process) }
                pending.append(.released(number))
            } else {
                pending.insert(.spared(number, "it runs"), at: 0)
            }
        case .check(let number, _):
            // An answer to an earlier check is discarded.
            pending.removeAll { if case .checked(number, _) = $0 { true } else { false } }
            let isObjected = now % 7 == 0
            pending.append(.checked(number, isObjected ? .objection("a debugger") : .clear(isStopped: true)))
        case .stop(let number):
            try withProcess(number) { $0.stopOrdered = true }
        case .checkUnread(let number):
            if now.isMultiple(of: 2) { pending.append(.unread(number)) }
        case .resume(let number):
            guard let process = told[number]?.process else { return }
            let stop = machine.applications[number]?.stop
            let isSpared = stop?.isSignalledByOther == true
            processes[process]?.stopOrdered = false
            processes[process]?.undoStop(sparingMain: isSpared)
            // How the other holder's stop ends is observed separately.
            if isSpared || processes[process] == nil { return }
            // The foreign stop was removed from the status after the process was stopped, or was never seen: the rest
            // of that `Resume`.
            if stop?.isLifting == true {
                processes[process]?.receiveSIGCONT()
                processes[process]?.isFrozen = false
            }
            pending.insert(.resumeCompleted(number, StopReading(signal: .none)), at: 0)
        case .continueForeign(let number):
            guard let process = told[number]?.process, processes[process] != nil else { return }
            processes[process]?.receiveSIGCONT()
            if processes[process]?.isFreezeOurs == false { processes[process]?.isFrozen = false }
            pending.insert(.resumeCompleted(number, StopReading(signal: .none)), at: 0)
        case .requestExit(let number):
            if let process = told[number]?.process, processes[process]?.isHalted == false { exit(process) }
        case .kill(let number):
            if let process = told[number]?.process { exit(process) }
        case .killUnresponsive(let number):
            // Every third application is being debugged.
            if number.rawValue.isMultiple(of: 3) {
                pending.append(.spared(number, "a debugger is attached"))
            } else if let process = told[number]?.process {
                exit(process)
            }
        case .forget(let process):
            try require(held.remove(process) != nil, "\(process) was forgotten, and never held")
        }
    }

    private func allowReclaim(_ number: ApplicationNumber, in state: LifeCycleState) throws {
        try require(told[number]?.state == state, "\(number) is ended but not \(state)")
        try require(
            machine.applications[number]?.reclaimable == true, "\(number) is ended but not reclaimable")
        try require(machine.settings.mode == .enforce, "\(number) is ended in observe mode")
        try require(machine.memoryPressure == .critical, "\(number) is ended while memory is not critical")
    }

    private mutating func withProcess(_ number: ApplicationNumber, _ change: (inout Process) -> Void) throws {
        guard let id = told[number]?.process else {
            throw Violation(description: "an effect on the unknown \(number)")
        }
        if var process = processes[id] {
            change(&process)
            processes[id] = process
        }
    }

    /// The daemon's stop has taken effect.
    mutating func completeStops(_ generator: inout Generator) {
        for (number, application) in told.sorted(by: { $0.key < $1.key }) {
            guard let process = processes[application.process], process.stopOrdered, generator.chance(50)
            else { continue }
            processes[application.process]?.stopOrdered = false
            processes[application.process]?.stop()
            pending.append(.stopCompleted(number))
        }
    }

    // MARK: The end of the shell

    /// The shell is killed and another takes its place, which knows the records and what it sees.
    mutating func crash(_ generator: inout Generator) throws {
        let records = machine.applications.keys.sorted().compactMap { machine.record(of: $0) }
        var next = Machine(settings: machine.settings)
        for record in records {
            let number = try next.restore(record)
            try require(next.record(of: number) == record, "\(number) was recorded differently: \(record)")
        }
        next.continueNumbers(after: machine.lastNumber)
        machine = next
        try readMemory()
        let unseen = Set(
            pending.compactMap { fact -> ProcessID? in
                if case .observed(let number, _, _) = fact { told[number]?.process } else { nil }
            })
        held = Set(told.values.map(\.process)).union(machine.reportedProcesses)
        pending = held.filter { processes[$0] == nil }.sorted { $0.pid < $1.pid }.map {
            .exited($0, .unknown)
        }
        for id in processes.keys.sorted(by: { $0.pid < $1.pid }) where processes[id]?.stopOrdered == true {
            processes[id]?.stopOrdered = false
            // A SIGCONT that no sensor saw may have ended it.
            if generator.chance(50), !unseen.contains(id) { processes[id]?.stop() }
        }
        isTakingOver = true
        defer { isTakingOver = false }
        for number in told.keys.sorted() {
            let isSignalled = reading(of: number).map { $0.signal != .none } ?? true
            try carryOut(machine.reassert(number, isSignalled: isSignalled, at: now))
        }
        for (number, application) in told.sorted(by: { $0.key < $1.key }) {
            guard let record = machine.applications[number], let process = processes[application.process],
                record.stop.enforcement == .none
            else { continue }
            pending.append(.observed(number, process.reading))
        }
        try handle(.scheduled(kept.values.flatMap { $0 }))
        for trigger in LaunchTrigger.allCases where met.contains(trigger) { try meet(trigger, true) }
        try handle(.realTime(realTime))
    }

    // MARK: What was sent

    private mutating func hear(
        _ number: ApplicationNumber, _ announcement: Announcement, _ audience: Audience
    ) throws {
        guard var application = told[number] else {
            throw Violation(description: "\(announcement) about the unknown \(number)")
        }
        if audience.contains(.delegate), let process = processes[application.process] {
            let record = machine.applications[number]
            try require(
                !(process.isHalted && record?.isStopped == true),
                "\(announcement) to \(number), which is stopped")
            try require(
                !(announcement.isDelivery && record?.isLaunching == true),
                "\(announcement) to \(number), which is launching")
        }
        if audience.contains(.subscribers) { try follow(number, announcement, &application) }
        told[number] = application
        if audience.contains(.delegate) { try hearAsDelegate(number, announcement) }
    }

    private mutating func hearAsDelegate(_ number: ApplicationNumber, _ announcement: Announcement) throws {
        guard let edge = announcement.edge else { return }
        if let state = told[number]?.delegateState {
            try require(state == edge.from, "the delegate of \(number) received \(edge) in \(state)")
        }
        told[number]?.delegateState = edge.to
    }

    private func follow(_ number: ApplicationNumber, _ announcement: Announcement, _ application: inout Told)
        throws
    {
        if let edge = announcement.edge {
            try require(edge.isLegal, "\(number) walked \(edge)")
            try require(edge.from == application.state, "\(number) walked \(edge) in \(application.state)")
            switch edge.to == .notRunning ? nil : Self.willSignal(of: edge) {
            case let will?:
                try require(application.owedEdge == edge, "\(number) walked \(edge) without \(will)")
                application.owedEdge = nil
            case nil:
                try require(
                    application.owedEdge == nil,
                    "\(number) walked \(edge) before \(String(describing: application.owedEdge))")
            }
            try require(
                application.owed == nil,
                "\(number) walked \(edge) before \(String(describing: application.owed))")
            application.state = edge.to
            application.owed = Self.didSignal(of: edge)
            return
        }
        switch announcement.signal {
        case .willEnterForeground:
            application.owedEdge = Edge(application.state, .inactive)
        case .willResignActive:
            application.owedEdge = Edge(.active, .inactive)
        case .didBecomeActive, .didEnterBackground:
            try require(
                application.owed == announcement.signal,
                "\(number) received \(announcement) in \(application.state)")
            application.owed = nil
        case .protectedDataWillBecomeUnavailable, .protectedDataDidBecomeAvailable:
            let isProtected = announcement.signal == .protectedDataWillBecomeUnavailable
            try require(
                application.isProtected != isProtected && application.owed == nil
                    && application.owedEdge == nil,
                "\(number) received \(announcement) again, or during a walk")
            application.isProtected = isProtected
        case .backgroundTaskWillExpire:
            let isInactive = machine.applications[number]?.rule?.suspendWhen == .inactive
            let isCancelled = machine.applications[number]?.tasks.contains(where: \.isCancelled) == true
            try require(
                application.state == .background || application.state == .inactive && isInactive
                    || isCancelled, "\(number) received \(announcement) in \(application.state)")
        default:
            break
        }
    }

    private static func willSignal(of edge: Edge) -> ApplicationSignal? {
        switch (edge.from, edge.to) {
        case (.active, .inactive): .willResignActive
        case (.background, .inactive), (.notRunning, .inactive): .willEnterForeground
        default: nil
        }
    }

    private static func didSignal(of edge: Edge) -> ApplicationSignal? {
        switch (edge.from, edge.to) {
        case (.inactive, .active): .didBecomeActive
        case (.inactive, .background), (.notRunning, .background): .didEnterBackground
        default: nil
        }
    }

    func require(_ condition: Bool, _ what: @autoclosure () -> String) throws {
        if !condition { throw Violation(description: what()) }
    }
}
