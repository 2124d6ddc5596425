/// How many descriptors may be held only for speed, because enough must be left for other purposes.
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

/// A cgroup that was found to represent an application, and the processes that were in it.
final class JudgedCgroup {
    let cgroup: Cgroup
    private let identifier: UInt64
    /// In ascending order of their ids, as the cgroup's processes are read.
    private let members: [ProcessIdentity]
    private let owner: UInt32
    /// All members, or none. If the kernel reports a pidfd's user ids (Linux 6.13), this is ten times as fast
    /// as reading the process's directory in /proc.
    private var held: [HeldProcess] = []
    private let budget: DescriptorBudget

    init(
        _ cgroup: Cgroup, members: [CgroupSnapshot.Process], owner: UInt32, budget: DescriptorBudget
    ) throws(KernelFailure) {
        self.cgroup = cgroup
        identifier = try cgroup.identifier()
        self.members = members.map(\.identity)
        self.owner = owner
        self.budget = budget
    }

    deinit { letGo() }

    /// Whether `other` was evaluated with the same processes in it.
    func hasMembers(of other: JudgedCgroup) -> Bool {
        identifier == other.identifier && members == other.members
    }

    private static let mostHeld = 128

    /// Holds the members, so that the next check is quick. Must not be called while a caller waits.
    func hold(proc: Proc) {
        guard held.isEmpty, members.count <= Self.mostHeld, budget.take(members.count) else { return }
        for member in members {
            guard let process = try? HeldProcess(member, proc: proc), process.owner != nil else {
                budget.giveBack(members.count - held.count)
                return letGo()
            }
            held.append(process)
        }
    }

    private func letGo() {
        budget.giveBack(held.count)
        held = []
    }

    /// Whether no process has joined the cgroup since it was evaluated, and all still belong entirely to the
    /// owner.
    func isUnchanged(main: ProcessIdentity, proc: Proc, isForeign: (ProcessIdentity) -> Bool) -> Bool {
        guard (try? cgroup.identifier()) == identifier,
            (try? cgroup.owner()) == owner,
            let now = try? cgroup.members(), !now.isPartial, now.unseen == 0
        else { return false }
        var index = 0
        for pid in now.processes {
            // Members that have ended since do not matter.
            while index < members.count, members[index].pid < pid { index += 1 }
            guard index < members.count, members[index].pid == pid, isOwners(index, proc),
                members[index] == main || !isForeign(members[index])
            else { return false }
        }
        return true
    }

    /// Uses its directory in /proc, which belongs to root if the process executes a set-user-ID program (proc_pid(5)).
    private func isOwners(_ index: Int, _ proc: Proc) -> Bool {
        guard !held.isEmpty else { return proc.directoryOwner(of: members[index].pid) == owner }
        return held[index].owner?.isWholly(owner) == true
    }
}
