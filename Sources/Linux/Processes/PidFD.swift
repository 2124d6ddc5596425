import CLinux
import Glibc

/// A process held by a descriptor (pidfd_open(2)). The descriptor stays with this process, even when its id is
/// reused.
public struct PidFD: ~Copyable {
    private let descriptor: Descriptor
    private let firstPID: Int32

    /// Opens the process `pid`.
    ///
    /// Throws the kernel's error: `ESRCH` if there is no such process, `EINVAL` or `ENOENT` if `pid` is a thread that
    /// does not lead its process. Kernel threads can be opened: see `Proc.Stat.isKernelThread`.
    public init(pid: Int32) throws(KernelFailure) {
        let result = clinux_pidfd_open(pid, 0)
        descriptor = try Descriptor.taking(result, "pidfd_open", "pid \(pid)")
        firstPID = pid
    }

    /// Takes over a descriptor that another process passed to us; closes it if it is refused.
    ///
    /// Throws `EBADF` for a descriptor that is no pidfd (no `Pid:` line in its fdinfo), `EINVAL` for a pidfd of a
    /// single thread (`PIDFD_THREAD`), `ESRCH` for a process that is gone or in another PID namespace.
    public init(adopting descriptor: consuming Descriptor) throws(KernelFailure) {
        let info = try Self.information(of: descriptor.rawValue)
        guard !info.isThread else {
            throw KernelFailure(
                operation: "adopt pidfd", subject: "descriptor \(descriptor.rawValue)", errno: EINVAL)
        }
        guard info.pid > 0 else {
            throw KernelFailure(
                operation: "adopt pidfd", subject: "descriptor \(descriptor.rawValue)", errno: ESRCH)
        }
        firstPID = info.pid
        self.descriptor = descriptor
    }

    /// The descriptor's number, to be polled: readable once the process has exited.
    public var rawValue: Int32 { descriptor.rawValue }

    /// The process id, from the descriptor's fdinfo; `ESRCH` once the process has exited.
    public func pid() throws(KernelFailure) -> Int32 {
        let pid = try Self.information(of: rawValue).pid
        guard pid > 0, !hasExited else {
            throw KernelFailure(operation: "pid of pidfd", subject: "pid \(firstPID)", errno: ESRCH)
        }
        return pid
    }

    /// Sends a signal (pidfd_send_signal(2)); 0 only checks. `ESRCH`: the process is gone; `EPERM`: we may not.
    public func send(_ signal: Int32) throws(KernelFailure) {
        let result = clinux_pidfd_send_signal(rawValue, signal)
        guard result >= 0 else {
            // A security module says EACCES: AppArmor if the profile of either process denies the signal. For callers
            // it is the same refusal.
            throw KernelFailure(
                operation: "pidfd_send_signal \(signal)", subject: "pid \(firstPID)",
                errno: result == -EACCES ? EPERM : -result)
        }
    }

    /// A copy of one of the process's descriptors (pidfd_getfd(2)), close-on-exec. `EBADF`: it has no descriptor of
    /// that number; `EPERM`: we may not trace it.
    public func copy(of number: Int32) throws(KernelFailure) -> Descriptor {
        try Descriptor.taking(
            clinux_pidfd_getfd(rawValue, number), "pidfd_getfd", "pid \(firstPID), \(number)")
    }

    /// Whether the whole process has exited, with all threads; does not wait. True for a zombie.
    public var hasExited: Bool {
        var look = pollfd(fd: rawValue, events: Int16(POLLIN), revents: 0)
        return poll(&look, 1, 0) == 1
    }

    /// Its four user ids, by ioctl `PIDFD_GET_INFO` (Linux 6.13); nil: it is gone, or the kernel does not report them.
    public var owner: Proc.Owner? {
        var info = clinux_pidfd_info()
        info.mask = clinux_pidfd_info_credentials()
        guard clinux_pidfd_get_info(rawValue, &info) >= 0,
            info.mask & clinux_pidfd_info_credentials() != 0
        else { return nil }
        return Proc.Owner(
            real: info.ruid, effective: info.euid, saved: info.suid, filesystem: info.fsuid)
    }

    /// How it ended, as far as the kernel reports this to a process that is not its parent.
    ///
    /// Before its parent has waited for it, reads field 52 of `/proc/PID/stat` (the kernel shows it to processes that
    /// may trace this one). After that, uses ioctl `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, since Linux 6.15.
    public func exitStatus() -> ExitStatus {
        guard hasExited else { return .unknown }
        let reaped = statusAfterReaping()
        guard reaped == .unknown else { return reaped }
        let zombie = statusOfZombie()
        // Its parent may have waited for it between the two checks.
        return zombie == .unknown ? statusAfterReaping() : zombie
    }

