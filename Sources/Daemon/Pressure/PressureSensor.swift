import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Makes the kernel report when memory is short, and reads how much is left on request (§ 6).
///
/// In normal operation there are only the triggers and the alarm. There is no timer, and no file is read
/// before one of them fires.
final class PressureSensor {
    private let loop: EventLoop
    private let proc: Proc
    private let journal: Journal
    private let handed: HandedOver
    private let hierarchy: UnifiedHierarchy?
    private let report: (Fact) -> Void
    private lazy var machine = MachineMemory(proc: proc) { [loop] in loop.now }
    private let hasEnded: (PressureSource) -> Bool
    private let front: (PressureSource) -> FrontSensor.Front?
    private let fronts = FrontSensor()
    private var watched: [PressureSource: Watched] = [:]
    private var settings: PressureSettings?
    private var users: Set<UInt32> = []
    /// The sources that could not be read the last time.
    private var unreadable: Set<PressureSource> = []
    /// Sources that could not be watched the last time.
    private var failed: Set<PressureSource> = []
    private var alarm: FaultAlarm?
    private var alarmSources: [Source] = []
    /// The bytes that may be allocated before each of these sources is reported.
    private var alarms: [PressureSource: UInt64] = [:]
    /// The values with which the alarm was armed: the faults of one CPU, and the bytes that were left at that
    /// time.
    private var armed: (faults: UInt64, available: UInt64)?
    private var bytesPerFault = PressureSensor.usualBytesPerFault

    /// A fault allocates a page of 4 KiB, and sometimes more at once.
    private static let usualBytesPerFault: UInt64 = 16 << 10
    /// Huge pages are 2 MiB.
    private static let bytesPerFaults: ClosedRange<UInt64> = 4 << 10...2 << 20
    /// An alarm should not fire more often than once in this many faults of a CPU.
    private static let leastFaults: UInt64 = 1_024

    private final class Watched {
        /// Whether its PSI file is a cgroup's, and not the machine's.
        let isOfCgroup: Bool
        let limits: CgroupLimits?
        var triggers: [Armed] = []
        let stalls: PressureFile
        var sources: [Source] = []

        init(isOfCgroup: Bool, _ limits: CgroupLimits?, _ stalls: PressureFile) {
            self.isOfCgroup = isOfCgroup
            self.limits = limits
            self.stalls = stalls
        }

        // Before the descriptors are closed.
        deinit { for source in sources { source.cancel() } }
    }

    /// A trigger, and the total stall when it was set or last fired.
    private final class Armed {
        let trigger: PressureTrigger
        var total: UInt64

        init(_ trigger: PressureTrigger, _ figures: PressureFile.Figures) {
            self.trigger = trigger
            total = figures[trigger.inForce.kind]
        }

        /// Whether the stall since then confirms the trigger. A trigger that was set without CAP_SYS_RESOURCE fires
        /// without a reason in its first windows: it begins with the count of one of the kernel's two clocks, and
        /// continues with the other's (kernel/sched/psi.c, `psi_trigger_create`).
        func isTrue(_ figures: PressureFile.Figures) -> Bool {
            let now = figures[trigger.inForce.kind]
            defer { total = now }
            return now - min(now, total) >= UInt64(trigger.inForce.stall) / 2
        }
    }

    private static let machineFile = "/proc/pressure/memory"

    /// - Parameters:
    ///   - front: the active application that a source concerns, if it is the only one.
    ///   - hasEnded: whether an application was ended for a source in the present event.
    init(
        loop: EventLoop, proc: Proc, handed: HandedOver, journal: Journal,
        front: @escaping (PressureSource) -> FrontSensor.Front?,
        hasEnded: @escaping (PressureSource) -> Bool, report: @escaping (Fact) -> Void
    ) {
        self.front = front
        self.hasEnded = hasEnded
        self.handed = handed
        self.loop = loop
        self.proc = proc
        self.journal = journal
        self.report = report
        hierarchy = UnifiedHierarchy.find()
    }

    // MARK: The alarm

    /// Memory that is being taken rings from now on.
    func start() {
        openAlarm()
        arm()
    }

