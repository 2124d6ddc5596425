import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// The data that must survive this daemon, in files of records (`RecordFile`), each written atomically. A
/// hold is recorded there before it is enforced, and stays there until it is lifted (§ 5).
///
///     RUNTIME_DIRECTORY/holds/N          what is frozen or stopped of application N: for as long as it is
///     RUNTIME_DIRECTORY/applications/N   what is known of application N: for as long as it is registered
///     RUNTIME_DIRECTORY/numbers          the application number that was given last
///     RUNTIME_DIRECTORY/drops            applications that no longer own their saved state, until it is removed
///     RUNTIME_DIRECTORY/ends             how applications ended, until that is on the disk
///     RUNTIME_DIRECTORY/focus            processes that have the focus and are not registered
///
/// Each of the first two identifies the owner of the processes and the boot. About the held processes, the
/// second says only how they are held: it is written with each fact, and there may be thousands of them.
/// Whatever happens to one file, the others are enough.
final class RuntimeState {
    private let directory: String
    private let journal: Journal
    /// The hash of what each application's file contains, so that an unchanged record is not written again.
    private var written: [ApplicationNumber: Int] = [:]
    private var writtenHolds: [ApplicationNumber: WrittenHolds] = [:]
    private var lastNumber: UInt32?
    private var writtenFocus: [UInt8]?
    private var hasFailed = false
    private var origin: [Record.Line] = []
    private var lock: Descriptor?

    /// The content of a file in `holds`, and the part of the application's own file about it, encoded once.
    private struct WrittenHolds {
        let holding: Holding
        let brief: RecordFile.Lines

        init(_ holding: Holding) {
            self.holding = holding
            brief = RecordFile.Lines(holding.briefLines)
        }
    }

    /// nil if there is no directory to write to: then nothing survives.
    init?(directory: String?, journal: Journal) {
        guard let directory, !directory.isEmpty else { return nil }
        self.directory = Self.first(of: directory)
        self.journal = journal
        // If these cannot be created, nothing can be written, and so no process is stopped.
        for directory in [applications, holds] {
            attempt { () throws(KernelFailure) in try WholeFile.makeDirectory(directory) }
        }
    }

    /// Locks the directory for the lifetime of this value, shared or exclusively (flock(2)); false: another
    /// process has the lock. The shared lock waits for the exclusive one, which is held only for a moment.
    func lock(alone: Bool) -> Bool {
        let file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard file >= 0 else { return true }
        lock = Descriptor(owning: file)
        return flock(file, alone ? LOCK_EX | LOCK_NB : LOCK_SH) == 0 || errno != EWOULDBLOCK
    }

    /// systemd.exec(5): several directories are separated by colons; the first is ours.
    static func first(of directories: String) -> String { String(directories.prefix { $0 != ":" }) }

    private var applications: String { directory + "/applications" }

    private var holds: String { directory + "/holds" }

    private func path(_ number: ApplicationNumber) -> String { "\(applications)/\(number)" }

    private func holdsPath(_ number: ApplicationNumber) -> String { "\(holds)/\(number)" }

    // MARK: Writing

    /// Sets the boot and the bus that everything refers to that is written from now on.
    func begin(bus: String, boot: String) { origin = [Record.Line("boot", boot), Record.Line("bus", bus)] }

    /// Writes the record of an application, if it has changed. The holds are written first, in a separate
    /// file. If nothing is held any longer, that file is removed even without room for the record: where it is missing,
    /// the next daemon does not hold the application.
    ///
    /// - Returns: why it could not be written; nil: it is written now.
    func write(_ number: ApplicationNumber, _ record: Record, _ holding: Holding) -> KernelFailure? {
        do throws(KernelFailure) {
            let isFirst = writtenHolds[number] == nil
            let brief = try writeHolds(number, holding)
            let bytes = RecordFile.bytes([
                RecordFile.Lines(origin), brief ?? RecordFile.Lines([]), RecordFile.Lines(record.lines),
            ])
            let hash = Self.hash(bytes)
            if written[number] != hash {
                do throws(KernelFailure) {
                    try WholeFile.write(bytes, to: path(number))
                } catch {
                    // The two files of an application must describe the same holds.
                    if isFirst || brief == nil { removeHolds(number) }
                    throw error
                }
                written[number] = hash
            }
            if brief == nil { try removeHoldsFile(number) }
            hasFailed = false
            return nil
        } catch {
            complain(error)
            return error
        }
    }

