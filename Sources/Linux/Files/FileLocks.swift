import Glibc

/// The file locks that a process waits for, from `/proc/locks` (proc_locks(5)) at one moment.
public struct FileLocks: Equatable, Sendable {
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

    /// A lock, and the requests that wait for it.
    public struct Contest: Equatable, Sendable {
        /// The lock.
        public let lock: Lock
        /// The requests that wait, including those behind one another.
        public internal(set) var waiters: [Lock]
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

    /// The locks for which a process waits; all others are left out.
    public let contests: [Contest]

    /// Each lock and its waiters are of one moment; two locks may be of two.
    ///
    /// The kernel begins at the first lock again for each page that is read: 100,000 locks take it seven seconds.
    public init(proc: Proc = Proc()) throws(KernelFailure) {
        var list = Contests()
        // The kernel shows ids of the mount's PID namespace, and leaves out the locks of others.
        try Files.forEachLine(of: "\(proc.root)/locks") { line in
            list.take(line.rest)
            return true
        }
        contests = list.found
    }

    /// A process that waits for a lock that one of `pids` holds; nil if there is none.
    ///
    /// The processes `pids` themselves do not count: they may be frozen together. A frozen or stopped process
    /// does not wait: the kernel ends its wait, and begins it again afterwards.
    ///
    /// The holder of an open file's lock is looked up in the processes' `fdinfo` (proc_pid_fdinfo(5), the lines
    /// `lock:`). Such a lock outlives the process that requested it, in every process that has the file. One
    /// pass over their open files answers for all locks; if no process waits for a lock of an open file,
    /// there is no pass.
    public func waiter(blockedBy pids: Set<Int32>, proc: Proc) -> Waiter? {
        waiters(blockedBy: pids, proc: proc, atMost: 1).first
    }

    /// The first of them; `most` ends the search for holders.
    func waiters(blockedBy pids: Set<Int32>, proc: Proc = Proc(), atMost most: Int = .max) -> [Waiter] {
        let contests = contests.map { contest in
            Contest(lock: contest.lock, waiters: contest.waiters.filter { !$0.isOf(pids) })
        }.filter { !$0.waiters.isEmpty }
        var holders: [Lock: Int32] = [:]
        var ofFiles: Set<Lock> = []
        for contest in contests {
            if contest.lock.kind != .posix {
                ofFiles.insert(contest.lock)
            } else if let pid = contest.lock.pid, pids.contains(pid) {
                holders[contest.lock] = pid
            }
        }
        if holders.count < most, !ofFiles.isEmpty {
            proc.find(ofFiles, among: pids, into: &holders, atMost: most)
        }
        var found: [Waiter] = []
        for contest in contests {
            guard let holder = holders[contest.lock] else { continue }
            found += contest.waiters.map { Waiter(pid: $0.pid, holder: holder, lock: contest.lock) }
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

extension FileLocks.Lock {
    fileprivate func isOf(_ pids: Set<Int32>) -> Bool { pid.map(pids.contains) ?? false }
}

/// Gathers the lines of the file: a lock, then the requests that wait for it. A lock without waiters is not even
/// parsed.
private struct Contests {
    private(set) var found: [FileLocks.Contest] = []
    /// The line of the last lock, until a waiter for it is found.
    private var line: [UInt8] = []
    private var isOpen = false

    mutating func take(_ bytes: UnsafeRawBufferPointer) {
        guard Self.isWaiter(bytes) else {
            line.removeAll(keepingCapacity: true)
            line.append(contentsOf: bytes)
            isOpen = false
            return
        }
        // A waiter of an unknown kind does not affect the lock before it.
        guard let (waiter, isWaiter) = Self.parse(bytes), isWaiter else { return }
        if !isOpen {
            guard let (lock, _) = line.withUnsafeBytes({ Self.parse($0) }) else { return }
            found.append(FileLocks.Contest(lock: lock, waiters: []))
            isOpen = true
        }
        found[found.count - 1].waiters.append(waiter)
    }

    private static func parse(
        _ bytes: UnsafeRawBufferPointer
    ) -> (lock: FileLocks.Lock, isWaiter: Bool)? {
        FileLocks.parse(String(decoding: bytes, as: UTF8.self))
    }

    /// Whether an arrow follows the line's number.
    private static func isWaiter(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var rest = Bytes(bytes)
        return rest.unsigned() != nil && rest.byte() == UInt8(ascii: ":") && rest.byte() == UInt8(ascii: "-")
            && rest.byte() == UInt8(ascii: ">")
    }
}

extension Proc {
    /// Which of these processes have the open files that the locks are on, in one pass over what they have open.
    fileprivate func find(
        _ locks: Set<FileLocks.Lock>, among pids: Set<Int32>, into holders: inout [FileLocks.Lock: Int32],
        atMost most: Int
    ) {
        // The process that requested a lock most likely has it, but may have closed the file and left it to a
        // child.
        let first = Set(locks.compactMap(\.pid)).intersection(pids).sorted()
        var missing = locks
        for pid in first + pids.subtracting(first).sorted() {
            var found: [FileLocks.Lock] = []
            let isOpen = forEachLock(of: pid) { lock in
                if missing.remove(lock) != nil { found.append(lock) }
                return !missing.isEmpty && holders.count + found.count < most
            }
            // If we may not inspect the process, we know only what it requested.
            if !isOpen { found = missing.filter { $0.pid == pid } }
            for lock in found {
                missing.remove(lock)
                holders[lock] = pid
            }
            if missing.isEmpty || holders.count >= most { return }
        }
    }

    /// Calls `body` with each lock that an open file of the process has, until it returns false. False if we
    /// may not inspect the process (ptrace(2), `PTRACE_MODE_READ`); a process that is gone has no locks.
    private func forEachLock(of pid: Int32, _ body: (FileLocks.Lock) -> Bool) -> Bool {
        guard let directory = opendir(path(pid, "fdinfo")) else { return errno == ENOENT || errno == ESRCH }
        defer { closedir(directory) }
        var goesOn = true
        while goesOn, let entry = readdir(directory) {
            guard entry.withName({ number(named: $0) }) != nil else { continue }
            guard entry.withName({ mayBeLocked(pid, $0) }) else { continue }
            let file = entry.withName { openat(dirfd(directory), $0, O_RDONLY | O_CLOEXEC) }
            guard file >= 0 else {
                // Closed meanwhile.
                if errno == ENOENT { continue }
                return false
            }
            goesOn = Self.forEachLock(in: file, body)
        }
        return true
    }

    /// Whether an open file may have a lock for which others wait. False for the kernel's own kinds
    /// (`anon_inode:[…]`): the kernel may wait indefinitely before it reports about an epoll set, whose lock
    /// a FUSE server may hold.
    private func mayBeLocked(_ pid: Int32, _ number: UnsafePointer<CChar>) -> Bool {
        var first = CChar(0)
        let count = readlink(path(pid, "fd/\(String(cString: number))"), &first, 1)
        return count != 1 || first != CChar(bitPattern: UInt8(ascii: "a"))
    }

    /// Closes the file. False once `body` has returned false.
    private static func forEachLock(in number: Int32, _ body: (FileLocks.Lock) -> Bool) -> Bool {
        let file = Descriptor(owning: number)
        var goesOn = true
        // A process that closes the file while it is read has no lock on it.
        _ = try? Files.forEachLine(in: file, named: "fdinfo") { line in
            guard line.take("lock:"), let (lock, _) = FileLocks.parse(line.text) else { return true }
            goesOn = body(lock)
            return goesOn
        }
        return goesOn
    }
}
