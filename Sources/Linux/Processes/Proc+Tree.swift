import Glibc

extension Proc {
    /// The living children of a process, without zombies; empty if it is gone.
    func children(of parent: ProcessIdentity) -> [ProcessIdentity] {
        var candidates: [Int32] = []
        for thread in (try? threads(of: parent.pid)) ?? [] {
            guard addChildren(of: thread, in: parent.pid, to: &candidates) else {
                // The kernel does not list children: search all processes for this parent.
                candidates = ((try? processes()) ?? []).sorted()
                break
            }
        }
        let found = candidates.compactMap { livingChild($0, of: parent.pid) }
        return (try? identity(of: parent.pid)) == parent ? found : []
    }

    /// The ids of the children that the leading thread has started; empty if the kernel does not list them.
    func childrenOfLeadingThread(of pid: Int32) -> [Int32] {
        var found: [Int32] = []
        _ = addChildren(of: pid, in: pid, to: &found)
        return found
    }

    private func livingChild(_ pid: Int32, of parent: Int32) -> ProcessIdentity? {
        // The parent is read together with the start time: a reused id has another parent.
        guard let stat = try? stat(pid), stat.parent == parent else { return nil }
        // A zombie whose last thread has ended has nothing that could be signalled.
        if stat.state == .zombie, (try? state(of: stat.identity)) ?? .zombie == .zombie { return nil }
        return stat.identity
    }

    /// Adds the children of one thread. A thread that has ended has left them to another thread.
    ///
    /// - Returns: whether the kernel lists children (`CONFIG_PROC_CHILDREN`).
    private func addChildren(of thread: Int32, in pid: Int32, to found: inout [Int32]) -> Bool {
        let file = path(pid, "task/\(thread)/children")
        do throws(KernelFailure) {
            let list = try Descriptor.open(file)
            let text = try Files.bytes(in: list, named: file, limit: Self.longestChildren)
            found += text.split(separator: UInt8(ascii: " ")).compactMap {
                Int32(String(decoding: $0, as: UTF8.self))
            }
            return true
        } catch {
            return !error.isNoSuchFile || !Files.exists(path(pid, "task/\(thread)/stat"))
        }
    }

    /// More than all process ids together take.
    private static let longestChildren = 32 << 20

    /// The process, its parent and so on, without process 1 and kernel threads: at most `limit`, empty if there is no
    /// such process.
    public func lineage(of pid: Int32, limit: Int = 64) -> [ProcessIdentity] {
        var line: [ProcessIdentity] = []
        var next = pid
        while line.count < limit, next > 1, let stat = try? stat(next), !stat.isKernelThread {
            // A parent is older; a younger process has taken the id of one that is gone.
            if let child = line.last, stat.startTime > child.startTime { break }
            line.append(ProcessIdentity(pid: next, startTime: stat.startTime))
            next = stat.parent
        }
        return line
    }

    /// The first threads of a process, at most `limit`; `ESRCH` if it is gone.
    func threads(of pid: Int32, atMost limit: Int = .max) throws(KernelFailure) -> [Int32] {
        do throws(KernelFailure) {
            return try Files.numbers(in: path(pid, "task"), atMost: limit)
        } catch {
            throw failure(error.operation, pid, "task", error.errno)
        }
    }
}

/// An application's processes: the main process and its descendants, without those that are, or descend from,
/// applications of their own.
///
/// A process whose parents have all ended belongs to the process that adopted it, and so to no extent.
public enum Extent {
    /// The extent as one walk finds it, parents first, without zombies; empty if `main` is gone.
    ///
    /// `isForeign` says whether a process is an application of its own; it is not called for `main`.
    ///
    /// At most `Cgroup.mostProcesses` are found.
    public static func members(
        of main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        guard (try? proc.identity(of: main.pid)) == main else { return [] }
        var found = [main]
        var known: Set = [main]
        var next = 0
        while next < found.count {
            for child in proc.children(of: found[next]) where known.insert(child).inserted {
                if isForeign(child) { continue }
                guard found.count < Cgroup.mostProcesses else { return found }
                found.append(child)
            }
            next += 1
        }
        return found
    }

    /// The processes in the application's own cgroup; those of `members(of:)` if it has none, or it cannot be read.
    public static func members(
        of main: ProcessIdentity, in cgroup: Cgroup?, proc: Proc, isForeign: (ProcessIdentity) -> Bool
    ) -> [ProcessIdentity] {
        guard let pids = try? cgroup?.processes() else {
            return members(of: main, proc: proc, isForeign: isForeign)
        }
        return pids.compactMap { try? proc.identity(of: $0) }.filter { $0 == main || !isForeign($0) }
    }

    /// Signals only one process, through its pidfd, and only if all four of its user ids are `uid` at that moment.
    public static func signal(
        _ signal: Int32, toOnly process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        try HeldProcess(process, proc: proc).signal(signal, owner: uid, proc: proc)
    }
}
