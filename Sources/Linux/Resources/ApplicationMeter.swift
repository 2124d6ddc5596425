import Glibc

/// Reads what one application uses: from its cgroup where that is the application's own, else process by process.
public struct ApplicationMeter {
    public struct Figures: Equatable, Sendable {
        /// The cgroup that has counted the processor time; nil: it is the sum of the processes. Figures of different
        /// counters cannot be compared.
        public let counter: Cgroup?
        /// Microseconds of processor time. Without a cgroup, that of processes that have ended is missing.
        public let processor: UInt64
        /// Microseconds in which the cgroup was frozen (`frozen_usec` of `cgroup.stat.local`, since Linux 6.18); nil:
        /// this is not known.
        public let frozen: UInt64?
        /// Bytes of anonymous memory in RAM, and in swap.
        public let resident: UInt64
        public let swapped: UInt64
    }

    private let main: ProcessIdentity
    private let proc: Proc
    private let hierarchy: UnifiedHierarchy?
    /// Where the main process was last found, and whether that is the application's own.
    private var place: (here: Cgroup, own: Cgroup?)?

    /// - Parameter pid: the main process. Throws `ESRCH` if it is gone.
    public init(_ pid: Int32, proc: Proc = Proc()) throws(KernelFailure) {
        main = try proc.identity(of: pid)
        self.proc = proc
        hierarchy = .find()
    }

    /// The figures now; nil if the application has ended.
    ///
    /// - Parameter applications: the main processes of all applications.
    public mutating func read(among applications: Set<Int32>) -> Figures? {
        guard (try? proc.identity(of: main.pid)) == main else { return nil }
        let cgroup = ownCgroup(among: applications)
        let members = Extent.members(of: main, in: cgroup, proc: proc) { applications.contains($0.pid) }
        var memory: (resident: UInt64, swapped: UInt64) = (0, 0)
        for process in members {
            try? proc.forEachLine(process.pid, "status") { line in
                if line.skip("RssAnon:") { memory.resident &+= (line.unsigned() ?? 0) &* 1_024 }
                if line.skip("VmSwap:") { memory.swapped &+= (line.unsigned() ?? 0) &* 1_024 }
                return true
            }
        }
        let counted = try? cgroup?.readOnce("cpu.stat") { $0.skip("usage_usec ") ? $0.unsigned() : nil }
        return Figures(
            counter: counted == nil ? nil : cgroup,
            processor: counted ?? members.reduce(0) { $0 &+ proc.processorTime(of: $1.pid) },
            frozen: try? cgroup?.readOnce("cgroup.stat.local") {
                $0.skip("frozen_usec ") ? $0.unsigned() : nil
            },
            resident: memory.resident, swapped: memory.swapped)
    }

    /// Judged again only when the main process has moved: the session agent may give it a scope at any time.
    private mutating func ownCgroup(among applications: Set<Int32>) -> Cgroup? {
        guard let hierarchy, let here = try? Cgroup.of(main.pid, in: hierarchy, proc: proc) else {
            return nil
        }
        if let place, place.here == here { return place.own }
        let judge = ApplicationCgroup(hierarchy: hierarchy, daemon: nil, proc: proc)
        let others = Set(applications.compactMap { try? proc.identity(of: $0) })
        let owner = (try? proc.status(main.pid).owner.real) ?? getuid()
        var own: Cgroup?
        if case .own(let cgroup) = judge.judge(
            main, owner: owner, applications: others, hasWindow: { _ in false })
        {
            own = cgroup
        }
        place = (here, own)
        return own
    }
}

extension Proc {
    /// Microseconds of processor time that a process, and the children that it has waited for, have used: fields 14 to
    /// 17 of `/proc/PID/stat`; 0 if it is gone.
    fileprivate func processorTime(of pid: Int32) -> UInt64 {
        let ticks: UInt64? = try? readOnce(pid, "stat") { text in
            let line = text.rest
            guard let close = line.lastIndex(of: UInt8(ascii: ")")) else { return nil }
            var tail = Bytes(UnsafeRawBufferPointer(rebasing: line[(close + 1)...]))
            guard tail.skip(fields: 11) else { return nil }
            return (0..<4).reduce(0) { sum, _ in sum &+ (tail.unsigned() ?? 0) }
        }
        return (ticks ?? 0) &* 1_000_000 / UInt64(sysconf(Int32(_SC_CLK_TCK)))
    }
}
