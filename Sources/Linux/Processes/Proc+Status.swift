import Glibc

extension Proc {
    /// The four user ids of a process (credentials(7)).
    public struct Owner: Equatable, Sendable {
        /// The user who started it.
        public let real: UInt32
        /// The user whose privileges it uses.
        public let effective: UInt32
        /// The user whose privileges it may take again.
        public let saved: UInt32
        /// The user whose files it may access.
        public let filesystem: UInt32

        /// Whether all four are `uid`: false for a set-user-ID program, no matter which user started it.
        public func isWholly(_ uid: UInt32) -> Bool {
            real == uid && effective == uid && saved == uid && filesystem == uid
        }
    }

    /// The parts of `/proc/PID/status` that we need.
    public struct Status: Equatable, Sendable {
        /// The four user ids: `Uid`.
        public let owner: Owner
        /// The process that a thread belongs to: `Tgid`.
        public let threadGroup: Int32
        /// The parent: `PPid`.
        public let parent: Int32
        /// The number of PID namespaces that show it, from the mount's own on: 1 if it lives in that one. This is the
        /// number of ids in `NSpid`, or 1 if the kernel has no such line.
        public let namespaceDepth: Int
        /// The process that traces it, 0 for none: `TracerPid`.
        public let tracer: Int32
    }

    /// Reads `/proc/PID/status`; also takes a thread's id, which no directory lists.
    ///
    /// Throws `ESRCH` if there is no such process, `EBADMSG` for a file that is cut off.
    public func status(_ pid: Int32) throws(KernelFailure) -> Status {
        var lines = StatusLines()
        try forEachLine(pid, "status") { lines.parse(&$0) }
        guard let status = lines.status else {
            throw KernelFailure(operation: "parse", subject: path(pid, "status"), errno: EBADMSG)
        }
        return status
    }

    /// Whether a stop is pending that takes effect once the process runs again: SIGSTOP sent to a frozen process.
    public func hasPendingStop(_ pid: Int32) throws(KernelFailure) -> Bool {
        try pendingSignal(of: [SIGSTOP], pid) != nil
    }

    /// The first of these signals that is pending until the process runs (`SigPnd` and `ShdPnd` of `/proc/PID/status`).
    public func pendingSignal(of signals: [Int32], _ pid: Int32) throws(KernelFailure) -> Int32? {
        var pending: UInt64 = 0
        try forEachLine(pid, "status") { line in
            guard line.skip("SigPnd:") || line.skip("ShdPnd:") else { return true }
            pending |= UInt64(line.text.filter(\.isHexDigit), radix: 16) ?? 0
            return true
        }
        return signals.first { pending & (1 << UInt64($0 - 1)) != 0 }
    }

    /// Whether the process is certain to end: SIGKILL is pending, or it exits, or it is gone.
    public func isDying(_ identity: ProcessIdentity) throws(KernelFailure) -> Bool {
        do throws(KernelFailure) {
            // The pending signals are read first: one that takes effect in between is seen in the state.
            if try pendingSignal(of: [SIGKILL], identity.pid) != nil { return true }
            let leader = try stat(identity.pid)
            guard leader.state == .zombie else { return leader.identity != identity || leader.isExiting }
            // Other threads may live on without it.
            let state = try state(of: identity)
            return state == .zombie || state == .dead
        } catch {
            if error.isNoSuchProcess { return true }
            throw error
        }
    }

    /// Whether and how a process is stopped by a signal.
    public enum SignalStop: Equatable, Sendable {
        case none
        /// SIGSTOP is pending until it runs, for example in a frozen cgroup.
        case pending
        case stopped
        /// It is gone, or dead and not waited for yet.
        case ended
    }

    /// Whether and how a process is stopped by a signal, in one reading.
    ///
    /// - Parameter asleep: whether to search for a pending SIGSTOP in a sleeping process, too. A process that sleeps and
    ///   is not frozen would have taken the signal at once.
    ///
    /// Throws `ESRCH` if its id was given to another process.
    public func signalStop(of identity: ProcessIdentity, asleep: Bool) throws(KernelFailure) -> SignalStop {
        switch try state(of: identity) {
        case .stopped: return .stopped
        case .zombie, .dead: return .ended
        case .sleeping where !asleep: return .none
        default: break
        }
        if try hasPendingStop(identity.pid) { return .pending }
        // The pending signals were read first: a signal that takes effect in between is seen in the state.
        return try state(of: identity) == .stopped ? .stopped : .none
    }

    /// Whether a stop holds the process, or is pending until it runs.
    ///
    /// Throws `ESRCH` if it is gone, or if its id was given to another process.
    public func hasStop(_ identity: ProcessIdentity) throws(KernelFailure) -> Bool {
        switch try signalStop(of: identity, asleep: true) {
        case .pending, .stopped: true
        case .none, .ended: false
        }
    }
}

/// Gathers the lines of a status file.
struct StatusLines {
    private var owner: Proc.Owner?
    private var threadGroup: Int32?
    private var parent: Int32?
    private var namespaceDepth: Int?
    private var tracer: Int32?

    /// Takes one line; false once no more lines are needed.
    mutating func parse(_ bytes: inout Bytes) -> Bool {
        if bytes.skip("Tgid:") {
            threadGroup = bytes.signed32()
        } else if bytes.skip("PPid:") {
            parent = bytes.signed32()
        } else if bytes.skip("TracerPid:") {
            tracer = bytes.signed32()
        } else if bytes.skip("Uid:") {
            if let real = bytes.unsigned32(), let effective = bytes.unsigned32(),
                let saved = bytes.unsigned32(), let filesystem = bytes.unsigned32()
            {
                owner = Proc.Owner(
                    real: real, effective: effective, saved: saved, filesystem: filesystem)
            }
        } else if bytes.skip("NSpid:") {
            var depth = 0
            while bytes.unsigned() != nil { depth += 1 }
            namespaceDepth = depth
            return false
        } else if bytes.skip("VmPeak:") || bytes.skip("Threads:") {
            // Past the place of NSpid on kernels that have it.
            return false
        }
        return true
    }

    var status: Proc.Status? {
        guard let owner, let threadGroup, let parent, let tracer else { return nil }
        return Proc.Status(
            owner: owner, threadGroup: threadGroup, parent: parent,
            namespaceDepth: max(1, namespaceDepth ?? 1), tracer: tracer)
    }
}

extension Proc {
    /// The process that traces one of these processes, or one of their threads; nil if there is none. Processes that
    /// are gone are skipped. A debugger traces all threads, strace(1) may trace one.
    public func tracer(ofAny pids: some Sequence<Int32>) -> Int32? {
        for pid in pids {
            guard let tracer = try? status(pid).tracer else { continue }
            if tracer != 0 { return tracer }
            guard let threads = try? threads(of: pid), threads.count > 1 else { continue }
            for thread in threads where thread != pid {
                if let tracer = try? status(thread).tracer, tracer != 0 { return tracer }
            }
        }
        return nil
    }
}
