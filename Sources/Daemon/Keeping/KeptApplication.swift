import AppStateContract
import LifeCycle

/// The data about one application id of one user that outlives the application and the boot.
struct KeptApplication: Equatable, Sendable {
    /// One end of the application: an entry of `GetHistory`.
    struct Exit: Equatable, Sendable {
        /// CLOCK_REALTIME, microseconds: when it ended, or was found to have ended.
        let time: UInt64
        let reason: ExitReason
        /// nil: it was not observed.
        let state: LifeCycleState?
        /// The exit status or the signal; nil: it is unknown.
        let status: Int32?

        init(time: UInt64, reason: ExitReason, state: LifeCycleState? = nil, status: Int32? = nil) {
            (self.time, self.reason, self.state, self.status) = (time, reason, state, status)
        }
    }

    /// The number that `GetHistory` promises.
    static let mostExits = 16

    /// A launch that it has scheduled.
    struct Launch: Equatable, Sendable {
        let name: String
        let trigger: ScheduledLaunch.Trigger
    }

    var launches: [Launch] = []
    /// Oldest first.
    private(set) var exits: [Exit] = []
    /// Whether at least one run is over.
    var hasRun = false
    /// The number of applications with this id that are registered now.
    private(set) var runs = 0
    /// Whether the previous daemon saw it run, in this boot.
    private(set) var wasRunning = false
    /// The state it was in when the daemon shut down in an orderly way, for example at the end of a boot;
    /// nil: there was no such shutdown, or the application has been registered again since.
    var stateAtStop: LifeCycleState?
    /// Whether it was read from a record that says less.
    private(set) var isUnwritten = false
    /// The size of its saved state, in bytes; nil: there is none.
    var stateSize: UInt64?
    /// Whether its saved state, which no longer belongs to it, is to be removed with the next record.
    var dropsState = false
    /// How many savings are under way.
    private var saving = 0
    /// CLOCK_REALTIME, microseconds.
    private(set) var usedAt: UInt64

    init(usedAt: UInt64) { self.usedAt = usedAt }

    /// Whether it may be forgotten when there are too many.
    var isIdle: Bool { runs == 0 && stateSize == nil && launches.isEmpty }

    /// - Parameter time: CLOCK_REALTIME, which may have been set back.
    mutating func noteUse(at time: UInt64) { usedAt = max(usedAt, time) }

    /// It is registered once more. Returns whether the record says something else.
    mutating func begin() -> Bool {
        let isStale = !wasRunning || stateAtStop != nil
        runs += 1
        (wasRunning, stateAtStop) = (false, nil)
        return runs == 1 && isStale
    }

    /// It is registered once less. Returns whether it was the last.
    @discardableResult
    mutating func leave() -> Bool {
        runs -= 1
        if runs == 0 { hasRun = true }
        return runs == 0
    }

    mutating func beginSaving(_ size: UInt64) {
        saving += 1
        stateSize = size > 0 ? size : nil
        dropsState = false
    }

    mutating func haveSaved() { saving -= 1 }

    /// - Parameters:
    ///   - left: the size of what is saved now.
    ///   - drops: that is to be dropped.
    mutating func haveNotSaved(left: UInt64?, drops: Bool) {
        saving -= 1
        if saving > 0 || dropsState { return }
        (stateSize, dropsState) = (left, drops)
    }

    mutating func add(_ exit: Exit) {
        wasRunning = false
        hasRun = true
        noteUse(at: exit.time)
        if exits.count == Self.mostExits { exits.removeFirst() }
        exits.append(exit)
    }
}

// MARK: Written down

extension KeptApplication {
    /// Only the copy in the runtime directory has it: on the disk, the state is removed before the record is written.
    static let dropsStateKey = "drops-state"

    /// - Parameter boot: the machine's present boot.
    func record(of id: ApplicationID, boot: String) -> Record {
        var record = Record()
        record.add("id", id.rawValue)
        record.add("used", String(usedAt))
        record.add("has-run", hasRun.digit)
        // What ran with the previous daemon counts as running until it is known to have ended.
        if runs > 0 || wasRunning {
            record.add("running", boot)
            if let stateAtStop { record.add("state", stateAtStop.rawValue) }
        }
        for exit in exits {
            record.add("exit", exit.fields)
        }
        for launch in launches { record.add("launch", launch.fields) }
        return record
    }

    /// - Parameters:
    ///   - boot: the machine's present boot.
    ///   - now: CLOCK_REALTIME: applications that ran in another boot ended with that boot.
    init(_ record: Record, boot: String, now: UInt64) throws(Record.Flaw) {
        usedAt = try record.require("used") { $0.number() }
        hasRun = try record.require("has-run") { $0.flag() }
        exits = try record.all("exit") { Exit(&$0) }.suffix(Self.mostExits)
        launches = try record.all("launch") { Launch(&$0) }
        dropsState = record[Self.dropsStateKey] != nil
        let state: LifeCycleState? = try record.optional("state") { $0.value() }
        switch try record.optional("running", { $0.text() }) {
        case nil: break
        case boot?:
            wasRunning = true
            stateAtStop = state
        case _?:
            add(Exit(time: now, reason: .rebooted, state: state))
            isUnwritten = true
        }
    }
}

extension KeptApplication.Launch {
    fileprivate var fields: [String] {
        switch trigger {
        case .time(let time): [name, trigger.kind.rawValue, String(time)]
        case .network, .power: [name, trigger.kind.rawValue]
        }
    }

    fileprivate init?(_ fields: inout Fields) {
        guard let name = fields.text(), let kind: LaunchTrigger = fields.value() else { return nil }
        switch kind {
        case .time:
            guard let time: UInt64 = fields.number() else { return nil }
            self.init(name: name, trigger: .time(time))
        case .network: self.init(name: name, trigger: .network)
        case .power: self.init(name: name, trigger: .power)
        }
    }
}

extension KeptApplication.Exit {
    var fields: [String] {
        [String(time), reason.rawValue, state?.rawValue ?? "", status.map { String($0) } ?? ""]
    }

    init?(_ fields: inout Fields) {
        guard let time: UInt64 = fields.number(), let reason: ExitReason = fields.value(),
            let state = fields.text(), let status = fields.text()
        else { return nil }
        self.init(
            time: time, reason: reason, state: LifeCycleState(rawValue: state), status: Int32(status))
    }
}