    private static func hash(_ bytes: [UInt8]) -> Int {
        var hasher = Hasher()
        bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }

    /// Records the holds, unless they are already recorded. Returns the part about them for the application's
    /// own file; nil: nothing is held, and the file is removed once the other one says so.
    private func writeHolds(
        _ number: ApplicationNumber, _ holding: Holding
    ) throws(KernelFailure) -> RecordFile.Lines? {
        if holding.isEmpty { return nil }
        if let present = writtenHolds[number], present.holding == holding { return present.brief }
        let bytes = RecordFile.bytes([RecordFile.Lines(origin), RecordFile.Lines(holding.lines)])
        try WholeFile.write(bytes, to: holdsPath(number))
        let present = WrittenHolds(holding)
        writtenHolds[number] = present
        return present.brief
    }

    private func removeHoldsFile(_ number: ApplicationNumber) throws(KernelFailure) {
        guard writtenHolds[number] != nil else { return }
        try WholeFile.remove(holdsPath(number))
        writtenHolds[number] = nil
    }

    /// Whether both files of an application already describe exactly this: an earlier daemon wrote them.
    func hasRecorded(_ number: ApplicationNumber, _ holding: Holding) -> Bool {
        guard writtenHolds[number]?.holding == holding, let application = try? WholeFile.read(path(number))
        else { return false }
        return RecordFile.read(application).record.lines.filter(Holding.isBrief) == holding.briefLines
    }

    /// An application was removed: the next daemon knows only what it must release.
    func leave(_ number: ApplicationNumber, _ holding: Holding) {
        attempt { () throws(KernelFailure) in _ = try writeHolds(number, holding) }
        written[number] = nil
        attempt { () throws(KernelFailure) in try WholeFile.remove(path(number)) }
    }

    /// No process of it is held any longer.
    func removeHolds(_ number: ApplicationNumber) {
        attempt { () throws(KernelFailure) in try removeHoldsFile(number) }
    }

    /// Removes everything under this name.
    ///
    /// - Parameter isHeld: its cgroup could not be thawed; the next daemon tries again.
    func remove(named name: String, isHeld: Bool = false) {
        if let number = Self.number(name) {
            written[number] = nil
            if !isHeld { writtenHolds[number] = nil }
        }
        attempt { () throws(KernelFailure) in
            if !isHeld { try WholeFile.remove("\(holds)/\(name)") }
            try WholeFile.remove("\(applications)/\(name)")
        }
    }

    /// No object path is ever assigned twice, no matter which daemon assigns it.
    func noteLastNumber(_ number: UInt32) {
        guard number != lastNumber else { return }
        attempt { () throws(KernelFailure) in
            let record = Record([Record.Line("last", String(number))])
            try WholeFile.write(RecordFile.bytes(record), to: directory + "/numbers")
            lastNumber = number
        }
    }

