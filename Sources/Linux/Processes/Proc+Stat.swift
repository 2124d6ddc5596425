import Glibc

extension Proc {
    /// `/proc/PID/stat` of the leading thread, up to field 22.
    public struct Stat: Equatable, Sendable {
        /// What the leading thread does: field 3.
        public enum State: Equatable, Sendable {
            /// `R`
            case running
            /// `S`
            case sleeping
            /// `D`: cannot be interrupted, nor stopped before it returns.
            case diskSleep
            /// `T`: stopped by a signal.
            case stopped
            /// `t`: stopped by its tracer.
            case tracingStop
            /// `Z`: has exited, and its parent has not waited for it; other threads of it may live on.
            case zombie
            /// `X` or `x`
            case dead
            /// `I`: a kernel thread without work.
            case idle
            /// A letter that we do not know, of another kernel.
            case other(UInt8)

            /// The state that a letter means.
            public init(letter: UInt8) {
                switch letter {
                case UInt8(ascii: "R"): self = .running
                case UInt8(ascii: "S"): self = .sleeping
                case UInt8(ascii: "D"): self = .diskSleep
                case UInt8(ascii: "T"): self = .stopped
                case UInt8(ascii: "t"): self = .tracingStop
                case UInt8(ascii: "Z"): self = .zombie
                case UInt8(ascii: "X"), UInt8(ascii: "x"): self = .dead
                case UInt8(ascii: "I"): self = .idle
                default: self = .other(letter)
                }
            }
        }

        /// The process or thread id.
        public let pid: Int32
        /// The name, at most 15 bytes for a user's process; bytes that are not UTF-8 are replaced.
        public let comm: String
        /// What the leading thread does.
        public let state: State
        /// The parent's process id; 0 if it is outside the namespace.
        public let parent: Int32
        /// The process group.
        public let group: Int32
        /// The session.
        public let session: Int32
        /// The device of the controlling terminal; 0: none.
        public let terminal: Int32
        /// The terminal's foreground process group; -1: none.
        public let foreground: Int32
        /// The kernel's `PF_` flags (include/linux/sched.h).
        public let flags: UInt32
        /// Clock ticks since boot: field 22.
        public let startTime: UInt64

        /// `PF_KTHREAD` (0x00200000) is set.
        public var isKernelThread: Bool { flags & 0x0020_0000 != 0 }

        /// It has ended, or ends: `PF_EXITING` (0x4) is set.
        public var isExiting: Bool { flags & 0x4 != 0 || state == .zombie || state == .dead }

        /// The identity of the process or thread that these values belong to.
        public var identity: ProcessIdentity { ProcessIdentity(pid: pid, startTime: startTime) }

        /// Parses the line; nil if it is cut off before field 22, or is no such line.
        init?(parsing line: UnsafeRawBufferPointer) {
            var head = Bytes(line)
            // The name may hold blanks and parentheses; nothing after it does.
            guard let pid = head.signed32(), head.byte() == UInt8(ascii: "("),
                let open = line.firstIndex(of: UInt8(ascii: "(")),
                let close = line.lastIndex(of: UInt8(ascii: ")")), close > open
            else { return nil }
            var tail = Bytes(UnsafeRawBufferPointer(rebasing: line[(close + 1)...]))
            guard let letter = tail.byte(), let parent = tail.signed32(), let group = tail.signed32(),
                let session = tail.signed32(), let terminal = tail.signed32(),
                let foreground = tail.signed32(), let flags = tail.unsigned32(),
                tail.skip(fields: 12), let startTime = tail.unsigned(), !tail.isEmpty
            else { return nil }
            self.pid = pid
            comm = String(decoding: line[(open + 1)..<close], as: UTF8.self)
            state = State(letter: letter)
            self.parent = parent
            self.group = group
            self.session = session
            self.terminal = terminal
            self.foreground = foreground
            self.flags = flags
            self.startTime = startTime
        }
    }

    /// Reads `/proc/PID/task/PID/stat` once; also takes a thread's id. These fields are the same in `/proc/PID/stat`,
    /// but for that file the kernel adds up the times of all threads, and there may be thousands.
    ///
    /// Throws `ESRCH` if there is no such process, `EBADMSG` for a line that is cut off.
    public func stat(_ pid: Int32) throws(KernelFailure) -> Stat {
        try stat(ofThread: pid, in: pid)
    }

    /// The same for a thread of the process; `ESRCH` if the process has no such thread.
    func stat(ofThread thread: Int32, in pid: Int32) throws(KernelFailure) -> Stat {
        try readOnce(pid, "task/\(thread)/stat") { Stat(parsing: $0.rest) }
    }

    /// Whether the process is stopped by a signal (`T`). Reads its leading thread, or, if that has exited and others
    /// live on, at one of those. A tracer's stop (`t`) does not count.
    ///
    /// Throws `ESRCH` if it is gone, or if its id was given to another process.
    public func isStopped(_ identity: ProcessIdentity) throws(KernelFailure) -> Bool {
        try state(of: identity) == .stopped
    }

    private static let mostThreads = 64

    /// The state of a live thread of the process: of the leading thread, or, if that is a zombie, of the first threads
    /// that are not (a stopped one before others); `zombie` if there is none. `running` if there are more threads than
    /// are read, and all that were read have exited: a tracer that does not wait for them keeps them.
    public func state(of identity: ProcessIdentity) throws(KernelFailure) -> Stat.State {
        let leader = try stat(identity.pid)
        guard leader.startTime == identity.startTime else {
            throw KernelFailure(operation: "stat", subject: "process \(identity)", errno: ESRCH)
        }
        guard leader.state == .zombie else { return leader.state }
        var state = Stat.State.zombie
        // A stop reaches all threads, so a few of thousands are enough.
        var left = Self.mostThreads
        let threads = try threads(of: identity.pid, atMost: 2 * left)
        let mayHaveOthers = threads.count == 2 * left
        for thread in threads where thread != identity.pid {
            // A thread that has ended meanwhile does not count.
            guard let one = try? stat(ofThread: thread, in: identity.pid) else { continue }
            switch one.state {
            case .stopped: return .stopped
            case .zombie, .dead: continue
            default: state = one.state
            }
            left -= 1
            if left == 0 { break }
        }
        return state == .zombie && mayHaveOthers ? .running : state
    }

    /// Whether a thread of the process neither runs nor can run, or is gone. A stop reaches the threads one by one, and
    /// a thread in the middle of fork(2) ends that first.
    func isThreadStopped(_ thread: Int32, in pid: Int32) -> Bool {
        guard let one = try? stat(ofThread: thread, in: pid) else { return true }
        switch one.state {
        case .stopped, .tracingStop, .zombie, .dead: return true
        case .running, .sleeping, .diskSleep, .idle, .other: return false
        }
    }

    /// The status word of wait(2) that a zombie left, field 52; nil if the process is no zombie, or we may not see it.
    func zombieExitCode(of pid: Int32) -> Int32? {
        let word: Int32? = try? readOnce(pid, "stat") { text in
            let line = text.rest
            guard let close = line.lastIndex(of: UInt8(ascii: ")")) else { return nil }
            var tail = Bytes(UnsafeRawBufferPointer(rebasing: line[(close + 1)...]))
            guard tail.byte() == UInt8(ascii: "Z"), tail.skip(fields: 48) else { return nil }
            return tail.signed32()
        }
        // If we may not trace the process, we read 0, and may not read this link either (proc(5)).
        if word == 0 {
            var target: CChar = 0
            guard readlink(path(pid, "ns/pid"), &target, 1) == 1 else { return nil }
        }
        return word
    }
}
