import Glibc

extension Proc {
    /// The list of the children of one thread.
    enum Children {
        case list(ChildList)
        /// The thread has ended, and left its children to another thread; or we may not look.
        case gone
        /// The kernel has no such list (`CONFIG_PROC_CHILDREN`).
        case unsupported
    }

    func children(of thread: Int32, in pid: Int32) -> Children {
        do throws(KernelFailure) {
            return .list(ChildList(try Descriptor.open(path(pid, "task/\(thread)/children"))))
        } catch {
            let isSupported = !error.isNoSuchFile || !Files.exists(path(pid, "task/\(thread)/stat"))
            return isSupported ? .gone : .unsupported
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

}

/// The children of a thread, read piece by piece: there may be tens of thousands. A child that is born or ends
/// meanwhile may be missing.
final class ChildList {
    private let file: Descriptor
    /// The number in which the last piece ended, as far as it went.
    private var half: Int32 = 0

    init(_ file: consuming Descriptor) { self.file = file }

    /// Adds the next few hundred; false: there are no more.
    func readOn(into found: inout [Int32]) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 8) { buffer in
            let count = read(file.rawValue, buffer.baseAddress, buffer.count)
            for byte in buffer.prefix(max(count, 0)) {
                guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9"), half < Int32.max / 10 else {
                    take(&found)
                    continue
                }
                half = half * 10 + Int32(byte - UInt8(ascii: "0"))
            }
            if count <= 0 { take(&found) }
            return count > 0
        }
    }

    private func take(_ found: inout [Int32]) {
        if half > 0 { found.append(half) }
        half = 0
    }
}
