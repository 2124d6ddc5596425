import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Carries out the decisions of the life cycle. It decides nothing itself, and reports results as facts.
final class Executor {
    private let proc: Proc
    private let processes: Processes
    private let sensor: StopSensor
    private let announcer: Announcer
    private let resources: Resources
    private let journal: Journal
    private let reclaimer: Reclaimer
    private let lowMemory: LowMemoryMonitor
    private let pressure: PressureSensor
    private let records: Records
    private let freezer: Freezer
    private let inhibitors: OpenInhibitors
    private let table: ApplicationTable
    private let keeper: Keeper?
    private let core: Core
    /// The memory pressure that was announced last.
    private var level = MemoryPressure.normal
    /// Changes that are still to be announced, and the applications they belong to in the order of their first change.
    private var changes: [ApplicationNumber: Set<ApplicationProperty>] = [:]
    private var changed: [ApplicationNumber] = []

    init(
        core: Core, table: ApplicationTable, records: Records, keeper: Keeper?, proc: Proc,
        processes: Processes, sensor: StopSensor, freezer: Freezer, inhibitors: OpenInhibitors,
        announcer: Announcer, resources: Resources, reclaimer: Reclaimer, lowMemory: LowMemoryMonitor,
        pressure: PressureSensor, journal: Journal
    ) {
        self.core = core
        self.table = table
        self.records = records
        self.keeper = keeper
        self.freezer = freezer
        self.inhibitors = inhibitors
        self.proc = proc
        self.processes = processes
        self.sensor = sensor
        self.announcer = announcer
        self.resources = resources
        self.reclaimer = reclaimer
        self.lowMemory = lowMemory
        self.pressure = pressure
        self.journal = journal
    }

    /// Records how to reach an application; must be called before the effects of its registration.
    ///
    /// - Parameter isNew: false: an earlier daemon knew it.
    func enroll(_ application: Registered, isNew: Bool = true) {
        if isNew {
            resources.separate(application) { table.add(application) }
        } else {
            table.add(application)
        }
        sensor.watch(application.number, application.process)
        freezer.watch(application)
        pressure.noteUser(application.user)
    }

    /// Records the decisions of a step, and then carries them out: if the daemon is killed in between, the
    /// next daemon knows what was in progress.
    ///
    /// - Parameters:
    ///   - isLazy: changes of which no client is notified may be recorded a little later.
    ///   - written: called in between, so that a caller gets its answer before the signals, and only for what
    ///     is recorded.
    func carryOut(_ effects: [Effect], isLazy: Bool = false, written: () -> Void = {}) {
        for effect in effects {
            switch effect {
            case .changed(let number, let properties) where properties.contains(.stateTimestamp):
                table[number]?.noteStateChange()
            case .ended(let number, let ending): table[number]?.ending = ending
            // While its record says what it had.
            case .removed(let number, _): if let application = table[number] { resources.remove(application) }
            default: break
            }
        }
        _ = records.writeChanges(isLazy: isLazy && effects.isEmpty)
        // After the changes, so that a process that replaces another application is always known as one of
        // the two.
        for case .removed(let number, _) in effects { records.leave(number) }
        for case .ended(let number, let ending) in effects {
            if let application = table[number] { keeper?.end(application, ending) }
        }
        written()
        for effect in effects { carryOut(effect) }
    }