    private func statusAfterReaping() -> ExitStatus {
        var info = clinux_pidfd_info()
        info.mask = clinux_pidfd_info_exit()
        guard clinux_pidfd_get_info(rawValue, &info) >= 0,
            info.mask & clinux_pidfd_info_exit() != 0
        else { return .unknown }
        return ExitStatus(waitStatus: info.exit_code)
    }

    private func statusOfZombie() -> ExitStatus {
        guard let info = try? Self.information(of: rawValue), info.pid > 0,
            let word = Proc().zombieExitCode(of: info.pid),
            // Our zombie still has the id after the check, so the id cannot have been reused.
            let after = try? Self.information(of: rawValue), after.pid == info.pid
        else { return .unknown }
        return ExitStatus(waitStatus: word)
    }

    private static func notPidFD(_ number: Int32) -> KernelFailure {
        KernelFailure(operation: "adopt pidfd", subject: "descriptor \(number)", errno: EBADF)
    }

    private struct Information {
        var pid: Int32
        var isThread: Bool
    }

    /// Whether a descriptor is a pidfd, by its link in `/proc/self/fd`.
    ///
    /// This is checked first, because the kernel may wait indefinitely before it reports about another kind:
    /// epoll(7) locks the whole set to list it, and a FUSE server may keep that lock held. The link is only a
    /// name.
    private static func isPidFD(_ number: Int32) -> Bool {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 32) { buffer in
            guard let base = buffer.baseAddress else { return false }
            let count = readlink("/proc/self/fd/\(number)", base, buffer.count)
            guard count > 0 else { return false }
            var link = Bytes(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: buffer[..<count])))
            // The second since Linux 6.9, where pidfds have inodes.
            return link.skip("anon_inode:[pidfd]") || link.skip("pidfd:[")
        }
    }

    private static func information(of number: Int32) throws(KernelFailure) -> Information {
        guard isPidFD(number) else { throw notPidFD(number) }
        var pid: Int32?
        var flags: UInt64 = 0
        let path = "/proc/self/fdinfo/\(number)"
        try Files.forEachLine(of: path) { line in
            if line.skip("Pid:") {
                pid = line.signed32()
                return false
            }
            if line.skip("flags:") {
                flags = UInt64(line.text.filter { $0.isASCII && $0.isNumber }, radix: 8) ?? 0
            }
            return true
        }
        guard let pid else { throw notPidFD(number) }
        // PIDFD_THREAD is O_EXCL (Linux 6.9).
        return Information(pid: pid, isThread: flags & UInt64(O_EXCL) != 0)
    }
}

extension PidFD {
    /// Frees the memory of a killed process at once, in our own time and on our processor, because the
    /// process itself may be slow to die (process_mrelease(2)).
    ///
    /// Must be called after SIGKILL. It takes time in proportion to the memory, so the deciding thread must
    /// not call it.
    ///
    /// Throws `EAGAIN` if only a part could be freed, or if another task had locked its memory map (also
    /// `EINTR`); `EINVAL` if it was not killed, or if a process that was not killed shares its memory
    /// (vfork(2)); `ESRCH` if its memory is already gone; `ENOSYS` if the kernel is older than 5.15.
    public func releaseMemory() throws(KernelFailure) {
        let result = clinux_process_mrelease(rawValue)
        guard result >= 0 else {
            throw KernelFailure(operation: "process_mrelease", subject: "pidfd \(rawValue)", errno: -result)
        }
    }
}

/// How a process ended.
public enum ExitStatus: Equatable, Sendable {
    /// It called exit(3) with this status, 0 to 255.
    case exited(Int32)
    /// A signal ended it.
    case signalled(Int32, coreDumped: Bool)
    /// It has not ended, or the kernel does not report how.
    case unknown
}

extension ExitStatus {
    /// Reads the status word of wait(2): the exit status in bits 8 to 15, or the signal in bits 0 to 6 and
    /// the core dump in bit 7.
    public init(waitStatus word: Int32) {
        let signal = word & 0x7F
        switch signal {
        case 0: self = .exited((word >> 8) & 0xFF)
        case 0x7F: self = .unknown
        default: self = .signalled(signal, coreDumped: word & 0x80 != 0)
        }
    }
}
