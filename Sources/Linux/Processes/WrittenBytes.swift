/// How many bytes some processes have written so far to files that are stored: `write_bytes` of `/proc/PID/io`
/// (proc_pid_io(5)).
///
/// The kernel counts a page when it becomes dirty, or when it is written past the page cache. Pipes, sockets, terminals
/// and tmpfs do not count. The count of a process includes its ended threads, and the children that it has waited for.
public struct WrittenBytes: Sendable, Equatable {
    private struct Process: Sendable, Equatable {
        let bytes: UInt64
        let parent: Int32
    }

    /// Those that have written nothing are needed as links between others.
    private let processes: [Int32: Process]
    /// CLOCK_MONOTONIC, in microseconds.
    private let time: UInt64

    /// Processes that are gone, or out of our reach (`CAP_SYS_PTRACE`), count as having written nothing.
    public init(of pids: some Sequence<Int32>, proc: Proc = Proc()) {
        var found: [Int32: Process] = [:]
        for pid in pids {
            if let bytes = try? proc.writtenBytes(of: pid), let parent = try? proc.stat(pid).parent {
                found[pid] = Process(bytes: bytes, parent: parent)
            }
        }
        processes = found
        time = Clock.monotonicMicroseconds
    }

    /// All that the processes have written, at most `UInt64.max`.
    public var sum: UInt64 {
        processes.values.reduce(0) { sum, process in
            let (next, overflow) = sum.addingReportingOverflow(process.bytes)
            return overflow ? .max : next
        }
    }

    /// Bytes per second since an earlier measurement of the same application, those of new processes included. What an ended
    /// process had written before is not counted again for its parent, or for the next ancestor that lives.
    ///
    /// - Parameter span: microseconds. What was written in a shorter time counts as written in this time.
    public func rate(since earlier: WrittenBytes, over span: UInt64 = 0) -> UInt64 {
        guard time > earlier.time else { return 0 }
        var growth: [Int32: UInt64] = [:]
        for (pid, now) in processes {
            let before = earlier.processes[pid]?.bytes ?? 0
            growth[pid] = now.bytes > before ? now.bytes - before : 0
        }
        for (pid, before) in earlier.processes where processes[pid] == nil {
            let survivor = earlier.survivor(of: before) { growth[$0] != nil }
            guard let grown = growth[survivor] else { continue }
            growth[survivor] = grown > before.bytes ? grown - before.bytes : 0
        }
        let bytes = growth.values.reduce(0.0) { $0 + Double($1) }
        return UInt64(min(bytes * 1_000_000 / Double(max(time - earlier.time, span)), 1e18))
    }

    /// The most ancestors that are asked whether they live.
    private static let mostAncestors = 16

    /// The parent of a process that has ended. If that has ended too, its parent, and so on.
    private func survivor(of process: Process, isAlive: (Int32) -> Bool) -> Int32 {
        var survivor = process.parent
        for _ in 0..<Self.mostAncestors where !isAlive(survivor) {
            guard let next = processes[survivor]?.parent else { break }
            survivor = next
        }
        return survivor
    }
}

extension Proc {
    /// `ENOENT` if the kernel keeps no account (`CONFIG_TASK_IO_ACCOUNTING`).
    fileprivate func writtenBytes(of pid: Int32) throws(KernelFailure) -> UInt64 {
        try readOnce(pid, "io") { bytes in
            // rchar, wchar, syscr, syscw and read_bytes come before it, each with its value.
            guard bytes.skip(fields: 11) else { return nil }
            return bytes.unsigned()
        }
    }
}