    private func carryOut(_ effect: Effect) {
        switch effect {
        case .added(let number):
            if let application = table[number] { announcer.added(application) }
        case .ended: break  // It is recorded already.
        case .removed(let number, let reason):
            remove(number, reason)
        case .announce(let number, let announcement, let audience):
            if let application = table[number] {
                announcer.announce(application, announcement, to: audience)
            }
        case .announceEnd(let number, let announcement, let delegate):
            if let application = table[number] {
                announcer.announceEnd(application, announcement, to: delegate)
            }
        case .changed(let number, let properties):
            if let application = table[number] {
                note(properties, of: number)
                if properties.contains(.state) {
                    resources.update(application)
                    freezer.noteState(application)
                }
            }
        case .resources(let number):
            if let application = table[number] { resources.update(application) }
        case .focusChanged(let session):
            announcer.focusChanged(in: session)
        case .check(let number, let isStopped):
            freezer.check(number, isStopped: isStopped)
        case .stop(let number):
            freezer.stop(number)
        case .resume(let number):
            freezer.resume(number)
        case .checkUnread(let number):
            freezer.checkUnread(number)
        case .continueForeign(let number):
            freezer.continueForeign(number)
        case .requestExit(let number):
            requestExit(number)
        case .kill(let number):
            freezer.kill(number)
        case .killUnresponsive(let number):
            killUnresponsive(number)
        case .confirmHang(let number):
            confirmHang(number)
        case .launch, .relaunch:
            core.launches.append(effect)
        case .scheduleChanged(let owner):
            keeper?.setLaunches(core.machine.scheduledLaunches(of: owner), of: KeptID(owner))
        case .reclaim(let number):
            if let application = table[number] { reclaimer.end(application) }
        case .willReclaim(let number):
            if let application = table[number] { reclaimer.willEnd(application) }
        case .pageOut(let number, let extent):
            reclaimer.pageOut(number, extent)
        case .memoryPressureChanged(let level):
            // On a busy machine, warnings begin and end often.
            let isNotable = level == .critical || self.level == .critical
            self.level = level
            journal.log(
                isNotable ? .notice : .debug, "memory pressure: \(level.rawValue)", as: .memoryPressure,
                [(.level, level.rawValue)])
            announcer.memoryPressureChanged(level)
        case .lowMemoryWarning(let level):
            lowMemory.warn(level)
        case .forget(let process):
            processes.forget(process)
        case .notice(let number, let notice):
            if let application = table[number] {
                journal.log(notice, about: application)
            }
        }
    }

    /// Announces the properties that have changed since the last call: once for all edges of a change, and
    /// for a hold together with its consequences.
    func announceChanges() {
        for number in changed {
            guard let properties = changes[number], let application = table[number] else { continue }
            announcer.changed(application, properties)
        }
        changes.removeAll(keepingCapacity: true)
        changed.removeAll(keepingCapacity: true)
    }

    func note(_ properties: Set<ApplicationProperty>, of number: ApplicationNumber) {
        if changes[number] == nil { changed.append(number) }
        changes[number, default: []].formUnion(properties)
    }

    // MARK: The end

    /// An application that is being debugged responds only when the debugger lets it, so it is spared.
    private func killUnresponsive(_ number: ApplicationNumber) {
        guard let application = table[number] else { return }
        if isDebugged(application) { return core.report(.spared(number, "a debugger is attached")) }
        freezer.kill(number)
    }

    private func confirmHang(_ number: ApplicationNumber) {
        if let application = table[number], !isDebugged(application) { core.report(.hangs(number)) }
    }

    private func isDebugged(_ application: Registered) -> Bool {
        (try? proc.status(application.process.pid))?.tracer ?? 0 != 0
    }

    private func requestExit(_ number: ApplicationNumber) {
        if let application = table[number] { signal(SIGTERM, application) }
    }

    /// Sends a signal to the main process, if that still belongs to its user.
    private func signal(_ signal: Int32, _ application: Registered) {
        do {
            let status = try proc.status(application.process.pid)
            guard status.owner.isWholly(application.user) else {
                throw KernelFailure(
                    operation: "signal \(signal)", subject: application.process.description, errno: EPERM)
            }
            try processes.send(signal, to: ProcessID(application.process))
        } catch let failure as KernelFailure where failure.isNoSuchProcess || failure.isNoSuchFile {
            // The process has ended; its pidfd reports that in a moment.
            return
        } catch {
            journal.log(.warning, failure: "\(error)", of: application)
        }
    }

    private func remove(_ number: ApplicationNumber, _ reason: ExitReason) {
        guard let application = table.remove(number) else { return }
        sensor.unwatch(number)
        freezer.remove(application)
        inhibitors.close(of: number)
        reclaimer.ended(application, reason)
        announcer.removed(application, reason)
        keeper?.leave(application)
    }
}
