import Glibc

/// The file locks that a process waits for, from `/proc/locks` (proc_locks(5)) at one moment.
public struct FileLocks: Sendable {
    /// One lock, or one request for a lock.
    struct Lock: Hashable, Sendable {
        /// As the kernel writes it, without its number: `FLOCK  ADVISORY  WRITE 12 08:01:1234 0 EOF`.
        let text: String
        /// The process that requested it; nil if the kernel does not report it (`OFDLCK`). The holder of a
        /// `FLOCK` may be another process by now, or several: every process that has the open file.
        let pid: Int32?
        /// Device and inode number, as the kernel writes them: `08:01:1234`.
        let file: String
        /// A process holds it (fcntl(2) `F_SETLK`), and not an open file or a lease.
        var isOfProcess: Bool { text.hasPrefix("POSIX") || text.hasPrefix("ACCESS") }
    }

    /// A process that waits for a lock of one of the given processes.
    public struct Waiter: Equatable, Sendable {
        /// The process that waits; nil if the kernel does not report it.
        public let pid: Int32?
        /// The process that holds the lock.
        public let holder: Int32
        /// Device and inode number of the file, as the kernel writes them.
        public let file: String
    }

    /// The locks for which a process waits, each with the requests that wait, including those behind one another.
    let contests: [(lock: Lock, waiters: [Lock])]

    /// Whether no process waits for a lock.
    public var isEmpty: Bool { contests.isEmpty }

    /// Each lock and its waiters are of one moment; two locks may be of two.
    public init(proc: Proc = Proc()) throws(KernelFailure) {
        var contests: [(lock: Lock, waiters: [Lock])] = []
        // The last lock; nil: it cannot be parsed.
        var lock: Lock?
        // The kernel shows ids of the mount's PID namespace, and leaves out the locks of others.
        try Files.forEachLine(of: "\(proc.root)/locks") { line in
            let (parsed, isWaiter) = Self.parse(line.text)
            if !isWaiter {
                lock = parsed
            } else if let lock, let waiter = parsed {
                if contests.last?.lock != lock { contests.append((lock, [])) }
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
    /// `lock:`). It outlives the process that requested it, in every process that has the file.
    public func waiters(blockedBy pids: Set<Int32>, proc: Proc = Proc()) -> [Waiter] {
        let contests = contests.map { contest in
            (lock: contest.lock, waiters: contest.waiters.filter { !($0.pid.map(pids.contains) ?? false) })
        }.filter { !$0.waiters.isEmpty }
        let ofFiles = contests.contains { !$0.lock.isOfProcess } ? proc.locksOfFiles(of: pids) : [:]
        return contests.flatMap { lock, waiters in
            let holder = lock.isOfProcess ? lock.pid.flatMap { pids.contains($0) ? $0 : nil } : ofFiles[lock]
            return holder.map { holder in
                waiters.map { Waiter(pid: $0.pid, holder: holder, file: lock.file) }
            } ?? []
        }
    }

    /// A line such as `1: -> FLOCK  ADVISORY  WRITE 12 08:01:1234 0 EOF`; the arrow marks a waiter, and is indented if
    /// it waits behind another. No lock for text that is no such line.
    static func parse(_ line: String) -> (lock: Lock?, isWaiter: Bool) {
        var words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })[...]
        let hasNumber = words.popFirst()?.hasSuffix(":") == true
        let isWaiter = words.first == "->"
        if isWaiter { words.removeFirst() }
        // 0 for a process that the namespace does not have, -1 for an open file's lock.
        guard hasNumber, words.count == 7, let pid = Int32(words[words.startIndex + 3]) else {
            return (nil, isWaiter)
        }
        let lock = Lock(
            text: words.joined(separator: " "), pid: pid > 0 ? pid : nil,
            file: String(words[words.startIndex + 4]))
        return (lock, isWaiter)
    }
}

extension Proc {
    /// The locks of the files that these processes have open. A process that is gone has no locks.
    fileprivate func locksOfFiles(of pids: Set<Int32>) -> [FileLocks.Lock: Int32] {
        var held: [FileLocks.Lock: Int32] = [:]
        for pid in pids.sorted() {
            for number in (try? Files.numbers(in: path(pid, "fdinfo"))) ?? [] where mayBeLocked(pid, number) {
                // A process that closes the file while it is read has no lock on it.
                try? forEachLine(pid, "fdinfo/\(number)") { line in
                    if line.skip("lock:"), let lock = FileLocks.parse(line.text).lock {
                        held[lock] = held[lock] ?? pid
                    }
                    return true
                }
            }
        }
        return held
    }

    /// Whether an open file may have a lock for which others wait. False for the kernel's own kinds
    /// (`anon_inode:[…]`): the kernel may wait indefinitely before it reports about an epoll set, whose lock
    /// a FUSE server may hold.
    private func mayBeLocked(_ pid: Int32, _ number: Int32) -> Bool {
        var first = CChar(0)
        let count = readlink(path(pid, "fd/\(number)"), &first, 1)
        return count != 1 || first != CChar(bitPattern: UInt8(ascii: "a"))
    }
}
