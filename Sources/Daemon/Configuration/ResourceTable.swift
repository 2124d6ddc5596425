import AppStateContract
import Linux

/// `[State …]`: the share of the machine that applications get in each state.
///
/// A launching application (`not-running`) keeps its own values.
struct ResourceTable: Equatable, Sendable {
    /// Twice its siblings' processor and disk time in its own cgroup: 100 is the weight of a unit that sets none
    /// (systemd.resource-control(5)), and most siblings are not applications of ours. Nice values stay as they are: no
    /// process is raised above what its user may give it, so nothing stays raised if the daemon is killed. A fifth of
    /// the memory is reclaimed from it last. Most applications use that much at once, and it leaves the rest of the
    /// machine able to work.
    var active = ResourceRow(cpuWeight: 200, ioWeight: 200, memoryLow: 2_000)
    /// As for a unit that sets nothing.
    var inactive = ResourceRow(cpuWeight: 100, ioWeight: 100)
    /// A fifth of its siblings' time. Nice 7 gives the same in the scheduler's own table, where a nice step is a factor
    /// of 1.25 (kernel/sched/core.c, `sched_prio_to_weight`: 1024 at 0, 215 at 7). The kernel's OOM killer
    /// chooses it before a foreground application that is larger by less than a fifth of the memory.
    var background = ResourceRow(
        cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 200, nice: 7, ioClass: .idle)
    /// As in the background, because a suspended application executes nothing and wakes into the background;
    /// but the kernel's OOM killer chooses it first. With stopped applications at 900, the foreground
    /// application survived where it was killed otherwise (measured with 1 GiB and ten applications of 45
    /// MiB). Android also uses 900 for cached applications.
    var suspended = ResourceRow(
        cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 900, nice: 7, ioClass: .idle)

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
