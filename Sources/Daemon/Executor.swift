import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Carries out what the life cycle decided. Decides nothing; what comes of it is reported as a fact.
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
    /// nil only until it is made: it asks us who is who.
    private(set) var stops: Stops?
    private(set) var registered: [ApplicationNumber: Registered] = [:]
    /// Of memory pressure, as it was announced last.
    private var level = MemoryPressure.normal
    private var numbers: [ProcessIdentity: ApplicationNumber] = [:]
    /// Processes at which an extent ends: those that are applications of their own, and us.
    private var foreignProcesses: Set<ProcessIdentity> = []
    /// What has changed and is still to be announced, and whose it is in the order in which it did.
    private var changes: [ApplicationNumber: Set<ApplicationProperty>] = [:]
    private var changed: [ApplicationNumber] = []

    init(
        proc: Proc, processes: Processes, sensor: StopSensor, announcer: Announcer, resources: Resources,
        reclaimer: Reclaimer, lowMemory: LowMemoryMonitor, pressure: PressureSensor, journal: Journal
    ) {
        self.proc = proc
        self.processes = processes
        self.sensor = sensor
        self.announcer = announcer
        self.resources = resources
        self.reclaimer = reclaimer
        self.lowMemory = lowMemory
        self.pressure = pressure
        self.journal = journal
        if let ownProcess = try? proc.identity(of: getpid()) { foreignProcesses.insert(ownProcess) }
        resources.isForeign = { [unowned self] in isForeign($0) }
        reclaimer.find = { [unowned self] in registered[$0] }
        reclaimer.foreign = { [unowned self] in foreignProcesses }
        resources.foreign = { [unowned self] in foreignProcesses }
    }

    func use(_ stops: Stops) {
        self.stops = stops
        stops.foreign = { [unowned self] in foreignProcesses }
        reclaimer.stands = { [unowned stops] in stops.stands($0.number, $0.process) == true }
        reclaimer.ownCgroup = { [unowned stops] in stops.ownCgroup(of: $0) }
        reclaimer.killed = { [unowned stops] in stops.haveKilled($0) }
        stops.isReclaiming = { [unowned reclaimer] in reclaimer.isKilling($0) }
    }

    /// Takes note of how an application is reached; before the effects of its registration.
    ///
    /// - Parameter entries: what an earlier daemon left to bring back what it had of its own; nil: it is new.
    func enroll(_ application: Registered, adopting entries: [String]? = nil) {
        registered[application.number] = application
        numbers[application.process] = application.number
        foreignProcesses.insert(application.process)
        sensor.watch(application.number, application.process)
        stops?.watch(application)
        if let entries {
            resources.adopt(entries, for: application)
        } else {
            resources.enroll(application)
        }
        pressure.noteUser(application.user)
    }

    func carryOut(_ effect: Effect) {
        switch effect {
        case .added(let number):
            if let application = registered[number] { announcer.added(application) }
        case .removed(let number, let reason):
            remove(number, reason)
        case .announce(let number, let announcement, let audience):
            if let application = registered[number] {
                announcer.announce(application, announcement, to: audience)
            }
        case .changed(let number, let properties):
            if let application = registered[number] {
                note(properties, of: number)
                if properties.contains(.state) { resources.stateChanged(application) }
            }
        case .focusChanged(let session):
            announcer.focusChanged(in: session)
        case .stop(let number):
            stops?.stop(number)
        case .resume(let number, let sparingMain):
            stops?.resume(number, sparingMain: sparingMain)
        case .breathe(let number):
            stops?.breathe(number)
        case .continueForeign(let number):
            stops?.continueForeign(number)
        case .requestExit(let number):
            requestExit(number)
        case .kill(let number):
            stops?.kill(number)
        case .reclaim(let number):
            if let application = registered[number] { reclaimer.end(application) }
        case .willReclaim(let number):
            if let application = registered[number] { reclaimer.willEnd(application) }
        case .pageOut(let number):
            reclaimer.pageOut(number)
        case .sampleMemory(let source):
            pressure.sample(source)
        case .alarmMemory(let source, let bytes):
            pressure.alarm(source, after: bytes)
        case .measureMemory(let numbers):
            reclaimer.measure(numbers, pressure.parts)
        case .memoryPressureChanged(let level):
            // On a machine that works, warnings come and go.
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
            if let application = registered[number] {
                journal.log(notice, about: application)
            }
        }
    }

    /// Announces which properties have changed since this was called last: once for all edges of a walk, and for a hold
    /// together with what comes of it.
    func announceChanges() {
        for number in changed {
            guard let properties = changes[number], let application = registered[number] else { continue }
            announcer.changed(application, properties)
        }
        changes.removeAll(keepingCapacity: true)
        changed.removeAll(keepingCapacity: true)
    }

    private func note(_ properties: Set<ApplicationProperty>, of number: ApplicationNumber) {
        if changes[number] == nil { changed.append(number) }
        changes[number, default: []].formUnion(properties)
    }

    /// Whether an extent ends at this process: it is an application of its own, or it is us.
    func isForeign(_ process: ProcessIdentity) -> Bool {
        foreignProcesses.contains(process)
    }

    /// Ends all stops, continuations and kills that were begun, however long it takes: the daemon ends.
    func finish() {
        stops?.finish()
        reclaimer.finish()
    }

    // MARK: The end

    private func requestExit(_ number: ApplicationNumber) {
        if let application = registered[number] { signal(SIGTERM, application) }
    }

    /// To the main process, if it is still its user's.
    private func signal(_ signal: Int32, _ application: Registered) {
        do {
            let status = try proc.status(application.process.pid)
            guard status.owner.isWholly(application.user) else {
                throw KernelFailure(
                    operation: "signal \(signal)", subject: application.process.description, errno: EPERM)
            }
            try processes.send(signal, to: ProcessID(application.process))
        } catch let failure as KernelFailure where failure.isNoSuchProcess || failure.isNoSuchFile {
            // It has ended; its pidfd says so in a moment.
            return
        } catch {
            journal.log(.warning, failure: "\(error)", of: application)
        }
    }

    private func remove(_ number: ApplicationNumber, _ reason: ExitReason) {
        guard let application = registered.removeValue(forKey: number) else { return }
        // Its process may have registered itself in its place.
        if numbers[application.process] == number {
            numbers[application.process] = nil
            foreignProcesses.remove(application.process)
        }
        sensor.unwatch(number)
        resources.remove(application)
        stops?.remove(application)
        reclaimer.ended(application, reason)
        announcer.removed(application, reason)
    }
}
