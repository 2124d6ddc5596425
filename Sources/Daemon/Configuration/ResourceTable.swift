import AppStateContract
import Linux

/// `[State …]`: what applications are to have of the machine in each state.
///
/// A launching application (`not-running`) has what it has of its own.
struct ResourceTable: Equatable, Sendable {
    /// Twice its siblings' processor and disk time in its own cgroup: 100 is what a unit has that says
    /// nothing (systemd.resource-control(5)), and most of them are no applications of ours. Nothing is added
    /// to nice values: no process is put above what its user may give it, so that nothing is left above
    /// should we be killed.
    var active = ResourceRow(cpuWeight: 200, ioWeight: 200)
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

    /// The table as documented.
    init() {}

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

    /// The state that a section of the configuration is about; nil where it is no such section.
    static func state(of section: String) -> LifeCycleState? {
        guard section.hasPrefix("State "),
            let state = LifeCycleState(rawValue: String(section.dropFirst("State ".count)).trimmed),
            path(of: state) != nil
        else { return nil }
        return state
    }

    private static func path(of state: LifeCycleState) -> WritableKeyPath<ResourceTable, ResourceRow>? {
        switch state {
        case .notRunning: nil
        case .active: \.active
        case .inactive: \.inactive
        case .background: \.background
        case .suspended: \.suspended
        }
    }

    /// Takes one line of a state's section; answers what is wrong with it. An empty value leaves alone what
    /// the application has of its own.
    mutating func apply(_ key: String, _ value: String, in section: String) -> String? {
        guard let state = Self.state(of: section), let path = Self.path(of: state) else { return nil }
        switch key {
        case "CPUWeight": return number(value, path.appending(path: \.cpuWeight), CgroupWeights.range)
        case "IOWeight": return number(value, path.appending(path: \.ioWeight), CgroupWeights.range)
        case "OOMScoreAdjust":
            return number(value, path.appending(path: \.oomScoreAdjust), OOMScoreAdjustment.range)
        case "Nice": return number(value, path.appending(path: \.nice), Niceness.range)
        case "IOSchedulingClass": return ioClass(value, path.appending(path: \.ioClass))
        default: return "no such key in [\(section)]"
        }
    }

    private mutating func number(
        _ value: String, _ path: WritableKeyPath<ResourceTable, Int32?>, _ range: ClosedRange<Int32>
    ) -> String? {
        if value.isEmpty {
            self[keyPath: path] = nil
            return nil
        }
        guard let number = Int32(value), range.contains(number) else {
            return "\"\(value)\" is no number from \(range.lowerBound) to \(range.upperBound)"
        }
        self[keyPath: path] = number
        return nil
    }

    private mutating func ioClass(
        _ value: String, _ path: WritableKeyPath<ResourceTable, IOPriority.Class?>
    ) -> String? {
        switch value {
        case "": self[keyPath: path] = nil
        case "best-effort": self[keyPath: path] = .bestEffort
        case "idle": self[keyPath: path] = .idle
        // One that never ends its reading would leave nobody any disk.
        case "realtime": return "realtime is not for applications; best-effort or idle"
        default: return "\"\(value)\" is none of best-effort, idle"
        }
        return nil
    }
}
