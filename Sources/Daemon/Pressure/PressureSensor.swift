import AppStateBus
import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// Makes the kernel report when memory is short, and then reads how much is left: each report is one fact with
/// everything that was read (§ 6).
///
/// In normal operation there are only the triggers and the alarm. There is no timer, and no file is read before one of
/// them fires.
final class PressureSensor {
    private let loop: EventLoop
    private let journal: Journal
    private let handed: HandedOver
    private let hierarchy: UnifiedHierarchy?
    private let core: Core
    private let memory: MemoryReader
    private let reclaimer: Reclaimer
    private var watched: [PressureSource: Watched] = [:]
    private var settings: PressureSettings?
    private var users: Set<UInt32> = []
    /// The sources that could not be read the last time.
    private var unreadable: Set<PressureSource> = []
    /// Sources that could not be watched the last time.
    private var failed: Set<PressureSource> = []
    private var timer: Timer?
    /// What the timer and the alarm are set to.
    private var plan: Plan?
    private var alarm: FaultAlarm?
    private var alarmSources: [Source] = []
    /// The faults of one CPU after which the alarm fires, and the bytes that were left when it was armed.
    private var armed: (faults: UInt64, available: UInt64)?
    private var bytesPerFault = PressureSensor.usualBytesPerFault

    private struct Plan: Equatable {
        let reading: Microseconds?
        let alarm: UInt64?
    }

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

    init(
        loop: EventLoop, handed: HandedOver, journal: Journal, core: Core, memory: MemoryReader,
        reclaimer: Reclaimer
    ) throws {
        self.handed = handed
        self.loop = loop
        self.journal = journal
        self.core = core
        self.memory = memory
        self.reclaimer = reclaimer
        hierarchy = UnifiedHierarchy.find()
        timer = try loop.timer { [weak self] in self?.read() }
    }

    // MARK: When memory is read

    /// Memory that is being taken rings from now on.
    func start() {
        openAlarm()
    }

    private func openAlarm() {
        journal.attempt(.info, "memory that is being taken is detected by stalls alone") {
            let alarm = try FaultAlarm(handed: handed)
            alarmSources = try alarm.descriptors.map { descriptor in
                try loop.watch(descriptor) { [weak self] _ in self?.rang() }
            }
            self.alarm = alarm
        }
        plan = nil
    }

    /// The alarm does not cover a CPU that has come online since, so it is opened again.
    func renewAlarm() {
        guard alarm != nil else { return }
        alarmSources = []
        alarm = nil
        openAlarm()
        arm()
    }

    /// A step is over: sets the timer and the alarm for the next reading.
    func arm() {
        let next = Plan(reading: core.machine.nextReading, alarm: core.machine.memoryAlarm)
        guard next != plan else { return }
        plan = next
        if let reading = next.reading {
            timer?.arm(at: reading)
        } else {
            timer?.disarm()
            // Another application may be in front in the next event.
            memory.forgetFronts()
        }
        arm(after: next.alarm)
    }

    private func arm(after bytes: UInt64?) {
        guard let alarm else { return }
        do {
            guard let bytes else {
                if armed != nil { try alarm.disarm() }
                armed = nil
                return
            }
            // Each CPU counts separately: together they may have allocated this much before the first one
            // fires.
            let share = bytes / bytesPerFault / UInt64(alarm.descriptors.count)
            let faults = max(share, Self.leastFaults)
            armed = (faults, memory.available ?? 0)
            try alarm.arm(after: faults)
        } catch {
            journal.log(.notice, "\(error)")
        }
    }

    private func rang() {
        guard let alarm, alarm.consume(), let armed else { return }
        // At least this much was allocated with that many faults, and the same is expected of the next ones.
        let taken = armed.available - min(armed.available, memory.available ?? 0)
        let seen = min(
            max(taken / armed.faults, Self.bytesPerFaults.lowerBound), Self.bytesPerFaults.upperBound)
        bytesPerFault = max(seen, (bytesPerFault + Self.bytesPerFaults.lowerBound) / 2)
        read()
    }

    // MARK: Reading

