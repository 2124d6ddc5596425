import Glibc

extension Proc {
    /// Adds the children of one thread (`CONFIG_PROC_CHILDREN`); false: the kernel has no such file. A child that is
    /// born or ends during the read may be missing.
    func readChildren(of thread: Int32, in pid: Int32, into found: inout Set<Int32>) -> Bool {
        do throws(KernelFailure) {
            try read(children: path(pid, "task/\(thread)/children"), into: &found)
            return true
        } catch {
            // A thread that has ended meanwhile left its children to another thread.
            return !error.isNoSuchFile || !Files.exists(path(pid, "task/\(thread)/stat"))
        }
    }

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
        try threads(of: pid, from: 0, atMost: limit).found
    }

    /// The threads of a process from a place in the list on, as in `Files.numbers`; `ESRCH` if it is gone.
    func threads(
        of pid: Int32, from place: Int, atMost limit: Int
    ) throws(KernelFailure) -> (found: [Int32], next: Int?) {
        do throws(KernelFailure) {
            return try Files.numbers(in: path(pid, "task"), from: place, atMost: limit)
        } catch {
            throw failure(error.operation, pid, "task", error.errno)
        }
    }

    private func read(children path: String, into found: inout Set<Int32>) throws(KernelFailure) {
        let file = try Descriptor.open(path)
        let text = try Files.text(in: file, named: path, limit: 1 << 20)
        // There may be thousands of numbers, so each is touched only once.
        var child: Int32 = 0
        for byte in text.utf8 {
            guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9"), child < Int32.max / 10 else {
                if child > 0 { found.insert(child) }
                child = 0
                continue
            }
            child = child * 10 + Int32(byte - UInt8(ascii: "0"))
        }
        if child > 0 { found.insert(child) }
    }
}
