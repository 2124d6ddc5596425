/// How many descriptors may be held for speed alone: what runs out of them must have some for what is needed.
public final class DescriptorBudget {
    private var left: Int

    /// - Parameter count: how many there are.
    public init(_ count: Int) {
        left = count
    }

    fileprivate func take(_ count: Int) -> Bool {
        guard count <= left else { return false }
        left -= count
        return true
    }

    fileprivate func giveBack(_ count: Int) { left += count }
}

/// A cgroup that was found to be an application's own, and who was in it.
final class JudgedCgroup {
    let cgroup: Cgroup
    private let identifier: UInt64
    private let members: [Int32: ProcessIdentity]
    private let owner: UInt32
    /// All members, or nobody: where the kernel tells a pidfd's user ids (Linux 6.13), that is ten times as fast as a
    /// look at its directory in /proc.
    private var held: [Int32: HeldProcess] = [:]
    private let budget: DescriptorBudget

    init(
        _ cgroup: Cgroup, members: [CgroupSnapshot.Process], owner: UInt32, budget: DescriptorBudget
    ) throws(KernelFailure) {
        self.cgroup = cgroup
        identifier = try cgroup.identifier()
        self.members = Dictionary(members.map { ($0.identity.pid, $0.identity) }) { $1 }
        self.owner = owner
        self.budget = budget
    }

    deinit { letGo() }

    /// Whether `other` was judged with the same processes in it.
    func hasMembers(of other: JudgedCgroup) -> Bool {
        identifier == other.identifier && members == other.members
    }

    /// Holds the members, so that the next look is quick; not while somebody waits.
    func hold(proc: Proc) {
        guard held.isEmpty, budget.take(members.count) else { return }
        for member in members.values {
            guard let process = try? HeldProcess(member, proc: proc), process.owner != nil else {
                budget.giveBack(members.count - held.count)
                return letGo()
            }
            held[member.pid] = process
        }
    }

    private func letGo() {
        budget.giveBack(held.count)
        held = [:]
    }

    /// Whether nobody is in the cgroup who was not when it was judged, and all are still wholly the owner's.
    func isUnchanged(main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool) -> Bool {
        guard (try? cgroup.identifier()) == identifier, (try? cgroup.owner()) == owner,
            let now = try? cgroup.members(), !now.isPartial, now.unseen == 0
        else { return false }
        return now.processes.allSatisfy { pid in
            guard let member = members[pid], isOwners(pid, proc) else { return false }
            return member == main || !isForeign(member)
        }
    }

    /// By its directory in /proc: that is root's for whoever executes a set-user-ID program (proc_pid(5)).
    private func isOwners(_ pid: Int32, _ proc: Proc) -> Bool {
        guard let process = held[pid] else { return proc.directoryOwner(of: pid) == owner }
        return process.owner?.isWholly(owner) == true
    }
}