    private func openAlarm() {
        journal.attempt(.info, "memory that is being taken is detected by stalls alone") {
            let alarm = try FaultAlarm(handed: handed)
            alarmSources = try alarm.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.rang() }
            }
            self.alarm = alarm
        }
    }

    /// The alarm does not cover a CPU that has come online since, so it is opened again.
    func renewAlarm() {
        guard alarm != nil else { return }
        alarmSources = []
        alarm = nil
        openAlarm()
        arm()
    }

    /// Carries out `alarmMemory`.
    func alarm(_ source: PressureSource, after bytes: UInt64?) {
        // A pressure event is over, or begins.
        fronts.forget(source)
        guard alarms[source] != bytes else { return }
        // The count begins again for all sources: what was taken since the last time is already used up.
        if let armed, let left = available, left < armed.available {
            let taken = armed.available - left
            alarms = alarms.mapValues { $0 - min($0, taken) }
        }
        alarms[source] = bytes
        arm()
    }

    private func arm() {
        guard let alarm else { return }
        do {
            guard let bytes = alarms.values.min() else {
                armed = nil
                return try alarm.disarm()
            }
            // Each CPU counts separately: together they may have allocated this much before the first one
            // fires.
            let share = bytes / bytesPerFault / UInt64(alarm.descriptors.count)
            let faults = max(share, Self.leastFaults)
            armed = (faults, available ?? 0)
            try alarm.arm(after: faults)
        } catch {
            journal.log(.notice, "\(error)")
        }
    }

    private func rang() {
        guard let alarm, alarm.take(), let armed else { return }
        // At least this much was allocated with that many faults, and the same is expected of the next ones.
        let taken = armed.available - min(armed.available, available ?? 0)
        let seen = min(
            max(taken / armed.faults, Self.bytesPerFaults.lowerBound), Self.bytesPerFaults.upperBound)
        bytesPerFault = max(seen, (bytesPerFault + Self.bytesPerFaults.lowerBound) / 2)
        let sources = alarms.keys
        alarms = [:]
        for source in sources { report(.memoryTaken(source)) }
        if alarms.isEmpty { arm() }
    }

    /// Watches what the configuration names. By default that is the machine, and each user slice with applications.
    func configure(_ settings: PressureSettings) {
        if let old = self.settings, old.sources == settings.sources, old.warning == settings.warning,
            old.critical == settings.critical
        {
            if watchMissing(settings) { report(.pressureSources(Array(watched.keys))) }
            return
        }
        self.settings = settings
        watched = [:]
        alarms = [:]
        fronts.forgetAll()
        arm()
        failed = []
        watchMissing(settings)
        for user in users { watchSlice(of: user, settings) }
        report(.pressureSources(Array(watched.keys)))
    }

    /// An application of this user was registered: from now on the user's slice is watched, if it has PSI of its own. A
    /// configured source may be such a slice, which exists only while the user is logged in.
    func noteUser(_ user: UInt32) {
        users.insert(user)
        guard let settings else { return }
        let hasFound = watchMissing(settings)
        let isWatched = watched.keys.contains { $0.user == user }
        if !isWatched && watchSlice(of: user, settings) || hasFound {
            report(.pressureSources(Array(watched.keys)))
        }
    }

    /// Carries out `sampleMemory`.
    func sample(_ source: PressureSource) {
        guard let entry = watched[source] else { return }
        do throws(KernelFailure) {
            let sample = try read(entry, source)
            unreadable.remove(source)
            report(.memorySampled(source, sample))
        } catch {
            // If the cgroup is gone, so are the processes that used its memory.
            if error.isNoSuchCgroup { return lose(source, "\(error)") }
            if unreadable.insert(source).inserted {
                journal.log(.notice, "the memory of \(source) cannot be read at present: \(error)")
            }
            report(.memoryUnreadable(source))
        }
    }

    /// The cgroups of the sources that cover a part of the machine.
    var parts: [PressureSource: Cgroup] {
        guard let hierarchy else { return [:] }
        var parts: [PressureSource: Cgroup] = [:]
        for source in watched.keys where source.isPart { parts[source] = source.cgroup(in: hierarchy) }
        return parts
    }

    /// What is left of the machine's memory, in bytes.
    var available: UInt64? { machine.figures?.available }

    private func read(
        _ entry: Watched, _ source: PressureSource
    ) throws(KernelFailure) -> MemorySample {
        guard let figures = machine.figures else {
            throw KernelFailure(operation: "read", subject: "\(proc.root)/meminfo", errno: EIO)
        }
        if let least = try entry.limits?.read(below: figures.total) {
            return MemorySample(
                available: min(least.memory.headroom, figures.available), total: least.memory.limit,
                swapTotal: figures.swapTotal, swapFree: figures.swapFree,
                // Stalls inside the cgroup do not show that the limit of one above it is reached.
                isLimited: least.isOwn && entry.isOfCgroup)
        }
        let counters = machine.files
        return MemorySample(
            available: figures.available, total: figures.total, swapTotal: figures.swapTotal,
            swapFree: figures.swapFree, perCPU: hasEnded(source) ? machine.perCPU : 0,
            waited: (try? entry.stalls.read())?.some ?? 0,
            searches: entry.isOfCgroup ? nil : counters?.searches, files: counters.map(FileCache.init),
            front: fronts.read(front(source), of: source, at: loop.now))
    }

    // MARK: What is watched

    /// Watches the configured sources that are not watched yet. Returns whether there are any now.
    @discardableResult
    private func watchMissing(_ settings: PressureSettings) -> Bool {
        var hasFound = false
        for path in settings.sources.isEmpty ? [Self.machineFile] : settings.sources {
            let source = PressureSource(configured: path, in: hierarchy)
            guard watched[source] == nil else { continue }
            watch(source, settings)
            hasFound = hasFound || watched[source] != nil
        }
        return hasFound
    }

    @discardableResult
    private func watchSlice(of user: UInt32, _ settings: PressureSettings) -> Bool {
        // systemd.slice(5), systemd.special(7): user.slice holds one slice for each user.
        let path = "/user.slice/user-\(user).slice"
        guard settings.sources.isEmpty, let hierarchy, let cgroup = Cgroup(path: path, in: hierarchy) else {
            return false
        }
        let source = PressureSource(path: cgroup.directory + "/memory.pressure", user: user)
        // It is tried again at this user's next registration, which may come from a process in the slice.
        if cgroup.has("memory.pressure") { watch(source, settings) }
        return watched[source] != nil
    }

    private func watch(_ source: PressureSource, _ settings: PressureSettings) {
        let entry: Watched
        do {
            // A file that is not PSI is refused before anything is written to it.
            let stalls = try PressureFile(path: source.path)
            _ = try stalls.read()
            let cgroup = hierarchy.flatMap { source.cgroup(in: $0) }
            // In a container, the machine's memory is that of the topmost cgroup, if that has a limit.
            let limited = cgroup ?? hierarchy.flatMap { Cgroup(path: "/", in: $0) }
            entry = Watched(
                isOfCgroup: cgroup.map { !$0.isRoot } ?? false,
                limited.flatMap { CgroupLimits($0) },
                stalls)
            for (wanted, level) in [
                (settings.warning, MemoryPressure.warning), (settings.critical, .critical),
            ] {
                guard let threshold = PressureThreshold(wanted) else { continue }
                let trigger = try PressureTrigger(path: source.path, threshold)
                if trigger.inForce != threshold {
                    journal.log(
                        .info,
                        "\(source): without CAP_SYS_RESOURCE \(threshold) is watched as \(trigger.inForce)")
                }
                let armed = Armed(trigger, try entry.stalls.read())
                entry.sources.append(
                    try loop.watch(trigger.descriptor, for: .priority) { [weak self, weak armed] events in
                        if let armed { self?.fired(source, level, armed, events) }
                    })
                entry.triggers.append(armed)
            }
        } catch {
            // A missing source is tried again at each registration.
            if failed.insert(source).inserted {
                journal.log(.warning, "\(source) is not watched for memory pressure: \(error)")
            }
            return
        }
        failed.remove(source)
        watched[source] = entry
    }

    private func fired(
        _ source: PressureSource, _ level: MemoryPressure, _ armed: Armed, _ events: Readiness
    ) {
        // POLLERR: the cgroup is gone, and the descriptor stays ready (psi.rst).
        if events.contains(.error) {
            lose(source, "it is gone")
        } else if let figures = try? watched[source]?.stalls.read(), armed.isTrue(figures) {
            report(.pressureTriggered(source, level))
        }
    }

    private func lose(_ source: PressureSource, _ why: String) {
        watched[source] = nil
        unreadable.remove(source)
        alarm(source, after: nil)
        journal.log(.notice, "\(source) is no longer watched for memory pressure: \(why)")
        report(.pressureSources(Array(watched.keys)))
    }
}

