import Glibc

/// What we changed of one application's resources, and what it was before.
///
/// A value is written only where it still is what we wrote last, or was never touched. What somebody else
/// has changed is theirs from then on: it is not written again, nor put back.
///
/// Threads and children inherit what their maker has, ours included. One that was not seen before, and has
/// what its maker has of us, counts as one whose own values are its maker's; one that has something else
/// while its maker has ours got it from somebody else.
public struct ResourceLedger: Sendable {
    /// Worth a line in the journal; each is told once.
    public enum Note: Equatable, Sendable, CustomStringConvertible {
        /// Somebody else changed what we had written.
        case changedByOthers(ResourceKnob, of: String, from: Int32, to: Int32)
        /// Somebody else gave a newcomer a value of its own.
        case ownValue(ResourceKnob, of: String, Int32)
        case failed(KernelFailure)

        public var description: String {
            switch self {
            case .changedByOthers(let knob, let subject, let from, let to):
                "\(knob.rawValue) of \(subject) was \(from) and is \(to) by somebody else: left alone"
            case .ownValue(let knob, let subject, let value):
                "\(knob.rawValue) of \(subject) is \(value) by somebody else: left alone"
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
        /// A thread, or the process for what only processes have.
        let target: ProcessIdentity
    }

    struct Record: Equatable {
        let process: ProcessIdentity
        /// What it had of its own.
        let original: Int32
        /// What it has: what we wrote last, or the original; of one that is left alone what was seen last.
        var written: Int32
        /// What it had before that, for those that it made until then (in ticks since boot).
        var previous: Int32?
        var changedAt: UInt64 = 0
        /// Somebody else has changed it.
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
    /// Cgroup files that are missing, as they were told of.
    var lacking: Set<ResourceKnob> = []
    /// Members that are not wholly the owner's, as they were told of.
    var unowned: Set<ProcessIdentity> = []
    private(set) var notes: [Note] = []
    /// More than anybody reads; the first tell what is the matter.
    private static let notesLimit = 64

    /// Nothing is touched yet. `uid` owns the application: only processes that are wholly its are changed.
    public init(proc: Proc, main: ProcessIdentity, owner uid: UInt32) {
        self.proc = proc
        self.main = main
        owner = uid
    }

    /// Whether there is nothing to put back or to remember.
    public var isEmpty: Bool { records.isEmpty && weights.isEmpty }

    /// Whether we remember something of a process.
    public func contains(_ process: ProcessIdentity) -> Bool {
        ResourceKnob.ofProcesses.contains { records[Key(knob: $0, target: process)] != nil }
    }

    /// What happened that is worth a line, since it was asked last.
    public mutating func takeNotes() -> [Note] {
        defer { notes = [] }
        return notes
    }

    /// Gives everything that we changed back what it had, whether or not the main process lives, and
    /// forgets it all.
    public mutating func putBack(isForeign: (ProcessIdentity) -> Bool) {
        if var changes = plan(ResourceRow(), isForeign: isForeign) { carryOut(&changes) }
        forget()
    }

    /// What is to be written; to be carried out with `carryOut`.
    public struct Changes: Sendable {
        var weights: [WeightChange] = []
        var processes: ArraySlice<Change> = []

        /// Whether there is nothing to be written.
        public var isEmpty: Bool { weights.isEmpty && processes.isEmpty }
    }

    /// What gives the application what the row says: its own cgroup's weights if it has one, else nice value and
    /// I/O class of its threads; the score of its processes in both cases. What the row does not say is put
    /// back. Processes that have left the extent get their own back and are forgotten.
    ///
    /// Looks, and answers what is to be written; the ledger says already what will be then. nil: the budget is spent, and
    /// this value is of no use any more.
    ///
    /// - Parameters:
    ///   - cgroup: the directory of a cgroup that holds the extent, all of it and nobody else, and has weights.
    ///   - memoryCgroup: the same where memory can be protected.
    ///   - newcomers: processes that were of the extent until now, whether or not they were seen there: what they
    ///     have inherited is taken back as from those that were.
    ///   - isForeign: whether a process is an application of its own: the extent ends there.
    public mutating func plan(
        _ row: ResourceRow, cgroup: String? = nil, memoryCgroup: String? = nil,
        departing newcomers: Set<ProcessIdentity> = [],
        within budget: Budget = .unlimited,
        isForeign: (ProcessIdentity) -> Bool
    ) -> Changes? {
        var processRow = row
        if cgroup != nil {
            processRow.nice = nil
            processRow.ioClass = nil
        }
        do throws(Interrupted) {
            let changes = try planProcesses(processRow, newcomers, budget, isForeign)
            return Changes(weights: planWeights(row, cgroup, memoryCgroup), processes: changes[...])
        } catch {
            return nil
        }
    }

    /// Writes what was planned, and takes out of the changes what was written. False: the budget is spent.
    @discardableResult
    public mutating func carryOut(_ changes: inout Changes, within budget: Budget = .unlimited) -> Bool {
        // The weights first: one write for all.
        carryOut(changes.weights)
        changes.weights = []
        return carryOut(&changes.processes, budget)
    }

    /// Forgets everything.
    public mutating func forget() {
        records = [:]
        weights = [:]
        unowned = []
        lacking = []
    }

    /// The budget is spent.
    struct Interrupted: Error {}

    /// The most threads and processes of an application that are looked at.
    public static let limit = 512

    /// One of each kind: thousands of children may be the matter for the same reason.
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
