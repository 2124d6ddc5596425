import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Sees the cgroups of applications freeze and thaw, by whomever: the kernel tells by `cgroup.events`.
final class FreezeSensor {
    private final class Watched {
        let events: CgroupEvents
        let process: ProcessIdentity
        var source: Source?

        init(_ events: CgroupEvents, _ process: ProcessIdentity) {
            self.events = events
            self.process = process
        }
    }

    private let loop: EventLoop
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    private let changed: (ApplicationNumber) -> Void
    private var watched: [ApplicationNumber: Watched] = [:]

    /// - Parameter changed: called after a notification; `isFrozen` tells what is.
    init(
        loop: EventLoop, proc: Proc, hierarchy: UnifiedHierarchy?,
        changed: @escaping (ApplicationNumber) -> Void
    ) {
        self.loop = loop
        self.proc = proc
        self.hierarchy = hierarchy
        self.changed = changed
    }

    /// Watches the cgroup of an application: its unit, or the one that its process is in. Called again, it looks
    /// whether the process is in another one now.
    func watch(_ number: ApplicationNumber, _ process: ProcessIdentity) {
        guard let hierarchy, let here = try? Cgroup.of(process.pid, in: hierarchy, proc: proc) else { return }
        let cgroup = here.applicationUnit ?? here
        guard !cgroup.isRoot, watched[number]?.events.cgroup != cgroup else { return }
        watched[number] = nil
        guard let events = try? CgroupEvents(cgroup) else { return }
        let entry = Watched(events, process)
        entry.source = try? loop.watch(events.descriptor, for: .priority) { [weak self] _ in
            self?.read(number)
        }
        watched[number] = entry
    }

    func unwatch(_ number: ApplicationNumber) { watched[number] = nil }

    /// The cgroup that is watched, if it was told to freeze, and its process is still in it. A freeze of an ancestor is
    /// nobody's: it is for the machine's sleep, say (§ 2).
    func toldCgroup(of number: ApplicationNumber) -> Cgroup? {
        guard let entry = watched[number], (try? entry.events.cgroup.wantsFrozen()) == true, isInside(entry)
        else { return nil }
        return entry.events.cgroup
    }

    /// The same, if it has frozen. While one in it dies, or comes in, it has not, for a moment.
    func frozenCgroup(of number: ApplicationNumber) -> Cgroup? {
        guard (try? watched[number]?.events.read())?.isFrozen == true else { return nil }
        return toldCgroup(of: number)
    }

    /// Somebody may have moved it.
    private func isInside(_ entry: Watched) -> Bool {
        let cgroup = entry.events.cgroup
        return (try? Cgroup.of(entry.process.pid, in: cgroup.hierarchy, proc: proc))?.isWithin(cgroup) == true
    }

    private func read(_ number: ApplicationNumber) {
        guard let entry = watched[number] else { return }
        do throws(KernelFailure) {
            try entry.events.read()
        } catch {
            // The cgroup is gone; a source that stays ready would turn the loop for ever.
            watched[number] = nil
        }
        changed(number)
    }
}