extension FileCache {
    fileprivate init(_ figures: FileCacheCounters.Figures) {
        self.init(
            cached: figures.cached, evicted: figures.evicted, reclaimed: figures.reclaimed,
            refaulted: figures.refaulted)
    }
}

extension PressureThreshold {
    fileprivate init?(_ trigger: PressureSettings.Trigger) {
        self.init(
            trigger.kind == .full ? .full : .some, stall: UInt32(clamping: trigger.stall),
            window: UInt32(clamping: trigger.window))
    }
}

extension PressureSource {
    private static let file = "/memory.pressure"

    /// What `Source=` names. A cgroup's PSI is that of the cgroup, and if the cgroup is a user's slice, that of the
    /// user.
    init(configured path: String, in hierarchy: UnifiedHierarchy?) {
        guard let hierarchy, let cgroup = Self(path: path).cgroup(in: hierarchy), !cgroup.isRoot else {
            self.init(path: path)
            return
        }
        // systemd.special(7): user.slice holds one slice for each user.
        let names = cgroup.path.split(separator: "/")
        var user: UInt32?
        if names.count > 1, names[0] == "user.slice", names[1].hasPrefix("user-"),
            names[1].hasSuffix(".slice")
        {
            user = UInt32(names[1].dropFirst("user-".count).dropLast(".slice".count))
        }
        self.init(path: path, user: user, isPart: user == nil || names.count > 2)
    }

    /// The cgroup that the file is in; nil if it is in none, like the machine's file.
    func cgroup(in hierarchy: UnifiedHierarchy) -> Cgroup? {
        guard path.hasPrefix(hierarchy.mountPoint + "/"), path.hasSuffix(Self.file) else { return nil }
        let below = path.dropFirst(hierarchy.mountPoint.count).dropLast(Self.file.count)
        return Cgroup(path: below.isEmpty ? "/" : String(below), in: hierarchy)
    }
}
