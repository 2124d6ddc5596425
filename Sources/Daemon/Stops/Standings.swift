import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Whether and how the main processes of applications are stopped, and the freezes behind this. It is read in
/// one place, from the kernel only.
///
/// `cgroup.events` reports that a cgroup freezes or thaws, whatever has caused it.
final class Standings {
    private final class Watched {
        /// The cgroup that the process was in at the last look; nil: none, or it could not be watched.
        var here: Cgroup?
        /// The application's unit, or that cgroup.
        var unit: Cgroup?
        var events: CgroupEvents?
        var sources: [Source] = []

        func forget() { (here, unit, events, sources) = (nil, nil, nil, []) }
    }

    /// The most cgroups around the process that are checked for a freeze, its unit being the last: a user may nest
    /// thousands.
    static let mostLevels = 9

    private let loop: EventLoop
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    private let core: Core
    private let table: ApplicationTable
    private var watched: [ApplicationNumber: Watched] = [:]
    /// Those of which the kernel has reported a freeze or thaw; `standing` returns the present situation.
    private var changed: Set<ApplicationNumber> = []

    init(loop: EventLoop, proc: Proc, hierarchy: UnifiedHierarchy?, core: Core, table: ApplicationTable) {
        self.loop = loop
        self.proc = proc
        self.hierarchy = hierarchy
        self.core = core
        self.table = table
    }

    // MARK: Standings

    /// The standing of an application's main process; nil: it has ended, or it cannot be read now.
    func standing(of number: ApplicationNumber) -> Standing? { try? read(number) }

    /// The standing of an application's main process; nil: it has ended. Throws if it cannot be read now, for example
    /// because of a lack of descriptors.
    func read(_ number: ApplicationNumber) throws(KernelFailure) -> Standing? {
        guard let process = table[number]?.process else { return nil }
        let isStopped = core.application(number)?.isStopped == true
        let freeze = try freeze(of: number, isStanding: isStopped)
        // Just after a thaw the process sleeps until it takes the pending signals.
        return try proc.standing(of: process, asleep: isStopped, freeze: freeze)
    }

    /// Whether its main process executes nothing, because it is stopped, or frozen with its cgroup. nil: it has ended, or
    /// that cannot be read now.
    func stands(_ number: ApplicationNumber) -> Bool? {
        standing(of: number)?.isStanding(before: core.application(number)?.isStopped == true)
    }

    /// Those of which the kernel has reported a freeze or thaw since the last call.
    func takeChanged() -> Set<ApplicationNumber> {
        if changed.isEmpty { return [] }
        defer { changed = [] }
        return changed
    }

    // MARK: Cgroups

    /// Watches the cgroup of an application's process, and its unit. If called again, it checks whether the process is
    /// in another cgroup now.
    func watch(_ number: ApplicationNumber) {
        if watched[number] == nil { watched[number] = Watched() }
        _ = try? follow(number)
    }

    func unwatch(_ number: ApplicationNumber) { watched[number] = nil }

    /// The process may have been moved. A cgroup that cannot be watched now is tried again at the next check. Throws if
    /// we do not have enough descriptors for it.
    private func follow(_ number: ApplicationNumber) throws(KernelFailure) -> Watched? {
        guard let entry = watched[number], let process = table[number]?.process, let hierarchy else {
            return nil
        }
        let here: Cgroup
        do throws(KernelFailure) {
            here = try Cgroup.of(process.pid, in: hierarchy, proc: proc)
        } catch {
            // For example because of a lack of descriptors: the earlier information stays valid until
            // something else is found.
            if error.isNoSuchProcess || error.isNoSuchCgroup { entry.forget() }
            return entry
        }
        if here == entry.here { return entry }
        entry.forget()
        guard !here.isRoot else { return entry }
        let unit = here.applicationUnit ?? here
        guard let events = try events(of: here), let source = watch(events, number) else { return entry }
        var sources = [source]
        if unit != here {
            guard let above = try self.events(of: unit), let source = watch(above, number) else {
                return entry
            }
            sources.append(source)
        }
        (entry.here, entry.unit, entry.events, entry.sources) = (here, unit, events, sources)
        return entry
    }

    /// nil: it cannot be watched.
    private func events(of cgroup: Cgroup) throws(KernelFailure) -> CgroupEvents? {
        do throws(KernelFailure) {
            return try CgroupEvents(cgroup)
        } catch {
            if error.isExhaustion { throw error }
            return nil
        }
    }

    private func watch(_ events: CgroupEvents, _ number: ApplicationNumber) -> Source? {
        try? loop.watch(events.descriptor, for: .priority) { [weak self] _ in self?.read(number, events) }
    }

    /// The nearest cgroup around the process, up to the application's unit, that was ordered to freeze. A
    /// freeze of an ancestor is not a hold, because it may be for the machine's sleep (§ 2).
    func toldCgroup(of number: ApplicationNumber) -> Cgroup? {
        guard let entry = try? follow(number) else { return nil }
        return try? toldCgroup(of: entry)
    }

    private func toldCgroup(of entry: Watched) throws(KernelFailure) -> Cgroup? {
        var next = entry.here
        var levels = 0
        while let cgroup = next, cgroup != entry.unit, levels < Self.mostLevels - 1 {
            if try cgroup.isToldToFreeze() { return cgroup }
            next = cgroup.parent
            levels += 1
        }
        guard let unit = entry.unit, try unit.isToldToFreeze() else { return nil }
        return unit
    }

    /// The freeze that stops its process. While a process in its cgroup dies or is moved in, the cgroup is not frozen
    /// for a moment.
    ///
    /// - Parameter isStanding: for a process that was already stopped the order to freeze counts, complete or not.
    private func freeze(
        of number: ApplicationNumber, isStanding: Bool
    ) throws(KernelFailure) -> Standing.Freeze? {
        guard let entry = try follow(number) else { return nil }
        let isComplete = (try? entry.events?.read())?.isFrozen == true
        guard isComplete || isStanding, let cgroup = try toldCgroup(of: entry) else { return nil }
        let isOurs = table[number].flatMap(table.frozenCgroup) == cgroup
        return Standing.Freeze(cgroup: cgroup.name, isOurs: isOurs, isComplete: isComplete)
    }

    private func read(_ number: ApplicationNumber, _ events: CgroupEvents) {
        do throws(KernelFailure) {
            try events.read()
        } catch {
            // The cgroup is gone; a source that stays ready would keep the loop busy forever.
            watched[number]?.forget()
        }
        changed.insert(number)
    }
}

extension Cgroup {
    /// Whether it was ordered to freeze; false for a cgroup that is gone.
    fileprivate func isToldToFreeze() throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            return try wantsFrozen()
        } catch {
            if error.isNoSuchCgroup { return false }
            throw error
        }
    }
}

extension Proc {
    /// The standing of a process. nil: it has ended.
    ///
    /// - Parameters:
    ///   - asleep: see `signalStop`.
    ///   - freeze: that of its cgroup.
    fileprivate func standing(
        of process: ProcessIdentity, asleep: Bool, freeze: Standing.Freeze?
    ) throws(KernelFailure) -> Standing? {
        let stop: SignalStop
        do throws(KernelFailure) {
            stop = try signalStop(of: process, asleep: asleep || freeze != nil)
        } catch {
            if error.isNoSuchProcess || error.isNoSuchFile { return nil }
            throw error
        }
        return switch stop {
        case .stopped: Standing(signal: .stopped, freeze: freeze)
        case .pending: Standing(signal: .pending, freeze: freeze)
        case .none: Standing(signal: .none, freeze: freeze)
        case .ended: nil
        }
    }
}