    /// Reads all sources, and reports it.
    private func read(_ fired: (source: PressureSource, level: MemoryPressure)? = nil) {
        plan = nil
        let machine = memory.read(withLists: core.machine.needsCPULists)
        var readings = MemoryReadings([:])
        for (source, entry) in watched {
            let trigger = source == fired?.source ? fired?.level : nil
            do throws(KernelFailure) {
                let sample = try sample(entry, source, machine)
                unreadable.remove(source)
                readings.sources[source] = MemoryReadings.Reading(sample, trigger: trigger)
            } catch {
                // If the cgroup is gone, so are the processes that used its memory.
                if error.isNoSuchCgroup {
                    forget(source, "\(error)")
                    continue
                }
                if unreadable.insert(source).inserted {
                    journal.log(.notice, "the memory of \(source) cannot be read at present: \(error)")
                }
                readings.sources[source] = MemoryReadings.Reading(nil, trigger: trigger)
            }
        }
        if core.machine.needsSizes(at: loop.now, hasTriggered: fired != nil) {
            readings.sizes = reclaimer.sizes(parts)
        }
        core.report(.memory(readings))
    }

    private func sample(
        _ entry: Watched, _ source: PressureSource, _ machine: MemoryReader.Machine?
    ) throws(KernelFailure) -> MemorySample {
        guard let machine else {
            throw KernelFailure(operation: "read", subject: "/proc/meminfo", errno: EIO)
        }
        let figures = machine.figures
        if let least = try entry.limits?.read(below: figures.total) {
            return MemorySample(
                available: min(least.memory.headroom, figures.available), total: least.memory.limit,
                swapTotal: figures.swapTotal, swapFree: figures.swapFree,
                // Stalls inside the cgroup do not show that the limit of one above it is reached.
                isLimited: least.isOwn && entry.isOfCgroup)
        }
        return MemorySample(
            available: figures.available, total: figures.total, swapTotal: figures.swapTotal,
            swapFree: figures.swapFree, perCPU: machine.perCPU,
            waited: (try? entry.stalls.read())?.some ?? 0,
            searches: entry.isOfCgroup ? nil : machine.counters?.searches,
            files: machine.counters.map(FileCache.init),
            front: core.machine.front(of: source).flatMap { memory.front($0, at: loop.now) })
    }

    /// The cgroups of the sources that cover a part of the machine.
    private var parts: [PressureSource: Cgroup] {
        guard let hierarchy else { return [:] }
        var parts: [PressureSource: Cgroup] = [:]
        for source in watched.keys where source.isPart { parts[source] = source.cgroup(in: hierarchy) }
        return parts
    }

    // MARK: What is watched

    /// Watches what the configuration names. By default that is the machine, and each user slice with applications.
    func configure(_ settings: PressureSettings) {
        let old = self.settings
        self.settings = settings
        if old?.sources != settings.sources || old?.warning != settings.warning
            || old?.critical != settings.critical
        {
            watched = [:]
            failed = []
            for user in users { watchSlice(of: user, settings) }
        }
        watchMissing(settings)
        read()
    }

    /// An application of this user was registered: from now on the user's slice is watched, if it has PSI of its own. A
    /// configured source may be such a slice, which exists only while the user is logged in.
    func noteUser(_ user: UInt32) {
        users.insert(user)
        guard let settings else { return }
        let before = watched.count
        watchMissing(settings)
        if !watched.keys.contains(where: { $0.user == user }) { watchSlice(of: user, settings) }
        if watched.count > before { read() }
    }

    /// Watches the configured sources that are not watched yet.
    private func watchMissing(_ settings: PressureSettings) {
        for path in settings.sources.isEmpty ? [Self.machineFile] : settings.sources {
            let source = PressureSource(configured: path, in: hierarchy)
            if watched[source] == nil { watch(source, settings) }
        }
    }

    private func watchSlice(of user: UInt32, _ settings: PressureSettings) {
        // systemd.slice(5), systemd.special(7): user.slice holds one slice for each user.
        let path = "/user.slice/user-\(user).slice"
        guard settings.sources.isEmpty, let hierarchy, let cgroup = Cgroup(path: path, in: hierarchy) else {
            return
        }
        let source = PressureSource(path: cgroup.directory + "/memory.pressure", user: user)
        // It is tried again at this user's next registration, which may come from a process in the slice.
        if cgroup.has("memory.pressure") { watch(source, settings) }
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
                    try loop.watch(trigger.descriptor, for: .priority) { [weak self] events in
                        self?.fired(source, level, armed, events)
                    })
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
            forget(source, "it is gone")
            read()
        } else if let figures = try? watched[source]?.stalls.read(), armed.isTrue(figures) {
            read((source, level))
        }
    }

    private func forget(_ source: PressureSource, _ why: String) {
        watched[source] = nil
        unreadable.remove(source)
        journal.log(.notice, "\(source) is no longer watched for memory pressure: \(why)")
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
