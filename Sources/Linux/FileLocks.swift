import Glibc

/// The file locks that somebody waits for, of `/proc/locks` (proc_locks(5)) at one moment.
public struct FileLocks: Equatable, Sendable {
    /// One lock, or one request for one.
    public struct Lock: Equatable, Sendable {
        /// How it was asked for.
        public enum Kind: Equatable, Sendable {
            /// fcntl(2) `F_SETLK`, of a process: `POSIX`, or `ACCESS` for a mandatory one's probe.
            case posix
            /// fcntl(2) `F_OFD_SETLK`, of an open file: `OFDLCK`.
            case ofd
            /// flock(2), of an open file: `FLOCK`.
            case flock
            /// fcntl(2) `F_SETLEASE`, or a delegation of a file server's: `LEASE`, `DELEG`.
            case lease
        }

        /// How it was asked for.
        public let kind: Kind
        /// `READ`, `WRITE` or `UNLCK`.
        public let access: String
        /// The process that asked for it; nil where the kernel does not say (`OFDLCK`). The holder of a
        /// `FLOCK` may be another by now, or several: whoever has the open file.
        public let pid: Int32?
        /// Device and inode number, as the kernel writes them: `08:01:1234`.
        public let file: String
        /// First and last byte: `0 EOF` for the whole.
        public let range: String
    }

    /// A lock and those who wait for it to go.
    public struct Contest: Equatable, Sendable {
        /// The lock.
        public let lock: Lock
        /// Those who wait, also behind one another.
        public internal(set) var waiters: [Lock]
    }

    /// A process that waits for a lock of one of those asked about.
    public struct Waiter: Equatable, Sendable {
        /// Who waits; nil where the kernel does not say.
        public let pid: Int32?
        /// Who holds it.
        public let holder: Int32
        /// What is held.
        public let lock: Lock
    }

    /// The locks that somebody waits for; those that nobody does are left out.
    public let contests: [Contest]

    /// Reads the file. Each lock with its waiters is of one moment; two locks may be of two.
    public init(proc: Proc = Proc()) throws(KernelFailure) {
        var list = Contests()
        // The ids that the kernel shows are of the mount's PID namespace; locks of others it leaves out.
        try Files.forEachLine(of: "\(proc.root)/locks") { line in
            list.take(String(decoding: line, as: UTF8.self))
            return true
        }
        contests = list.found
    }

    /// Who waits for a lock that one of the processes holds, without those processes themselves: they may
    /// be frozen together. A process that is frozen or stopped waits for nothing: the kernel ends its wait,
    /// and begins it again afterwards.
    ///
    /// Who holds the lock of an open file is looked up in the processes' `fdinfo` (proc_pid_fdinfo(5), the
    /// lines `lock:`): it outlives the process that asked for it, in every process that has the file.
    public func waiters(blockedBy pids: Set<Int32>, proc: Proc = Proc()) -> [Waiter] {
        var found: [Waiter] = []
        for contest in contests {
            let strangers = contest.waiters.filter { waiter in
                waiter.pid.map { !pids.contains($0) } ?? true
            }
            guard !strangers.isEmpty,
                let holder = Self.holder(of: contest.lock, among: pids, proc: proc)
            else { continue }
            found += strangers.map { Waiter(pid: $0.pid, holder: holder, lock: contest.lock) }
        }
        return found
    }

    private static func holder(of lock: Lock, among pids: Set<Int32>, proc: Proc) -> Int32? {
        switch lock.kind {
        case .posix:
            return lock.pid.flatMap { pids.contains($0) ? $0 : nil }
        case .ofd, .flock, .lease:
            // The one who asked has it most likely, but may have closed the file and left it to a child.
            let first = lock.pid.map { pids.contains($0) ? [$0] : [] } ?? []
            // Where we may not look, what it asked for is all we know.
            if let pid = first.first, proc.holds(lock, pid: pid) ?? true { return pid }
            return pids.sorted().first { proc.holds(lock, pid: $0) ?? false }
        }
    }

    /// A line such as `1: -> FLOCK  ADVISORY  WRITE 12 08:01:1234 0 EOF`; the arrow marks a waiter, and is
    /// indented where it waits behind another. Nil for what is no such line.
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
        // 0 for a process that the namespace does not have, -1 for an open file's.
        guard let pid = Int32(words[3]) else { return nil }
        let lock = Lock(
            kind: kind, access: String(words[2]), pid: pid > 0 ? pid : nil, file: String(words[4]),
            range: "\(words[5]) \(words[6])")
        return (lock, isWaiter)
    }
}

/// Gathers the lines of the file: a lock, then those who wait for it.
private struct Contests {
    private(set) var found: [FileLocks.Contest] = []
    private var held: FileLocks.Lock?
    private var isOpen = false

    mutating func take(_ line: String) {
        guard let (lock, isWaiter) = FileLocks.parse(line) else {
            // A waiter of a kind that we do not know takes nothing from the lock before it.
            if !line.contains("->") { begin(nil) }
            return
        }
        guard isWaiter else { return begin(lock) }
        if let held, !isOpen {
            found.append(FileLocks.Contest(lock: held, waiters: []))
            isOpen = true
        }
        if isOpen { found[found.count - 1].waiters.append(lock) }
    }

    private mutating func begin(_ lock: FileLocks.Lock?) {
        held = lock
        isOpen = false
    }
}

extension Proc {
    /// Whether the process has the open file that the lock is on: false where it is gone, nil where we may
    /// not look into it (ptrace(2), `PTRACE_MODE_READ`).
    fileprivate func holds(_ lock: FileLocks.Lock, pid: Int32) -> Bool? {
        let directory = path(pid, "fdinfo")
        do throws(KernelFailure) {
            for number in try Files.numbers(in: directory)
            where try shows(lock, "\(directory)/\(number)") { return true }
            return false
        } catch {
            return error.isPermissionDenied ? nil : false
        }
    }

    private func shows(_ lock: FileLocks.Lock, _ path: String) throws(KernelFailure) -> Bool {
        var isHeld = false
        do throws(KernelFailure) {
            try Files.forEachLine(of: path) { line in
                var bytes = Bytes(line)
                guard bytes.take("lock:"), let (own, _) = FileLocks.parse(bytes.text) else { return true }
                isHeld = own == lock
                return !isHeld
            }
        } catch {
            // Closed meanwhile.
            if !error.isNoSuchFile { throw error }
        }
        return isHeld
    }
}
