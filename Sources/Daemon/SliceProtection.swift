import LifeCycle
import Linux
import Systemd

/// Makes the memory protection of an application's own cgroup effective: the kernel grants a cgroup no more of
/// `memory.low` than the cgroups above it have (Documentation/admin-guide/cgroup-v2.rst), and slices have none.
///
/// Each slice above a protected application gets as much as one application, and is set back to 0 when the last such
/// application is no longer protected. A value that is neither 0 nor this amount belongs to another program, and is left
/// alone. The records of the applications say what their slices have (`Originals.slices`).
struct SliceProtection {
    private let journal: Journal
    /// What each slice gets, in bytes.
    private(set) var amount = none
    private var protected: [ApplicationNumber: Cgroup] = [:]

    private static let none = "0"

    init(journal: Journal) { self.journal = journal }

    /// What each slice gets from now on, in hundredths of a per cent of the memory. No application is protected until
    /// that is recorded.
    mutating func configure(_ share: UInt32?) {
        let amount = share.map { "\(ResourceRow.bytes($0))" } ?? Self.none
        if amount == self.amount { return }
        for number in Array(protected.keys) { protect(number, nil) }
        self.amount = amount
    }

    /// Protects the cgroup of an application; nil: no longer.
    mutating func protect(_ number: ApplicationNumber, _ cgroup: Cgroup?) {
        let former = protected[number]
        if former == cgroup { return }
        protected[number] = cgroup
        let needed = Set(protected.values.flatMap(\.slices))
        for slice in former?.slices ?? [] where !needed.contains(slice) { set(slice, Self.none, amount) }
        for slice in cgroup?.slices ?? [] { set(slice, amount, Self.none) }
    }

    /// Sets back what an earlier daemon has set above a cgroup.
    func restore(_ originals: Originals) {
        guard let amount = originals.slices else { return }
        for slice in originals.cgroup?.slices ?? [] { set(slice, Self.none, amount) }
    }

    private func set(_ slice: Cgroup, _ bytes: String, _ former: String) {
        do throws(KernelFailure) {
            if try slice.value(of: .memoryLow) == former { try slice.set(.memoryLow, to: bytes) }
        } catch {
            // The slice may be gone, or have no memory controller.
            if !error.isNoSuchFile { journal.log(.notice, "\(error)") }
        }
    }
}

extension Cgroup {
    /// Those above it, without the root.
    fileprivate var slices: [Cgroup] { ancestors.filter { !$0.isRoot } }
}
