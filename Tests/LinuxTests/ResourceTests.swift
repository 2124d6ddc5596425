import Foundation
import Glibc
import Testing

@testable import Linux

@Suite("Resources, on real processes")
struct ResourceTests {
    let proc = Proc()
    static let python = Machine.hasPython

    @Test("the nice value of a thread is read and written")
    func nice() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        let before = try Niceness.read(child.pid)
        try Niceness.write(before + 3, to: process, of: process, owner: getuid(), proc: proc)
        #expect(try Niceness.read(child.pid) == before + 3)
        #expect(getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(child.pid)) == before + 3)
    }

    @Test("changing one thread's nice value does not change another's", .enabled(if: python, "needs python3"))
    func niceOfThread() throws {
        let child = try Child(python: threadScript)
        let thread = try #require(try child.numbers().first)
        let process = try proc.identity(of: child.pid)
        let target = try proc.identity(ofThread: thread, in: child.pid)
        let before = try Niceness.read(child.pid)
        try Niceness.write(before + 4, to: target, of: process, owner: getuid(), proc: proc)
        #expect(try Niceness.read(thread) == before + 4)
        #expect(try Niceness.read(child.pid) == before)
    }

    @Test("the I/O class and level of a thread are read and written")
    func ioPriority() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        for value in [
            IOPriority(.idle), IOPriority(.bestEffort, level: 6), IOPriority(.bestEffort), IOPriority(.none),
        ] {
            try IOPriority.write(value, to: process, of: process, owner: getuid(), proc: proc)
            #expect(try IOPriority.read(child.pid) == value)
        }
        #expect(IOPriority(.bestEffort, level: 6).level == 6)
        #expect(IOPriority(.idle).ioClass == .idle)
    }

    @Test("the level that older kernels name beside no class is dropped, since they do not take it")
    func noClass() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        #expect(IOPriority(rawValue: 4) == IOPriority(.none))
        #expect(IOPriority(rawValue: IOPriority(.bestEffort, level: 4).rawValue).level == 4)
        try IOPriority.write(IOPriority(.idle), to: process, of: process, owner: getuid(), proc: proc)
        try IOPriority.write(IOPriority(rawValue: 4), to: process, of: process, owner: getuid(), proc: proc)
        #expect(try IOPriority.read(child.pid) == IOPriority(.none))
    }

    @Test("oom_score_adj is read, raised and restored")
    func oom() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        let before = try OOMScoreAdjustment.read(child.pid, proc: proc)
        try OOMScoreAdjustment.write(before + 7, to: process, owner: getuid(), proc: proc)
        #expect(try OOMScoreAdjustment.read(child.pid, proc: proc) == before + 7)
        try OOMScoreAdjustment.write(before, to: process, owner: getuid(), proc: proc)
        #expect(try OOMScoreAdjustment.read(child.pid, proc: proc) == before)
    }

    @Test(
        "lowering oom_score_adj without CAP_SYS_RESOURCE gives EACCES",
        .enabled(if: !hasCapability(24), "this machine has CAP_SYS_RESOURCE"))
    func oomTooLow() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        let before = try OOMScoreAdjustment.read(child.pid, proc: proc)
        let failure = failure {
            try OOMScoreAdjustment.write(before - 1, to: process, owner: getuid(), proc: proc)
        }
        #expect(failure?.errno == EACCES)
        #expect(try OOMScoreAdjustment.read(child.pid, proc: proc) == before)
    }

    @Test("a process with another start time gives ESRCH, and nothing is written")
    func another() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        let other = ProcessIdentity(pid: process.pid, startTime: process.startTime + 1)
        let before = try state(of: child.pid)
        expectRefused(ESRCH, other, owner: getuid())
        #expect(try state(of: child.pid) == before)
    }

    @Test("a process that has ended gives ESRCH")
    func gone() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        child.closeInput()
        try child.reap()
        expectRefused(ESRCH, process, owner: getuid())
        #expect(failure { _ = try Niceness.read(process.pid) }?.errno == ESRCH)
        #expect(failure { _ = try IOPriority.read(process.pid) }?.errno == ESRCH)
        #expect(failure { _ = try OOMScoreAdjustment.read(process.pid, proc: proc) }?.errno == ESRCH)
    }

    @Test("a process that does not wholly belong to the owner gives EPERM, and nothing is written")
    func owner() throws {
        let child = try Child.idle()
        let process = try proc.identity(of: child.pid)
        let before = try state(of: child.pid)
        expectRefused(EPERM, process, owner: getuid() + 1)
        #expect(try state(of: child.pid) == before)
    }

    @Test(
        "a set-user-ID child gives EPERM, whoever started it",
        .enabled(if: Machine.isRoot && python, "needs root and python3"))
    func setUserID() throws {
        let child = try Child(python: "os.setresuid(65534, 0, 0)\nsay(1)\nhold()")
        _ = try child.numbers()
        let process = try proc.identity(of: child.pid)
        expectRefused(EPERM, process, owner: 65534)
        expectRefused(EPERM, process, owner: 0)
    }

    @Test("a thread of another process gives ESRCH", .enabled(if: python, "needs python3"))
    func foreignThread() throws {
        let child = try Child(python: threadScript)
        let thread = try #require(try child.numbers().first)
        let target = try proc.identity(ofThread: thread, in: child.pid)
        let other = try Child.idle()
        let process = try proc.identity(of: other.pid)
        let failure = failure {
            try Niceness.write(19, to: target, of: process, owner: getuid(), proc: proc)
        }
        #expect(failure?.errno == ESRCH)
        #expect(try Niceness.read(thread) != 19)
    }

    private func expectRefused(
        _ errno: Int32, _ process: ProcessIdentity, owner: UInt32,
        at location: SourceLocation = #_sourceLocation
    ) {
        let failures = [
            failure { try Niceness.write(19, to: process, of: process, owner: owner, proc: proc) },
            failure {
                try IOPriority.write(IOPriority(.idle), to: process, of: process, owner: owner, proc: proc)
            },
            failure { try OOMScoreAdjustment.write(1000, to: process, owner: owner, proc: proc) },
        ]
        #expect(failures.map { $0?.errno } == [errno, errno, errno], sourceLocation: location)
    }

    private func state(of pid: Int32) throws -> [Int32] {
        [
            try Niceness.read(pid), try IOPriority.read(pid).rawValue,
            try OOMScoreAdjustment.read(pid, proc: proc),
        ]
    }

    // MARK: Cgroups

    @Test("a cgroup's weights are read and written; a disk's own weight is not the default")
    func weights() throws {
        let tree = try MadeUpTree([
            "app/cpu.weight": "100\n", "app/io.weight": "default 100\n8:16 250\n",
        ])
        let cgroup = CgroupShares(directory: tree.root + "/app")
        #expect(try cgroup.cpu() == 100)
        #expect(try cgroup.io() == 100)
        try cgroup.set(cpu: 20)
        try cgroup.set(io: 7)
        #expect(try cgroup.cpu() == 20)
        #expect(try cgroup.io() == 7)
        #expect(try tree.text("app/cpu.weight") == "20")
        #expect(try tree.text("app/io.weight") == "default 7")
    }

    @Test("a cgroup without the controllers gives ENOENT, an unexpected file EBADMSG")
    func noWeights() throws {
        let tree = try MadeUpTree(["app/cgroup.procs": "", "odd/cpu.weight": "max\n", "odd/io.weight": ""])
        let cgroup = CgroupShares(directory: tree.root + "/app")
        #expect(failure { _ = try cgroup.cpu() }?.isNoSuchFile == true)
        #expect(failure { _ = try cgroup.io() }?.isNoSuchFile == true)
        #expect(failure { try cgroup.set(cpu: 1) }?.isNoSuchFile == true)
        #expect(failure { try cgroup.set(io: 1) }?.isNoSuchFile == true)
        let odd = CgroupShares(directory: tree.root + "/odd")
        #expect(failure { _ = try odd.cpu() }?.errno == EBADMSG)
        #expect(failure { _ = try odd.io() }?.errno == EBADMSG)
    }

    @Test(
        "the kernel's own cgroup files are read and written",
        .enabled(if: realCgroup != nil, "no cgroup with cpu.weight to write to"))
    func realWeights() throws {
        let root = try #require(Self.realCgroup)
        let directory = root + "/appstated-test-\(getpid())"
        #expect(mkdir(directory, 0o755) == 0)
        defer { rmdir(directory) }
        let cgroup = CgroupShares(directory: directory)
        #expect(try cgroup.cpu() == 100)
        try cgroup.set(cpu: 20)
        #expect(try cgroup.cpu() == 20)
        #expect(failure { try cgroup.set(cpu: 10_001) }?.errno == ERANGE)
    }

    /// A cgroup of the unified hierarchy whose children have weights.
    private static let realCgroup: String? = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].first { root in
        guard let text = try? String(contentsOfFile: root + "/cgroup.subtree_control", encoding: .utf8)
        else { return false }
        return text.split(whereSeparator: \.isWhitespace).contains("cpu") && access(root, W_OK) == 0
    }

    @Test(
        "a row turns a process's own value into the right one",
        arguments: [
            (ResourceRow(nice: 7), ResourceKnob.nice, 0, 7), (ResourceRow(nice: 7), .nice, 15, 19),
            (ResourceRow(nice: -20), .nice, -5, -20), (ResourceRow(), .nice, 3, 3),
            (ResourceRow(oomScoreAdjust: 900), .oom, 200, 1000),
            (ResourceRow(oomScoreAdjust: -1000), .oom, -200, -1000),
            (ResourceRow(ioClass: .idle), .io, 0, 3 << 13),
            (ResourceRow(ioClass: .idle), .io, 2 << 13 | 4, 3 << 13),
            (ResourceRow(ioClass: .idle), .io, 1 << 13 | 4, 1 << 13 | 4),
            (ResourceRow(ioClass: .bestEffort), .io, 0, 2 << 13 | 4),
            (ResourceRow(ioClass: .bestEffort), .io, 2 << 13 | 7, 2 << 13 | 7),
            (ResourceRow(ioClass: .bestEffort), .io, 3 << 13, 3 << 13),
            (ResourceRow(cpuWeight: 20), .cpuWeight, 100, 20), (ResourceRow(), .ioWeight, 100, 100),
        ] as [(ResourceRow, ResourceKnob, Int32, Int32)])
    func rows(_ row: ResourceRow, _ knob: ResourceKnob, _ own: Int32, _ value: Int32) {
        #expect(row.value(knob, from: own) == value)
    }
}

