extension Extent {
    /// The processes that a stop of the application would stop: all that are in its own cgroup, orphans among them
    /// (`CgroupExtent`), else those of `members`. Does nothing to them.
    ///
    /// Reads everything at once, as one examination finds it: for another thread than the one that decides. The
    /// application may change before the stop; the stop itself examines it again (`Suspender`).
    ///
    /// - Parameters:
    ///   - uid: the application's user.
    ///   - hierarchy: where cgroups are; nil: a stop uses signals.
    ///   - daemon: a cgroup that is never frozen, nor is any cgroup that contains it.
    public static func affected(
        of main: ProcessIdentity, owner uid: UInt32, hierarchy: UnifiedHierarchy?, daemon: Cgroup?,
        proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        let extent = members(of: main, proc: proc, isForeign: isForeign)
        guard let hierarchy, let here = try? Cgroup.of(main.pid, in: hierarchy, proc: proc), !here.isRoot
        else { return extent }
        for cgroup in here.candidates {
            guard let directoryOwner = try? cgroup.owner(),
                CgroupExtent.reasonOfPlace(cgroup, directoryOwner, uid, daemon) == nil,
                let snapshot = try? CgroupSnapshot(of: cgroup, extent: extent, proc: proc),
                CgroupExtent.judge(snapshot, main: main, owner: uid, daemon: daemon, isForeign: isForeign)
                    == .own(remainder: [])
            else { continue }
            let known = Set(extent)
            return extent + snapshot.members.map(\.identity).filter { !known.contains($0) }
        }
        return extent
    }
}

extension Cgroup {
    /// The cgroups that may represent an application whose main process is in this one: its unit, else this one (§ 2,
    /// "Extent").
    var candidates: [Cgroup] {
        guard let unit = applicationUnit, unit != self else { return [self] }
        return [unit, self]
    }
}
