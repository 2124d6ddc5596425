import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Whether and how the main processes of applications are stopped, and the freezes behind this. It is read in
/// one place, from the kernel only.
///
/// `cgroup.events` reports that a cgroup freezes or thaws, whatever has caused it.
final class StopReader {
    /// The cgroup that a process was in at the last reading.
    private struct Place {
        let cgroup: Cgroup
        let events: CgroupEvents
        let source: Source
    }

    /// The most freezes, one within another, that `Resume` lifts.
    static let mostLevels = 9

    private let loop: EventLoop
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    private let core: Core
    private let table: ApplicationTable
    private var places: [ApplicationNumber: Place] = [:]
    /// Those of which the kernel has reported a freeze or thaw, or that were moved; `reading` returns the present
    /// situation.
    private var changed: Set<ApplicationNumber> = []

    init(loop: EventLoop, proc: Proc, hierarchy: UnifiedHierarchy?, core: Core, table: ApplicationTable) {
        self.loop = loop
        self.proc = proc
        self.hierarchy = hierarchy
        self.core = core
        self.table = table
    }

    // MARK: StopReader

    /// How an application's main process is stopped; nil: it has ended, or it cannot be read now.
    func reading(of number: ApplicationNumber) -> StopReading? { try? read(number) }

    /// How an application's main process is stopped; nil: it has ended. Throws if it cannot be read now, for example
    /// because of a lack of descriptors.
    func read(_ number: ApplicationNumber) throws(KernelFailure) -> StopReading? {
        guard let process = table[number]?.process else { return nil }
        let isStopped = core.application(number)?.isStopped == true
        let freeze = try freeze(of: number, isStopped: isStopped)
        let stop: Proc.SignalStop
        do throws(KernelFailure) {
            // Just after a thaw the process sleeps until it takes the pending signals.
            stop = try proc.signalStop(of: process, asleep: isStopped || freeze != nil)
        } catch {
            if error.isNoSuchProcess || error.isNoSuchFile { return nil }
            throw error
        }
        return switch stop {
        case .stopped: StopReading(signal: .stopped, freeze: freeze)
        case .pending: StopReading(signal: .pending, freeze: freeze)
        case .none: StopReading(signal: .none, freeze: freeze)
        case .ended: nil
        }
    }

    /// Whether its main process executes nothing, because it is stopped, or frozen with its cgroup. nil: it has ended, or
    /// that cannot be read now.
    func isStopped(_ number: ApplicationNumber) -> Bool? {
        reading(of: number)?.isStopped(before: core.application(number)?.isStopped == true)
    }

    /// Those of which the kernel has reported a freeze or thaw since the last call.
    func popChanged() -> Set<ApplicationNumber> {
        if changed.isEmpty { return [] }
        defer { changed = [] }
        return changed
    }

    // MARK: Cgroups

    /// Watches the cgroup of an application's process. If called again, it checks whether the process is in another
    /// cgroup now.
    func watch(_ number: ApplicationNumber) { _ = try? place(of: number) }

    func unwatch(_ number: ApplicationNumber) { places[number] = nil }

    /// Where its process is, which is watched from now on; nil: there is nothing to watch. Throws if we do not have
    /// enough descriptors for it.
    private func place(of number: ApplicationNumber) throws(KernelFailure) -> Place? {
        guard let process = table[number]?.process, let hierarchy else { return nil }
        let here: Cgroup
        do throws(KernelFailure) {
            here = try Cgroup.of(process.pid, in: hierarchy, proc: proc)
        } catch {
            if error.isNoSuchProcess || error.isNoSuchCgroup { places[number] = nil }
            // For example because of a lack of descriptors: the earlier information stays valid.
            return places[number]
        }
        if let place = places[number], place.cgroup == here { return place }
        // It was moved: whatever happens in the former cgroup is not seen any more.
        if places.removeValue(forKey: number) != nil { changed.insert(number) }
        if here.isRoot { return nil }
        do throws(KernelFailure) {
            let events = try CgroupEvents(here)
            let source = try? loop.watch(events.descriptor, for: .priority) { [weak self] _ in
                self?.read(number, events)
            }
            places[number] = source.map { Place(cgroup: here, events: events, source: $0) }
        } catch {
            if error.isExhaustion { throw error }
        }
        return places[number]
    }

    private func read(_ number: ApplicationNumber, _ events: CgroupEvents) {
        // If the cgroup is gone, its source stays ready, and would keep the loop busy forever.
        if (try? events.read()) == nil { places[number] = nil }
        changed.insert(number)
    }

    /// The nearest cgroup around the process, up to the application's unit, that was ordered to freeze. A
    /// freeze of an ancestor is not a hold, because it may be for the machine's sleep (§ 2).
    func cgroupOrderedToFreeze(of number: ApplicationNumber) -> Cgroup? {
        guard let place = try? place(of: number) else { return nil }
        return try? cgroupOrderedToFreeze(around: place.cgroup)
    }

    private func cgroupOrderedToFreeze(around here: Cgroup) throws(KernelFailure) -> Cgroup? {
        let unit = here.applicationUnit ?? here
        for cgroup in sequence(first: here, next: \.parent) {
            do throws(KernelFailure) {
                if try cgroup.wantsFrozen() { return cgroup }
            } catch {
                if !error.isNoSuchCgroup { throw error }
            }
            if cgroup == unit { break }
        }
        return nil
    }

    /// The freeze that stops its process. While a process in its cgroup dies or is moved in, the cgroup is not frozen
    /// for a moment.
    ///
    /// - Parameter isStopped: for a process that was already stopped the order to freeze counts, complete or not.
    private func freeze(
        of number: ApplicationNumber, isStopped: Bool
    ) throws(KernelFailure) -> StopReading.Freeze? {
        guard let place = try place(of: number) else { return nil }
        // Not by the descriptor that is watched: that would take its next notification away.
        let isComplete = (try? place.cgroup.isFrozen()) == true
        guard isComplete || isStopped, let cgroup = try cgroupOrderedToFreeze(around: place.cgroup) else {
            return nil
        }
        let isOurs = table[number].flatMap(table.frozenCgroup) == cgroup
        return StopReading.Freeze(cgroup: cgroup.name, isOurs: isOurs, isComplete: isComplete)
    }
}
