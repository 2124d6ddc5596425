import AppStateContract
import Linux

/// `[State …]`: what applications are to have of the machine in each state.
///
/// A launching application (`not-running`) has what it has of its own.
struct ResourceTable: Equatable, Sendable {
    /// Twice its siblings' processor and disk time in its own cgroup: 100 is what a unit has that says
    /// nothing (systemd.resource-control(5)), and most of them are no applications of ours. Nothing is added
    /// to nice values: no process is put above what its user may give it, so that nothing is left above
    /// should we be killed. A fifth of the memory is taken from it last: what most applications use at once, and no more
    /// than what leaves the rest of the machine able to work.
    var active = ResourceRow(cpuWeight: 200, ioWeight: 200, memoryLow: 2_000)
    /// As a unit that says nothing.
    var inactive = ResourceRow(cpuWeight: 100, ioWeight: 100)
    /// A fifth of its siblings' time. Nice 7 is the same in the scheduler's own table: a nice step is a
    /// factor of 1.25 (kernel/sched/core.c, `sched_prio_to_weight`: 1024 at 0, 215 at 7). The kernel's killer
    /// takes it before one in front that is larger by less than a fifth of the memory.
    var background = ResourceRow(
        cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 200, nice: 7, ioClass: .idle)
    /// As the background (it executes nothing; what it wakes to is the background), but first for the
    /// kernel's killer: with stopped applications at 900 the one in front lived where it was killed
    /// otherwise (measured with 1 GiB and ten of 45 MiB). 900 is also Android's for cached applications.
    var suspended = ResourceRow(
        cpuWeight: 20, ioWeight: 20, oomScoreAdjust: 900, nice: 7, ioClass: .idle)

    /// Everything as applications have it of their own.
    static let nothing = ResourceTable(
        active: ResourceRow(), inactive: ResourceRow(), background: ResourceRow(), suspended: ResourceRow())

    /// What an application is to have in this state.
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
