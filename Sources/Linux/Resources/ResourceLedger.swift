import Glibc

/// Records our changes to one application's resources, and the original values.
///
/// A value is written only if it is still the one that we wrote last, or was never changed. A value that
/// another process has changed is left alone from then on: it is neither written again nor restored.
///
/// Threads and children inherit the values of their creator, the process or thread that created them,
/// including ours. If a new one has the value that we set for its creator, its original value is that of the
/// creator. If it has another value while its creator has ours, another process has set that value.
public struct ResourceLedger: Sendable {
    /// An event worth a line in the journal; each is reported once.
    public enum Note: Equatable, Sendable, CustomStringConvertible {
        /// Another process changed the value that we had written.
        case changedByOthers(ResourceKnob, of: String, from: Int32, to: Int32)
        /// Another process set a value for a newcomer.
        case ownValue(ResourceKnob, of: String, Int32)
        case failed(KernelFailure)

        public var description: String {
            switch self {
            case .changedByOthers(let knob, let subject, let from, let to):
                "\(knob.rawValue) of \(subject) was \(from), and another program has set it to \(to): left alone"
            case .ownValue(let knob, let subject, let value):
                "\(knob.rawValue) of \(subject) was set to \(value) by another program: left alone"
            case .failed(let failure):
                failure.description
            }
        }
    }

    let proc: Proc
    /// The process that the application's extent begins with.
    public let main: ProcessIdentity
    let owner: UInt32

    struct Key: Hashable {
        let knob: ResourceKnob
        /// A thread, or the process for values that only processes have.
        let target: ProcessIdentity
    }

    struct Record: Equatable {
        let process: ProcessIdentity
        /// The target's own value.
        let original: Int32
        /// The present value: what we wrote last, or the original; for a value that is left alone, what was seen last.
        var written: Int32
        /// The value before that, for those that the target made before `changedAt` (in ticks since boot).
        var previous: Int32?
        var changedAt: UInt64 = 0
        /// Another process has changed it.
        var isLeft = false
        var hasFailed = false
    }

    struct CgroupRecord: Equatable {
        let directory: String
        let inode: UInt64
        let original: Int32
        var written: Int32
        var isLeft = false
        var hasFailed = false
    }

    var records: [Key: Record] = [:]
    var weights: [ResourceKnob: CgroupRecord] = [:]
    /// Missing cgroup files that were reported.
    var lacking: Set<ResourceKnob> = []
    /// Members that are not wholly the owner's and were reported.
    var unowned: Set<ProcessIdentity> = []
    private(set) var notes: [Note] = []
    /// Whether `carryOut` has written everything that the last plan contained, except for what is gone.
    public internal(set) var isAsPlanned = true
    /// Because of a lack of descriptors or memory, some value is not set as it should be.
    private var isShort = false
    /// More than anyone reads; the first ones show the problem.
    private static let notesLimit = 64

    /// Changes nothing yet. `uid` owns the application: only processes that belong entirely to this user are
    /// changed.
    public init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        self.main = main
        owner = uid
    }

    /// Whether there is nothing to restore and no record.
    public var isEmpty: Bool { records.isEmpty && weights.isEmpty }

    /// Whether we have a record of a process.
    public func contains(_ process: ProcessIdentity) -> Bool {
        ResourceKnob.ofProcesses.contains { records[Key(knob: $0, target: process)] != nil }
    }

    /// The events since the last call that are worth a line.
    public mutating func takeNotes() -> [Note] {
        defer { notes = [] }
        return notes
    }

    /// Whether some value was not set since the last call because of a lack of descriptors or memory, so that
    /// it must be planned again.
    public mutating func takeShortage() -> Bool {
        defer { isShort = false }
        return isShort
    }

    mutating func noteShortage(_ failure: KernelFailure) {
        if failure.isExhaustion { isShort = true }
    }

    /// Restores everything that we changed, whether or not the main process lives, and forgets it all.
    public mutating func putBack(isForeign: (ProcessIdentity) -> Bool) {
        carryOut(plan(ResourceRow(), isForeign: isForeign))
        forget()
    }

    /// The writes that `carryOut` makes.
    public struct Changes: Sendable {
        var weights: [WeightChange] = []
        var processes: [Change] = []

        /// Whether there is nothing to be written.
        public var isEmpty: Bool { weights.isEmpty && processes.isEmpty }
    }

    /// Plans the writes that set the values of the row for the application: the weights of its own cgroup if
    /// it has one, else the nice value and I/O class of its threads; the score of its processes in both
    /// cases. Values that the row does not name are restored. The original values of processes that have left
    /// the extent are restored, and the processes are forgotten.
    ///
    /// Only examines, and returns the necessary writes; the ledger already contains the values after these
    /// writes.
    ///
    /// - Parameters:
    ///   - cgroup: the directory of a cgroup that holds the whole extent and no other process, and has weights.
    ///   - memoryCgroup: the same for a cgroup whose memory can be protected.
    ///   - newcomers: processes that were in the extent until now, whether or not they were found there:
    ///     their inherited values are reset in the same way.
    ///   - isForeign: whether a process is an application of its own: the extent ends there.
    public mutating func plan(
        _ row: ResourceRow, cgroup: String? = nil, memoryCgroup: String? = nil,
        departing newcomers: Set<ProcessIdentity> = [],
        isForeign: (ProcessIdentity) -> Bool
    ) -> Changes {
        var processRow = row
        if cgroup != nil {
            processRow.nice = nil
            processRow.ioClass = nil
        }
        isAsPlanned = true
        let processes = planProcesses(processRow, newcomers, isForeign)
        return Changes(weights: planWeights(row, cgroup, memoryCgroup), processes: processes)
    }

    /// Writes what was planned.
    public mutating func carryOut(_ changes: Changes) {
        // The weights first: one write covers all processes.
        carryOut(changes.weights)
        carryOut(changes.processes)
    }

    /// Removes the writes that set anything but an original value, because they could not be recorded. The record of
    /// the present values allows the others: `adopt` accepts an original value.
    public mutating func keepOnlyRestores(_ changes: inout Changes) {
        for change in changes.weights where change.value != change.before.original {
            weights[change.knob] = change.before
        }
        changes.weights.removeAll { $0.value != $0.before.original }
        for change in changes.processes where change.value != change.before.original {
            records[change.key] = change.before
        }
        changes.processes.removeAll { $0.value != $0.before.original }
    }

    /// Forgets everything.
    public mutating func forget() {
        records = [:]
        weights = [:]
        unowned = []
        lacking = []
    }

    /// The most threads and processes of an application that are examined.
    public static let limit = 512

    /// One note of each kind: thousands of children may fail for the same reason.
    mutating func note(_ note: Note) {
        if notes.count < Self.notesLimit, !notes.contains(where: note.isLike) { notes.append(note) }
    }
}

extension ResourceLedger.Note {
    fileprivate func isLike(_ other: Self) -> Bool {
        switch (self, other) {
        case (.changedByOthers(let knob, _, _, let to), .changedByOthers(let other, _, _, let now)):
            (knob, to) == (other, now)
        case (.ownValue(let knob, _, let value), .ownValue(let other, _, let one)):
            (knob, value) == (other, one)
        case (.failed(let failure), .failed(let one)):
            failure.operation == one.operation && failure.errno == one.errno
        case (.changedByOthers, _), (.ownValue, _), (.failed, _): false
        }
    }
}
