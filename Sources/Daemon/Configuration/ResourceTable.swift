import AppStateContract
import Glibc
import Linux

/// An application's share of the machine's resources. If a field is nil, the application keeps its own value.
struct ResourceRow: Equatable {
    /// Of its own cgroup, relative to the siblings: `CgroupKnob.weights`.
    var cpuWeight: Int32?
    var ioWeight: Int32?
    /// The most processor time of its own cgroup, in percent of one processor; a limit that the cgroup already has stays.
    var cpuQuota: UInt32?
    /// How much memory of its own cgroup is protected, in hundredths of a per cent of the machine's; more than that
    /// stays.
    var memoryLow: UInt32?
    /// Added to what each process has, and kept within `OOMScoreAdjustment.range`.
    var oomScoreAdjust: Int32?
    /// Whether systemd-oomd is asked to prefer others.
    var isAvoided = false

    /// Takes over another row's weights for the time of processors and disks.
    mutating func copyShares(from other: ResourceRow) {
        cpuWeight = other.cpuWeight
        ioWeight = other.ioWeight
    }

    /// What is left of it for an application that is only known with its state: it yields in the background, and
    /// systemd-oomd spares it in front.
    func mirrored(in state: LifeCycleState) -> ResourceRow {
        switch state {
        case .background, .suspended: ResourceRow(cpuWeight: cpuWeight, ioWeight: ioWeight)
        default: ResourceRow(isAvoided: isAvoided)
        }
    }

    /// What a cgroup gets whose own value is `original`.
    func value(of knob: CgroupKnob, from original: String) -> String {
        switch knob {
        case .cpuWeight: return cpuWeight.map { "\($0)" } ?? original
        case .ioWeight: return ioWeight.map { "default \($0)" } ?? original
        case .cpuMax:
            let words = original.split(separator: " ")
            guard let cpuQuota, words.count == 2, words[0] == "max", let period = Int(words[1]) else {
                return original
            }
            return "\(max(period * Int(cpuQuota) / 100, 1_000)) \(period)"
        case .memoryLow:
            guard let memoryLow, let own = UInt64(original) else { return original }
            return "\(max(own, Self.bytes(memoryLow)))"
        case .avoid: return isAvoided ? "1" : original
        }
    }

    /// What a process gets whose own score is `original`.
    func score(from original: String) -> String {
        guard let oomScoreAdjust, let own = Int32(original) else { return original }
        let range = OOMScoreAdjustment.range
        return "\(min(max(own + oomScoreAdjust, range.lowerBound), range.upperBound))"
    }

    /// A share of the machine's memory, in hundredths of a per cent: whole pages, as the kernel counts.
    static func bytes(_ share: UInt32) -> UInt64 {
        UInt64(sysconf(Int32(_SC_PHYS_PAGES))) * UInt64(share) / 10_000 * UInt64(getpagesize())
    }
}

/// `[State …]`: the share of the machine that applications get in each state.
///
/// A launching application (`not-running`) keeps its own values.
struct ResourceTable: Equatable {
    /// Twice its siblings' processor and disk time: 100 is the weight of a unit that sets none
    /// (systemd.resource-control(5)), and most siblings are not applications of ours. A fifth of the memory is reclaimed
    /// from it last. Most applications use that much at once, and it leaves the rest of the machine able to work.
    var active = ResourceRow(cpuWeight: 200, ioWeight: 200, memoryLow: 2_000, isAvoided: true)
    /// As for a unit that sets nothing.
    var inactive = ResourceRow(cpuWeight: 100, ioWeight: 100)
    /// A fifth of its siblings' time. The kernel's OOM killer chooses it before a foreground application that is larger
    /// by less than a fifth of the memory.
    var background = ResourceRow(cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 200)
    /// As in the background, because a suspended application executes nothing and wakes into the background;
    /// but the kernel's OOM killer chooses it first. With stopped applications at 900, the foreground
    /// application survived where it was killed otherwise (measured with 1 GiB and ten applications of 45
    /// MiB). Android also uses 900 for cached applications.
    var suspended = ResourceRow(cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 900)

    /// Leaves the applications' own values everywhere.
    static let nothing = ResourceTable(
        active: ResourceRow(), inactive: ResourceRow(), background: ResourceRow(), suspended: ResourceRow())

    /// What an application gets in this state.
    subscript(state: LifeCycleState) -> ResourceRow {
        switch state {
        case .notRunning: ResourceRow()
        case .active: active
        case .inactive: inactive
        case .background: background
        case .suspended: suspended
        }
    }
}
