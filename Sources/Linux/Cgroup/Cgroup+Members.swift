import Glibc

extension Cgroup {
    /// The processes of a subtree.
    public struct Members: Equatable, Sendable {
        /// Their ids, each once, in ascending order.
        public internal(set) var processes: [Int32] = []
        /// How many more are in PID namespaces that we cannot see: the kernel shows them as 0.
        public internal(set) var unseen = 0
        /// Whether some are missing: there are more than `Cgroup.mostProcesses`, or not all cgroups below are
        /// known, see `Descendants`.
        public internal(set) var isPartial = false
    }

    /// The cgroups below another.
    public struct Descendants: Equatable, Sendable {
        /// Each after the one that contains it.
        public internal(set) var cgroups: [Cgroup] = []
        /// Whether some are missing: there are more than `Cgroup.mostDescendants`, or one has a name that is not UTF-8,
        /// so that we could miss processes in it.
        public internal(set) var isPartial = false
    }

    /// At most this many cgroups below an application's are examined, all in one step; with more, it is stopped by
    /// signal. Each takes some 30 µs, and a stop visits it a few times.
    public static let mostDescendants = 32

    /// The most processes of one application.
    public static let mostProcesses = 4_096

    /// All cgroups below it, from the directories. A cgroup that vanishes meanwhile is skipped.
    public func descendants() throws(KernelFailure) -> Descendants {
        var found = Descendants()
        try children(into: &found)
        var next = 0
        while next < found.cgroups.count, !found.isPartial {
            do throws(KernelFailure) {
                try found.cgroups[next].children(into: &found)
            } catch {
                guard error.isNoSuchCgroup else { throw error }
            }
            next += 1
        }
        return found
    }

    /// All processes in it and in the cgroups below, from their `cgroup.procs` (cgroup-v2.rst, "Core Interface Files").
    /// A cgroup below that vanishes meanwhile is skipped.
    ///
    /// This is one walk: a process that moves within the subtree meanwhile may be missed. Throws `ENOENT` if the cgroup
    /// itself is gone, `EOPNOTSUPP` if it is a threaded one, which has threads but no processes.
    public func members() throws(KernelFailure) -> Members {
        let below = try descendants()
        var found = Members()
        found.isPartial = below.isPartial
        var processes: Set<Int32> = []
        try read(into: &processes, &found)
        for cgroup in below.cgroups {
            do throws(KernelFailure) {
                try cgroup.read(into: &processes, &found)
            } catch {
                // The processes of a threaded cgroup are listed by the nearest cgroup above it that is not threaded.
                guard error.isNoSuchCgroup || error.errno == EOPNOTSUPP else { throw error }
            }
        }
        found.processes = processes.sorted()
        return found
    }

    /// The ids of all processes in it and below, as far as we see them.
    public func processes() throws(KernelFailure) -> [Int32] {
        try members().processes
    }

    /// The owner of its directory.
    public func owner() throws(KernelFailure) -> UInt32 {
        try status().st_uid
    }

    /// The kernel's number for it, which is not reused while the machine runs: the inode number of its directory,
    /// which is the `cgroup id` of the kernel's own interfaces on 64-bit machines (kernfs).
    public func identifier() throws(KernelFailure) -> UInt64 {
        UInt64(try status().st_ino)
    }

    private func status() throws(KernelFailure) -> stat {
        var status = stat()
        guard fstatat(AT_FDCWD, directory, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            throw KernelFailure(operation: "stat", subject: directory, errno: errno)
        }
        return status
    }

    private func read(into processes: inout Set<Int32>, _ found: inout Members) throws(KernelFailure) {
        try Files.forEachLine(of: directory + "/cgroup.procs") { line in
            guard let pid = line.signed32() else { return true }
            if pid == 0 {
                found.unseen += 1
            } else if processes.count < Cgroup.mostProcesses {
                processes.insert(pid)
            } else if !processes.contains(pid) {
                found.isPartial = true
                return false
            }
            return true
        }
    }

    private func children(into found: inout Descendants) throws(KernelFailure) {
        try forEachChild { child in
            guard let child, found.cgroups.count < Cgroup.mostDescendants else {
                // A user who creates one such name can create fifty thousand, so the others are not searched
                // for.
                found.isPartial = true
                return false
            }
            found.cgroups.append(child)
            return true
        }
    }

    /// Calls the body with each cgroup directly below it, until that returns false; nil: one with a name that is not
    /// UTF-8.
    func forEachChild(_ body: (Cgroup?) -> Bool) throws(KernelFailure) {
        try Files.forEachEntry(of: directory) { name, type in
            guard type == UInt8(DT_DIR) else { return true }
            let name = String(validatingCString: name)
            if name == "." || name == ".." { return true }
            return body(name.flatMap { Cgroup(path: isRoot ? "/\($0)" : "\(path)/\($0)", in: hierarchy) })
        }
    }
}
