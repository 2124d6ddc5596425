import AppStateBus
import Glibc
import LifeCycle
import Linux

/// Sees the cgroups of applications freeze and thaw, by whomever: the kernel tells by `cgroup.events`.
final class FreezeSensor {
    private final class Watched {
        let process: ProcessIdentity
        /// The cgroup that the process was in when it was looked for last; nil: none, or it could not be watched.
        var here: Cgroup?
        /// The application's unit, or that cgroup.
        var unit: Cgroup?
        var events: CgroupEvents?
        var sources: [Source] = []

        init(_ process: ProcessIdentity) { self.process = process }

        func forget() { (here, unit, events, sources) = (nil, nil, nil, []) }
    }

    /// So many cgroups above the process are asked for a freeze, and its unit: a user may nest thousands.
    private static let mostLevels = 8

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
        if watched[number] == nil { watched[number] = Watched(process) }
        follow(number)
    }

    func unwatch(_ number: ApplicationNumber) { watched[number] = nil }

    /// Somebody may have moved it. What cannot be watched now is tried again at the next look.
    @discardableResult
    private func follow(_ number: ApplicationNumber) -> Watched? {
        guard let entry = watched[number], let hierarchy else { return nil }
        let here: Cgroup
        do throws(KernelFailure) {
            here = try Cgroup.of(entry.process.pid, in: hierarchy, proc: proc)
        } catch {
            // For want of descriptors, say: what was known is true until it is found otherwise.
            if error.isNoSuchProcess || error.isNoSuchCgroup { entry.forget() }
            return entry
        }
        if here == entry.here { return entry }
        entry.forget()
        guard !here.isRoot else { return entry }
        let unit = here.applicationUnit ?? here
        guard let events = try? CgroupEvents(here), let source = watch(events, number) else { return entry }
        var sources = [source]
        if unit != here {
            guard let above = try? CgroupEvents(unit), let source = watch(above, number) else { return entry }
            sources.append(source)
        }
        (entry.here, entry.unit, entry.events, entry.sources) = (here, unit, events, sources)
        return entry
    }

    private func watch(_ events: CgroupEvents, _ number: ApplicationNumber) -> Source? {
        try? loop.watch(events.descriptor, for: .priority) { [weak self] _ in self?.read(number, events) }
    }

    /// The nearest cgroup around the process, up to the application's unit, that was told to freeze. A freeze of an ancestor
    /// is nobody's: it is for the machine's sleep, say (§ 2).
    func toldCgroup(of number: ApplicationNumber) -> Cgroup? { follow(number).flatMap(toldCgroup) }

    private func toldCgroup(of entry: Watched) -> Cgroup? {
        var next = entry.here
        var levels = 0
        while let cgroup = next, cgroup != entry.unit, levels < Self.mostLevels {
            if (try? cgroup.wantsFrozen()) == true { return cgroup }
            next = cgroup.parent
            levels += 1
        }
        return entry.unit.flatMap { (try? $0.wantsFrozen()) == true ? $0 : nil }
    }

    /// The same, and whether its process stands by that. While one in it dies, or comes in, it does not, for a moment.
    ///
    /// - Parameter isStanding: of one that stands the order counts, complete or not.
    func freeze(of number: ApplicationNumber, isStanding: Bool) -> (cgroup: Cgroup, isComplete: Bool)? {
        guard let entry = follow(number) else { return nil }
        let isComplete = (try? entry.events?.read())?.isFrozen == true
        guard isComplete || isStanding, let cgroup = toldCgroup(of: entry) else { return nil }
        return (cgroup, isComplete)
    }

    private func read(_ number: ApplicationNumber, _ events: CgroupEvents) {
        do throws(KernelFailure) {
            try events.read()
        } catch {
            // The cgroup is gone; a source that stays ready would turn the loop for ever.
            watched[number]?.forget()
        }
        changed(number)
    }
}
