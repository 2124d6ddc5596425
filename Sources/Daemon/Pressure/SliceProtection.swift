import Glibc
import LifeCycle
import Linux
import Systemd

/// Makes the memory protection of an application's own cgroup effective: the kernel grants a cgroup no more of
/// `memory.low` than the cgroups above it have (Documentation/admin-guide/cgroup-v2.rst), and slices have none.
///
/// Each slice above a protected application gets as much as one application, and is set back to 0 when the last such
/// application is no longer protected. All slices get the same amount. A value that is neither 0 nor this
/// amount belongs to another program, and is left alone.
///
/// Each value is named by the record of a protected application, from before it is set until after it is set back: a
/// daemon may be killed at any moment.
final class SliceProtection {
    private let hierarchy: UnifiedHierarchy?
    private let journal: Journal
    private var amount: Int32 = 0
    private var protected: [ApplicationNumber: String] = [:]

    /// Makes these the entries about slices in an application's record. Returns false if this failed.
    typealias Record = (ApplicationNumber, [String]) -> Bool

    init(hierarchy: UnifiedHierarchy?, journal: Journal) {
        self.hierarchy = hierarchy
        self.journal = journal
    }

    /// What each slice gets: hundredths of a per cent of the memory; nil: nothing.
    func configure(_ share: UInt32?, _ record: Record) {
        let amount = share.map(CgroupShares.pages) ?? 0
        if amount == self.amount { return }
        // A slice that still has the former amount would count as another program's.
        guard reset(Set(protected.values.flatMap(slices))) else { return }
        self.amount = amount
        // What cannot be recorded is not set.
        protected = protected.filter { record($0.key, entries(for: $0.value)) }
        for slice in Set(protected.values.flatMap(slices)) { set(slice, amount) }
    }

    /// Notes the cgroup of a protected application; nil: it is not protected, or no longer.
    ///
    /// - Returns: false if a slice could not be set back; it stays recorded.
    @discardableResult
    func protect(_ number: ApplicationNumber, _ directory: String?, _ record: Record) -> Bool {
        let before = protected[number]
        if before != directory {
            let isRecorded = record(number, entries(of: number, next: directory))
            let next = isRecorded ? directory : nil
            protected[number] = next
            let still = Set(protected.values.flatMap(slices))
            guard reset(Set(before.map(slices) ?? []).subtracting(still)) else {
                protected[number] = before
                return false
            }
            for slice in next.map(slices) ?? [] { set(slice, amount) }
        }
        _ = record(number, entries(of: number))
        return true
    }

    // MARK: Values of an earlier daemon

    private static let key = "slices"

    /// The entries about the slices above an application's cgroup, among those that restore the application's original
    /// resources: above its present cgroup, and above the one that it will have.
    ///
    ///     slices 131072 /sys/fs/cgroup/…     pages that each has, and the cgroup
    func entries(of number: ApplicationNumber, next: String? = nil) -> [String] {
        let present = protected[number]
        return entries(for: present) + (next == present ? [] : entries(for: next))
    }

    private func entries(for directory: String?) -> [String] {
        directory.map { ["\(Self.key) \(amount) \($0)"] } ?? []
    }

    /// Whether an entry of a record is about slices.
    static func isEntry(_ entry: String) -> Bool { entry.hasPrefix(key + " ") }

    /// Sets the slices in such entries of an earlier daemon back to 0, if they still have what it gave them.
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

    /// Sets all of them back. False: some may still have their former value.
    private func reset(_ slices: Set<String>) -> Bool {
        slices.filter { !set($0, 0) }.isEmpty
    }

    @discardableResult
    private func set(_ slice: String, _ pages: Int32) -> Bool { set(slice, pages, insteadOf: amount) }

    /// False: it could not be set for lack of something, and may still have its former value.
    @discardableResult
    private func set(_ slice: String, _ pages: Int32, insteadOf ours: Int32) -> Bool {
        let cgroup = CgroupShares(directory: slice)
        do throws(KernelFailure) {
            let present = try cgroup.memoryLow()
            guard present == 0 || present == ours, present != pages else { return true }
            try cgroup.set(memoryLow: pages)
        } catch {
            // The slice may be gone, with everything in it.
            if !error.isNoSuchFile { journal.log(.notice, "\(error)") }
            return !error.isExhaustion
        }
        return true
    }
}
