import Glibc
import LifeCycle
import Linux
import Systemd

/// Lets the memory that is protected in an application's own cgroup be protected: the kernel grants a cgroup no more of
/// `memory.low` than the cgroups above it have (Documentation/admin-guide/cgroup-v2.rst), and slices have none.
///
/// Each slice above an application that is protected gets as much as one application, and 0 back when the last of them is
/// protected no longer. All get the same: what is seen in one that is neither 0 nor that is somebody else's, and left
/// alone. So nothing need be written down but what the applications were given.
final class SliceProtection {
    private let hierarchy: UnifiedHierarchy?
    private let journal: Journal
    private var amount: Int32 = 0
    private var protected: [ApplicationNumber: String] = [:]

    init(hierarchy: UnifiedHierarchy?, journal: Journal) {
        self.hierarchy = hierarchy
        self.journal = journal
    }

    /// What each slice gets: hundredths of a per cent of the memory; nil: nothing.
    func configure(_ share: UInt32?) {
        let amount = share.map(CgroupShares.pages) ?? 0
        if amount == self.amount { return }
        let slices = Set(protected.values.flatMap(slices))
        for slice in slices { set(slice, 0) }
        self.amount = amount
        for slice in slices { set(slice, amount) }
    }

    /// The cgroup of an application is protected; nil: it is not, or not any more.
    func protect(_ number: ApplicationNumber, _ directory: String?) {
        let before = protected[number]
        if before == directory { return }
        protected[number] = directory
        let still = Set(protected.values.flatMap(slices))
        for slice in Set(before.map(slices) ?? []).subtracting(still) { set(slice, 0) }
        for slice in directory.map(slices) ?? [] { set(slice, amount) }
    }

    // MARK: What an earlier daemon has left

    private static let key = "slices"

    /// What is written down of the slices above a cgroup, among what brings back an application's own resources.
    ///
    ///     slices 131072 /sys/fs/cgroup/…     pages that each has, and the cgroup
    func entries(for directory: String?) -> [String] {
        directory.map { ["\(Self.key) \(amount) \($0)"] } ?? []
    }

    /// Gives the slices of which an earlier daemon has left such entries 0 back, where they still have what it gave them.
    func takeBack(_ entries: [String]) {
        for entry in entries {
            let words = entry.split(separator: " ", maxSplits: 2)
            guard words.count == 3, words[0] == Self.key, let pages = Int32(words[1]) else { continue }
            for slice in slices(above: String(words[2])) { set(slice, 0, insteadOf: pages) }
        }
    }

    /// The directories between the top of the hierarchy and this one.
    private func slices(above directory: String) -> [String] {
        guard let top = hierarchy?.mountPoint, directory.hasPrefix(top + "/") else { return [] }
        let names = directory.dropFirst(top.count).split(separator: "/").dropLast()
        return names.indices.map { top + "/" + names[...$0].joined(separator: "/") }
    }

    private func set(_ slice: String, _ pages: Int32) { set(slice, pages, insteadOf: amount) }

    private func set(_ slice: String, _ pages: Int32, insteadOf ours: Int32) {
        let cgroup = CgroupShares(directory: slice)
        do throws(KernelFailure) {
            let present = try cgroup.memoryLow()
            guard present == 0 || present == ours, present != pages else { return }
            try cgroup.set(memoryLow: pages)
        } catch {
            // It may be gone, with all that was in it.
            if !error.isNoSuchFile { journal.log(.notice, "\(error)") }
        }
    }
}