extension Niceness {
    /// Changes a thread of a process that is `process` now and wholly belongs to the owner, as the ledger does.
    static func write(
        _ value: Int32, to thread: ProcessIdentity, of process: ProcessIdentity, owner uid: UInt32, proc: Proc
    ) throws(KernelFailure) {
        try proc.checkOwned(process, by: uid)
        try proc.checkThread(thread, of: process)
        try set(value, thread.pid)
    }
}

extension IOPriority {
    /// The same for the I/O priority.
    static func write(
        _ value: IOPriority, to thread: ProcessIdentity, of process: ProcessIdentity, owner uid: UInt32,
        proc: Proc
    ) throws(KernelFailure) {
        try proc.checkOwned(process, by: uid)
        try proc.checkThread(thread, of: process)
        try value.set(thread.pid)
    }
}

/// Prints the id of a second thread and starts another thread for each line that it receives.
let threadScript = """
    import threading
    def work():
        say(threading.get_native_id())
        threading.Event().wait()
    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        if line.startswith('thread'): threading.Thread(target=work, daemon=True).start()
        elif line.startswith('child'):
            pid = os.fork()
            if pid == 0:
                for word in line.split()[1:]: os.nice(int(word))
                say(os.getpid())
                while True: signal.pause()
    """

/// Whether this process has a capability, given by its number.
func hasCapability(_ number: UInt64) -> Bool {
    guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
        let line = status.split(separator: "\n").first(where: { $0.hasPrefix("CapEff:") }),
        let mask = UInt64(line.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16)
    else { return false }
    return mask & (1 << number) != 0
}

extension MadeUpTree {
    func text(_ name: String) throws -> String {
        try String(contentsOfFile: "\(root)/\(name)", encoding: .utf8)
    }

    func write(_ text: String, to name: String) throws {
        try text.write(toFile: "\(root)/\(name)", atomically: false, encoding: .utf8)
    }
}
