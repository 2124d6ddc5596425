import AppStateContract
import Glibc
import LifeCycle
import Linux
import Systemd

/// The data that must survive this daemon, in files of records (`RecordFile`) that are renamed into place. The directory
/// is in a tmpfs: what is there was written in this boot.
///
///     RUNTIME_DIRECTORY/applications/N   what is known of application N, and how it is held
///     RUNTIME_DIRECTORY/daemon           the number that was given last
///     RUNTIME_DIRECTORY/kept             how applications ended, until that is on the disk (`KeptFiles`)
final class RuntimeState {
    private let directory: String
    private let journal: Journal
    /// What the file of each application contains: the hash of it, so that it is not written again unchanged, and whether
    /// there is a hold in it.
    private var written: [ApplicationNumber: (hash: Int, isHeld: Bool)] = [:]
    private var daemonFile: [UInt8] = []
    private var hasFailed = false
    private var lock: Descriptor?

    /// nil if there is no directory to write to: then nothing survives.
    init?(directory: String?, journal: Journal) {
        guard let directory, !directory.isEmpty else { return nil }
        self.directory = Environment.firstDirectory(of: directory)
        self.journal = journal
        // If it cannot be created, nothing can be written, and so no process is stopped.
        attempt { () throws(KernelFailure) in try WholeFile.makeDirectory(applications) }
    }

    /// Locks the directory for the lifetime of this value, shared or exclusively (flock(2)); false: another
    /// process has the lock. The shared lock waits for the exclusive one, which is held only for a moment.
    func lock(alone: Bool) -> Bool {
        let file = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard file >= 0 else { return true }
        lock = Descriptor(owning: file)
        return flock(file, alone ? LOCK_EX | LOCK_NB : LOCK_SH) == 0 || errno != EWOULDBLOCK
    }

    private var applications: String { directory + "/applications" }

    private func path(_ number: ApplicationNumber) -> String { "\(applications)/\(number)" }

    // MARK: Applications

    /// Writes the record of an application and its hold, if they have changed.
    ///
    /// - Returns: why it could not be written; nil: it is written now.
    func write(_ number: ApplicationNumber, _ record: Record, _ hold: Hold?) -> KernelFailure? {
        let bytes = RecordFile.bytes(Record((hold?.lines ?? []) + record.lines))
        let hash = Self.hash(bytes)
        if written[number]?.hash == hash { return nil }
        let failure = attempt { () throws(KernelFailure) in try WholeFile.write(bytes, to: path(number)) }
        if failure == nil {
            written[number] = (hash, hold != nil)
            hasFailed = false
        } else if hold == nil, written[number]?.isHeld == true {
            // The next daemon must not hold what runs. There is always room to remove a file, and then for another.
            remove(number)
            return write(number, record, hold)
        }
        return failure
    }

    func remove(_ number: ApplicationNumber) {
        written[number] = nil
        remove(named: number.description)
    }

    func remove(named name: String) {
        attempt { () throws(KernelFailure) in try WholeFile.remove("\(applications)/\(name)") }
    }

    private static func hash(_ bytes: [UInt8]) -> Int {
        var hasher = Hasher()
        bytes.withUnsafeBytes { hasher.combine(bytes: $0) }
        return hasher.finalize()
    }

    // MARK: Found at the start

    /// The file of an application that an earlier daemon has left.
    struct Found {
        let name: String
        let record: Record
        let isWhole: Bool

        var main: ProcessIdentity? { record.understood("process") { ProcessID(&$0) }.first?.identity }
        var user: UInt32? { record.understood("user") { $0.number() as UInt32? }.first }
        var hold: Hold? { Hold(record) }

        /// Whether it is an application. Otherwise it was removed, and its processes are still held.
        var isApplication: Bool { isWhole && record["number"]?.fields == [name] }

        /// Whether another program has stopped its main process, as far as is known.
        var isStoppedByOthers: Bool { record["foreign-stop"] != nil }

        /// Ends its hold: see `Hold.release`.
        func release(
            sparingMain: Bool, proc: Proc, isForeign: (ProcessIdentity) -> Bool
        ) throws(KernelFailure) -> String? {
            guard let hold, let main, let user else { return nil }
            return try hold.release(
                main: main, known: Originals(record).processes, user: user, sparingMain: sparingMain,
                proc: proc, isForeign: isForeign)
        }
    }

    /// The names of all files, in the order of their numbers.
    func found() throws(KernelFailure) -> [String] {
        try names().sorted { (UInt32($0) ?? .max, $0) < (UInt32($1) ?? .max, $1) }
    }

    /// Throws only if descriptors or memory are lacking. Any other file that cannot be read is not whole.
    func read(_ name: String) throws(KernelFailure) -> Found {
        var bytes: [UInt8] = []
        do throws(KernelFailure) {
            bytes = try WholeFile.read("\(applications)/\(name)")
        } catch {
            if error.isExhaustion { throw error }
        }
        let (record, isWhole) = RecordFile.read(bytes)
        let found = Found(name: name, record: record, isWhole: isWhole)
        if let number = UInt32(name) {
            written[ApplicationNumber(number)] = (Self.hash(bytes), found.hold != nil)
        }
        return found
    }

    /// Leaves out drafts that were being written when their writer was killed, and removes them.
    private func names() throws(KernelFailure) -> [String] {
        try TextFile.entries(ofDirectory: applications).filter { name in
            guard name.hasSuffix(".new") else { return true }
            remove(named: name)
            return false
        }
    }

    // MARK: The daemon

    func writeDaemon(_ record: Record) {
        let bytes = RecordFile.bytes(record)
        guard daemonFile != bytes else { return }
        let failure = attempt { () throws(KernelFailure) in
            try WholeFile.write(bytes, to: "\(directory)/daemon")
        }
        if failure == nil { daemonFile = bytes }
    }

    func daemon() -> Record { RecordFile.read((try? WholeFile.read("\(directory)/daemon")) ?? []).record }

    /// A failure is logged once, because a full disk is not a reason to fill the journal as well.
    @discardableResult
    private func attempt(_ body: () throws(KernelFailure) -> Void) -> KernelFailure? {
        do throws(KernelFailure) {
            try body()
            return nil
        } catch {
            if !hasFailed {
                journal.log(
                    .error,
                    "the state may not survive a restart of the daemon, and nothing more is suspended: \(error)"
                )
            }
            hasFailed = true
            return error
        }
    }
}
