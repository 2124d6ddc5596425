import Foundation
import Glibc
import TestSupport
import Testing

@testable import Linux

@Suite("Resources, on real processes and cgroups")
struct ResourceTests {
    let proc = Proc()
    static let python = Machine.hasPython

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

    @Test(
        "a set-user-ID child gives EPERM, whoever started it",
        .enabled(if: Machine.isRoot && python, "needs root and python3"))
    func setUserID() throws {
        let child = try Child(python: "os.setresuid(65534, 0, 0)\nsay(1)\nhold()")
        _ = try child.numbers()
        let process = try proc.identity(of: child.pid)
        try expectRefused(EPERM, process, owner: 65534)
        try expectRefused(EPERM, process, owner: 0)
    }

    private func expectRefused(
        _ errno: Int32, _ process: ProcessIdentity, owner: UInt32,
        at location: SourceLocation = #_sourceLocation
    ) throws {
        let before = try OOMScoreAdjustment.read(process.pid, proc: proc)
        let failure = failure {
            try OOMScoreAdjustment.write(1000, to: process, owner: owner, proc: proc)
        }
        #expect(failure?.errno == errno, sourceLocation: location)
        #expect(try OOMScoreAdjustment.read(process.pid, proc: proc) == before, sourceLocation: location)
    }

    // MARK: Cgroups

    @Test(
        "the kernel's own cgroup files are read and written",
        .enabled(if: realCgroup != nil, "no cgroup with cpu.weight to write to"))
    func realValues() throws {
        let name = "appstated-test-\(getpid())"
        let root = try #require(Self.realCgroup)
        let cgroup = try #require(Cgroup(path: "/\(name)", in: UnifiedHierarchy(mountPoint: root)))
        #expect(mkdir(cgroup.directory, 0o755) == 0)
        defer { rmdir(cgroup.directory) }
        for (knob, before, after) in [
            (CgroupKnob.cpuWeight, "100", "20"), (.cpuMax, "max 100000", "20000 100000"),
        ] {
            #expect(try cgroup.value(of: knob) == before)
            try cgroup.set(knob, to: after)
            #expect(try cgroup.value(of: knob) == after)
            try cgroup.set(knob, to: before)
            #expect(try cgroup.value(of: knob) == before)
        }
        #expect(failure { try cgroup.set(.cpuWeight, to: "10001") }?.errno == ERANGE)
    }

    /// A cgroup of the unified hierarchy whose children have weights.
    private static let realCgroup: String? = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].first { root in
        guard let text = try? String(contentsOfFile: root + "/cgroup.subtree_control", encoding: .utf8)
        else { return false }
        return text.split(whereSeparator: \.isWhitespace).contains("cpu") && access(root, W_OK) == 0
    }
}

/// Whether this process has a capability, given by its number.
func hasCapability(_ number: UInt64) -> Bool {
    guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8),
        let line = status.split(separator: "\n").first(where: { $0.hasPrefix("CapEff:") }),
        let mask = UInt64(line.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16)
    else { return false }
    return mask & (1 << number) != 0
}