    /// Records the focus of processes that are not registered, if it has changed.
    func writeFocus(_ record: Record) {
        let bytes = RecordFile.bytes(Record(origin + record.lines))
        guard writtenFocus != bytes else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.write(bytes, to: directory + "/focus")
            writtenFocus = bytes
        }
    }

    /// Records the applications whose saved state must be removed.
    func writeDrops(_ drops: Set<KeptID>) {
        replace("drops", with: Record(drops.map { Record.Line("drop", $0.fields) }))
    }

    /// Records how applications ended.
    func writeEnds(_ ends: PendingEnds) {
        replace("ends", with: ends.record)
    }

    /// An empty record leaves no file.
    private func replace(_ name: String, with record: Record) {
        attempt { () throws(KernelFailure) in
            guard !record.lines.isEmpty else { return try WholeFile.remove("\(directory)/\(name)") }
            try WholeFile.write(RecordFile.bytes(record), to: "\(directory)/\(name)")
        }
    }

    @discardableResult
    private func attempt(_ body: () throws(KernelFailure) -> Void) -> Bool {
        do throws(KernelFailure) {
            try body()
            return true
        } catch {
            complain(error)
            return false
        }
    }

    /// Logged once, because a full disk is not a reason to fill the journal as well.
    private func complain(_ failure: KernelFailure) {
        if !hasFailed {
            journal.log(
                .error,
                "the state may not survive a restart of the daemon, and nothing more is suspended: \(failure)"
            )
        }
        hasFailed = true
    }

    // MARK: Reading

    /// nil if it is not known.
    func lastGivenNumber() -> UInt32? {
        guard let bytes = try? WholeFile.read(directory + "/numbers") else { return nil }
        return RecordFile.read(bytes).record.understood("last") { $0.number() as UInt32? }.first
    }

    /// What `writeDrops` wrote.
    func drops() -> [KeptID] {
        guard let bytes = try? WholeFile.read(directory + "/drops") else { return [] }
        return RecordFile.read(bytes).record.understood("drop") { KeptID(&$0) }
    }

    /// What `writeEnds` wrote.
    func ends() -> PendingEnds {
        guard let bytes = try? WholeFile.read(directory + "/ends") else { return PendingEnds() }
        return PendingEnds(RecordFile.read(bytes).record)
    }

    /// What `writeFocus` wrote; nil if it wrote nothing, or not the whole, or in another boot.
    func focus(boot: String) -> Record? {
        guard let bytes = try? WholeFile.read(directory + "/focus") else { return nil }
        let reading = RecordFile.read(bytes)
        guard reading.damage == nil, reading.record["boot"]?.fields == [boot] else { return nil }
        return reading.record
    }

    /// All applications that have a record, in the order of their numbers.
    func found() -> [Found] {
        var found: [String: Found] = [:]
        for (name, reading) in readings(in: applications) {
            found[name, default: Found(name: name, number: Self.number(name))].application = reading
        }
        for (name, reading) in readings(in: holds) {
            found[name, default: Found(name: name, number: Self.number(name))].holds = reading
        }
        return found.values.sorted {
            ($0.number?.rawValue ?? .max, $0.name) < ($1.number?.rawValue ?? .max, $1.name)
        }
    }

    private static func number(_ name: String) -> ApplicationNumber? {
        UInt32(name).flatMap { String($0) == name ? ApplicationNumber($0) : nil }
    }

    /// Leaves out drafts that were being written when their writer was killed, and removes them.
    private func names(in directory: String) -> [String] {
        TextFile.names(inDirectory: directory).filter { name in
            guard name.hasSuffix(".new") else { return true }
            attempt { () throws(KernelFailure) in try WholeFile.remove("\(directory)/\(name)") }
            return false
        }
    }

    private func readings(in directory: String) -> [(name: String, RecordFile.Reading)] {
        var found: [(String, RecordFile.Reading)] = []
        for name in names(in: directory) {
            do throws(KernelFailure) {
                let bytes = try WholeFile.read("\(directory)/\(name)")
                let reading = RecordFile.read(bytes)
                found.append((name, reading))
                guard let number = Self.number(name) else { continue }
                if directory == holds {
                    // A damaged file says nothing that would not have to be written again.
                    let holding = reading.damage == nil ? Holding(reading.record) : Holding()
                    writtenHolds[number] = WrittenHolds(holding)
                } else {
                    written[number] = Self.hash(bytes)
                }
            } catch {
                found.append((name, RecordFile.Reading(Record(), damage: "\(error)")))
            }
        }
        return found
    }
}
