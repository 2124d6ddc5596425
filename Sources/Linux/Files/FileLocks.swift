import Glibc

/// The file locks that a process waits for, from `/proc/locks` (proc_locks(5)) at one moment.
public struct FileLocks: Sendable {
    /// One lock, or one request for a lock.
    public struct Lock: Hashable, Sendable {
        /// How it was requested.
        public enum Kind: Equatable, Sendable {
            /// fcntl(2) `F_SETLK`, of a process: `POSIX`, or `ACCESS` for the probe of a mandatory lock.
            case posix
            /// fcntl(2) `F_OFD_SETLK`, of an open file: `OFDLCK`.
            case ofd
            /// flock(2), of an open file: `FLOCK`.
            case flock
            /// fcntl(2) `F_SETLEASE`, or a delegation of a file server: `LEASE`, `DELEG`.
            case lease
        }

        /// How it was requested.
        public let kind: Kind
        /// `READ`, `WRITE` or `UNLCK`.
        public let access: String
        /// The process that requested it; nil if the kernel does not report it (`OFDLCK`). The holder of a
        /// `FLOCK` may be another process by now, or several: every process that has the open file.
        public let pid: Int32?
        /// Device and inode number, as the kernel writes them: `08:01:1234`.
        public let file: String
        /// First and last byte: `0 EOF` for the whole.
        public let range: String
    }

    /// A process that waits for a lock of one of the given processes.
    public struct Waiter: Equatable, Sendable {
        /// The process that waits; nil if the kernel does not report it.
        public let pid: Int32?
        /// The process that holds the lock.
        public let holder: Int32
        /// The lock that is held.
        public let lock: Lock
    }

    /// The locks for which a process waits, each with the requests that wait, including those behind one another.
    let contests: [(lock: Lock, waiters: [Lock])]

    /// Whether no process waits for a lock.
    public var isEmpty: Bool { contests.isEmpty }

    /// Each lock and its waiters are of one moment; two locks may be of two.
    public init(proc: Proc = Proc()) throws(KernelFailure) {
        var contests: [(lock: Lock, waiters: [Lock])] = []
        // The last lock; nil: it is of an unknown kind.
        var lock: Lock?
        var isContested = false
        // The kernel shows ids of the mount's PID namespace, and leaves out the locks of others.
        try Files.forEachLine(of: "\(proc.root)/locks") { line in
            let text = line.text
            let parsed = Self.parse(text)
            if !text.contains("->") {
                (lock, isContested) = (parsed?.lock, false)
            } else if let lock, let waiter = parsed?.lock {
                if !isContested { contests.append((lock, [])) }
                isContested = true
                contests[contests.count - 1].waiters.append(waiter)
            }
            return true
        }
        self.contests = contests
    }

    /// The processes that wait for a lock that one of `pids` holds.
    ///
    /// The processes `pids` themselves do not count: they may be frozen together. A frozen or stopped process
    /// does not wait: the kernel ends its wait, and begins it again afterwards.
    ///
    /// The holder of an open file's lock is looked up in the processes' `fdinfo` (proc_pid_fdinfo(5), the lines
    /// `lock:`), if a process waits for such a lock. It outlives the process that requested it, in every process that
    /// has the file.
    public func waiters(blockedBy pids: Set<Int32>, proc: Proc = Proc()) -> [Waiter] {
        let contests = contests.map { contest in
            (lock: contest.lock, waiters: contest.waiters.filter { !($0.pid.map(pids.contains) ?? false) })
        }.filter { !$0.waiters.isEmpty }
        let ofFiles =
            contests.contains { $0.lock.kind != .posix }
            ? proc.locksOfFiles(of: pids) : (held: [:], hidden: [])
        var found: [Waiter] = []
        for (lock, waiters) in contests {
            let requester = lock.pid.flatMap { pids.contains($0) ? $0 : nil }
            let holder =
                lock.kind == .posix
                // If we may not inspect the process, we know only what it requested.
                ? requester
                : ofFiles.held[lock] ?? requester.flatMap { ofFiles.hidden.contains($0) ? $0 : nil }
            if let holder { found += waiters.map { Waiter(pid: $0.pid, holder: holder, lock: lock) } }
        }
        return found
    }

    /// A line such as `1: -> FLOCK  ADVISORY  WRITE 12 08:01:1234 0 EOF`; the arrow marks a waiter, and is indented if
    /// it waits behind another. Nil for text that is no such line.
    static func parse(_ line: String) -> (lock: Lock, isWaiter: Bool)? {
        var fields = line.split(whereSeparator: { $0 == " " || $0 == "\t" })[...]
        guard let number = fields.popFirst(), number.hasSuffix(":") else { return nil }
        let isWaiter = fields.first == "->"
        if isWaiter { fields.removeFirst() }
        guard fields.count == 7 else { return nil }
        let words = Array(fields)
        let kind: Lock.Kind
        switch words[0] {
        case "POSIX", "ACCESS": kind = .posix
        case "OFDLCK": kind = .ofd
        case "FLOCK": kind = .flock
        case "LEASE", "DELEG": kind = .lease
        default: return nil
        }
        // 0 for a process that the namespace does not have, -1 for an open file's lock.
        guard let pid = Int32(words[3]) else { return nil }
        let lock = Lock(
            kind: kind, access: String(words[2]), pid: pid > 0 ? pid : nil, file: String(words[4]),
            range: "\(words[5]) \(words[6])")
        return (lock, isWaiter)
    }
}

extension Proc {
    /// The locks of the files that these processes have open, and the processes that we may not inspect (ptrace(2),
    /// `PTRACE_MODE_READ`). A process that is gone has no locks.
    fileprivate func locksOfFiles(of pids: Set<Int32>) -> (held: [FileLocks.Lock: Int32], hidden: Set<Int32>)
    {
        var held: [FileLocks.Lock: Int32] = [:]
        var hidden: Set<Int32> = []
        for pid in pids.sorted() {
            guard let directory = opendir(path(pid, "fdinfo")) else {
                if errno != ENOENT, errno != ESRCH { hidden.insert(pid) }
                continue
            }
            defer { closedir(directory) }
            while let entry = readdir(directory) {
                guard entry.withName({ number(named: $0) }) != nil,
                    entry.withName({ mayBeLocked(pid, $0) })
                else { continue }
                let file = entry.withName { openat(dirfd(directory), $0, O_RDONLY | O_CLOEXEC) }
                guard file >= 0 else {
                    // Not if it was closed meanwhile.
                    if errno != ENOENT { hidden.insert(pid) }
                    continue
                }
                // A process that closes the file while it is read has no lock on it.
                try? Files.forEachLine(in: Descriptor(owning: file), named: "fdinfo") { line in
                    if line.take("lock:"), let lock = FileLocks.parse(line.text)?.lock {
                        held[lock] = held[lock] ?? pid
                    }
                    return true
                }
            }
        }
        return (held, hidden)
    }

    /// Whether an open file may have a lock for which others wait. False for the kernel's own kinds
    /// (`anon_inode:[…]`): the kernel may wait indefinitely before it reports about an epoll set, whose lock
    /// a FUSE server may hold.
    private func mayBeLocked(_ pid: Int32, _ number: UnsafePointer<CChar>) -> Bool {
        var first = CChar(0)
        let count = readlink(path(pid, "fd/\(String(cString: number))"), &first, 1)
        return count != 1 || first != CChar(bitPattern: UInt8(ascii: "a"))
    }
}
