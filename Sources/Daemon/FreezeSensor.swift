import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Sees the cgroups of applications freeze and thaw, by whomever: the kernel tells by `cgroup.events`.
final class FreezeSensor {
    private final class Watched {
        let process: ProcessIdentity
        /// The cgroup that the process was in when it was looked for last; nil: none that can be frozen.
        var here: Cgroup?
        /// Of that cgroup, and of the application's unit where that is another.
        var events: [CgroupEvents] = []
        var sources: [Source] = []

        init(_ process: ProcessIdentity) { self.process = process }
    }

    private let loop: EventLoop
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    private let changed: (ApplicationNumber) -> Void
    private var watched: [ApplicationNumber: Watched] = [:]

    /// - Parameter changed: called after a notification; `freeze` tells what is.
    init(
        loop: EventLoop, proc: Proc, hierarchy: UnifiedHierarchy?,
        changed: @escaping (ApplicationNumber) -> Void
    ) {
        self.loop = loop
        self.proc = proc
        self.hierarchy = hierarchy
        self.changed = changed
    }

    /// Watches the cgroup of an application's process, and its unit. Called again, it looks whether the process is in
    /// another one now.
    func watch(_ number: ApplicationNumber, _ process: ProcessIdentity) {
        if watched[number]?.process != process { watched[number] = Watched(process) }
        follow(number)
    }

    func unwatch(_ number: ApplicationNumber) { watched[number] = nil }

    /// Somebody may have moved it.
    @discardableResult
    private func follow(_ number: ApplicationNumber) -> Watched? {
        guard let entry = watched[number], let hierarchy else { return nil }
        let found = try? Cgroup.of(entry.process.pid, in: hierarchy, proc: proc)
        let here = found.flatMap { $0.isRoot ? nil : $0 }
        if here == entry.here { return entry }
        entry.here = here
        entry.sources = []
        entry.events = Self.places(here).compactMap { try? CgroupEvents($0) }
        entry.sources = entry.events.compactMap { events in
            try? loop.watch(events.descriptor, for: .priority) { [weak self] _ in self?.read(number, events) }
        }
        return entry
    }

    private static func places(_ here: Cgroup?) -> [Cgroup] {
        guard let here else { return [] }
        guard let unit = here.applicationUnit, unit != here else { return [here] }
        return [here, unit]
    }

    /// The nearest cgroup around the process, up to the application's unit, that was told to freeze. A freeze of an ancestor
    /// is nobody's: it is for the machine's sleep, say (§ 2).
    func toldCgroup(of number: ApplicationNumber) -> Cgroup? {
        follow(number)?.here.flatMap(Self.toldCgroup)
    }

    private static func toldCgroup(around here: Cgroup) -> Cgroup? {
        let unit = here.applicationUnit ?? here
        var next: Cgroup? = here
        while let cgroup = next {
            if (try? cgroup.wantsFrozen()) == true { return cgroup }
            next = cgroup == unit ? nil : cgroup.parent
        }
        return nil
    }

    /// The same, and whether its process stands by that. While one in it dies, or comes in, it does not, for a moment.
    ///
    /// - Parameter isStanding: of one that stands the order counts, complete or not.
    func freeze(of number: ApplicationNumber, isStanding: Bool) -> (cgroup: Cgroup, isComplete: Bool)? {
        guard let entry = follow(number), let here = entry.here else { return nil }
        let isComplete = (try? entry.events.first?.read())?.isFrozen == true
        guard isComplete || isStanding, let cgroup = Self.toldCgroup(around: here) else { return nil }
        return (cgroup, isComplete)
    }

    private func read(_ number: ApplicationNumber, _ events: CgroupEvents) {
        do throws(KernelFailure) {
            try events.read()
        } catch {
            // The cgroup is gone; a source that stays ready would turn the loop for ever.
            watched[number]?.sources = []
            watched[number]?.events = []
            watched[number]?.here = nil
        }
        changed(number)
    }
}
