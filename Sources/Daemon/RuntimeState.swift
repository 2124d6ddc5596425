import AppStateBus
import Glibc
import LifeCycle
import Linux

/// What must survive this daemon, in files of records (`RecordFile`), each written whole or not at all: a hold stands
/// there before it is enforced and until it is lifted (§ 5).
///
///     RUNTIME_DIRECTORY/holds/N          whom we have frozen or stopped of application N: as long as we have
///     RUNTIME_DIRECTORY/applications/N   what is known of application N
///     RUNTIME_DIRECTORY/resources/N      what gives its processes their resources back: long, and seldom changed
///     RUNTIME_DIRECTORY/numbers          the application number that was given last
///     RUNTIME_DIRECTORY/focus            who has the focus and is not registered
///
/// Each of the first two says whom to let go, and each says which boot it is of: whatever becomes of one file, the other
/// is enough.
final class RuntimeState {
    /// What was found of one application at the start.
    struct Found {
        let name: String
        /// nil for a name that is no number, and so none of ours.
        let number: ApplicationNumber?
        var application: RecordFile.Reading?
        var holds: RecordFile.Reading?

        /// Whom to let go, as far as either file tells.
        var holding: Holding {
            let told = Holding(holds?.record ?? Record())
            return told.with(Holding(application?.record ?? Record()))
        }

        /// Whether more may be held than is told: nothing that is whole says so.
        var mayHoldMore: Bool {
            guard damage != nil, holding.freeze == nil else { return false }
            return holds?.damage != nil || application?.isFormer == true
        }

        /// Which boot it is of, as far as that is told.
        var boot: String? {
            for reading in [application, holds] {
                if let boot = reading?.record["boot"]?.fields.first, !boot.isEmpty { return boot }
            }
            return nil
        }

        /// Why nobody could make an application of it; nil where nothing is wrong with it.
        var damage: String? {
            guard let application else { return "there is no record of it" }
            if let damage = application.damage { return damage }
            let number = application.record["number"]?.fields.first ?? ""
            return number == name ? nil : "it says that it is application \(number)"
        }
    }

    private let directory: String
    private let journal: Journal
    private var written: [ApplicationNumber: [UInt8]] = [:]
    private var writtenHolds: [ApplicationNumber: [UInt8]] = [:]
    private var lastNumber: UInt32?
    private var writtenFocus: [UInt8]?
    private var hasFailed = false
    private var origin: [Record.Line] = []

    /// nil where there is no directory to write to: then nothing survives.
    init?(directory: String?, journal: Journal) {
        guard let directory, !directory.isEmpty else { return nil }
        self.directory = Self.first(of: directory)
        self.journal = journal
        // Where these cannot be made nothing can be written, and so nobody is stopped.
        for directory in [applications, holds, resources] {
            attempt { () throws(KernelFailure) in try WholeFile.makeDirectory(directory) }
        }
    }

    /// systemd.exec(5): several directories are separated by colons; the first is ours.
    private static func first(of directories: String) -> String { String(directories.prefix { $0 != ":" }) }

    private var applications: String { directory + "/applications" }

    private var holds: String { directory + "/holds" }

    private var resources: String { directory + "/resources" }

    private func path(_ number: ApplicationNumber) -> String { "\(applications)/\(number)" }

    private func holdsPath(_ number: ApplicationNumber) -> String { "\(holds)/\(number)" }

    private func resourcesPath(_ number: ApplicationNumber) -> String { "\(resources)/\(number)" }

    // MARK: Writing

    /// What everything that is written from now on is of.
    func begin(bus: String, boot: String) { origin = [Record.Line("boot", boot), Record.Line("bus", bus)] }

    /// Writes an application down, if what is known of it has changed. Whom we hold comes first, in a file of its own.
    ///
    /// - Returns: why it could not be; nil: it stands there now.
    func write(_ number: ApplicationNumber, _ record: Record, _ holding: Holding) -> KernelFailure? {
        let held = holding.lines
        let bytes = RecordFile.bytes(Record(origin + held + record.lines))
        let formerHolds = writtenHolds[number]
        do throws(KernelFailure) {
            if !held.isEmpty {
                let heldBytes = RecordFile.bytes(Record(origin + held))
                if heldBytes != formerHolds {
                    try WholeFile.write(heldBytes, to: holdsPath(number))
                    writtenHolds[number] = heldBytes
                }
            }
            if written[number] != bytes {
                do throws(KernelFailure) {
                    try WholeFile.write(bytes, to: path(number))
                } catch {
                    takeBack(number, formerHolds)
                    throw error
                }
                written[number] = bytes
            }
            if held.isEmpty, formerHolds != nil {
                try WholeFile.remove(holdsPath(number))
                writtenHolds[number] = nil
            }
            hasFailed = false
            return nil
        } catch {
            complain(error)
            return error
        }
    }

    /// The two files of an application tell of the same holds.
    private func takeBack(_ number: ApplicationNumber, _ former: [UInt8]?) {
        guard former == nil, writtenHolds.removeValue(forKey: number) != nil else { return }
        attempt { () throws(KernelFailure) in try WholeFile.remove(holdsPath(number)) }
    }

    /// Whether both files of an application tell of just this already: an earlier daemon wrote them.
    func hasRecorded(_ number: ApplicationNumber, _ holding: Holding) -> Bool {
        guard let application = written[number], let holds = writtenHolds[number] else { return false }
        return [application, holds].allSatisfy { Holding(RecordFile.read($0).record) == holding }
    }

    /// Writes down what gives an application's processes back what they had; of nothing, no file is left.
    func writeResources(_ number: ApplicationNumber, _ entries: [String]) {
        attempt { () throws(KernelFailure) in
            guard !entries.isEmpty else { return try WholeFile.remove(resourcesPath(number)) }
            let record = Record(entries.map { Record.Line("resource", $0) })
            try WholeFile.write(RecordFile.bytes(record), to: resourcesPath(number))
        }
    }

    /// Forgets an application that has ended.
    ///
    /// - Parameter isHeld: its cgroup could not be thawed; the next daemon tries again.
    func remove(_ number: ApplicationNumber, isHeld: Bool = false) {
        remove(named: number.description, isHeld: isHeld)
    }

    /// Removes what stands under this name.
    func remove(named name: String, isHeld: Bool = false) {
        if let number = Self.number(name) {
            written[number] = nil
            writtenHolds[number] = nil
        }
        attempt { () throws(KernelFailure) in
            try WholeFile.remove("\(resources)/\(name)")
            if !isHeld { try WholeFile.remove("\(holds)/\(name)") }
            try WholeFile.remove("\(applications)/\(name)")
        }
    }

    /// Object paths are never given twice, whoever gives them.
    func noteLastNumber(_ number: UInt32) {
        guard number != lastNumber else { return }
        attempt { () throws(KernelFailure) in
            let record = Record([Record.Line("last", String(number))])
            try WholeFile.write(RecordFile.bytes(record), to: directory + "/numbers")
            lastNumber = number
        }
    }

    /// Writes down the focus of processes that are not registered, if it has changed.
    func writeFocus(_ record: Record) {
        let bytes = RecordFile.bytes(Record(origin + record.lines))
        guard writtenFocus != bytes else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.write(bytes, to: directory + "/focus")
            writtenFocus = bytes
        }
    }

    private func attempt(_ body: () throws(KernelFailure) -> Void) {
        do throws(KernelFailure) {
            try body()
        } catch {
            complain(error)
        }
    }

    /// Said once: a full disk is no reason to fill the journal too.
    private func complain(_ failure: KernelFailure) {
        if !hasFailed {
            journal.log(
                .error, "what is known may not survive this daemon, and nothing more is suspended: \(failure)"
            )
        }
        hasFailed = true
    }

    // MARK: Reading

    /// nil where that is not known any more.
    func lastGivenNumber() -> UInt32? {
        guard let bytes = try? WholeFile.read(directory + "/numbers") else { return nil }
        return RecordFile.read(bytes).record.understood("last") { $0.number() as UInt32? }.first
    }

    /// What `writeFocus` wrote; nil where it did not, or not whole, or before another boot.
    func focus(boot: String) -> Record? {
        guard let bytes = try? WholeFile.read(directory + "/focus") else { return nil }
        let reading = RecordFile.read(bytes)
        guard reading.damage == nil, reading.record["boot"]?.fields == [boot] else { return nil }
        return reading.record
    }

    /// What `writeResources` wrote. Of a file that is damaged, what can be read.
    func resources(of name: String) -> [String] {
        guard let bytes = try? WholeFile.read("\(resources)/\(name)") else { return [] }
        if FormerRecord.isOne(bytes) { return FormerRecord.resources(bytes) }
        let reading = RecordFile.read(bytes)
        if let damage = reading.damage {
            journal.log(.error, "resources of application \(name) of the daemon before: \(damage)")
        }
        return reading.record.understood("resource") { $0.text() }
    }

    /// All applications that were written down, in the order of their numbers.
    func found() -> [Found] {
        var found: [String: Found] = [:]
        for (name, reading) in readings(in: applications) {
            found[name, default: Found(name: name, number: Self.number(name))].application = reading
        }
        for (name, reading) in readings(in: holds) {
            found[name, default: Found(name: name, number: Self.number(name))].holds = reading
        }
        // Of the version before.
        attempt { () throws(KernelFailure) in try WholeFile.remove(directory + "/bus") }
        return found.values.sorted {
            ($0.number?.rawValue ?? .max, $0.name) < ($1.number?.rawValue ?? .max, $1.name)
        }
    }

    private static func number(_ name: String) -> ApplicationNumber? {
        UInt32(name).flatMap { String($0) == name ? ApplicationNumber($0) : nil }
    }

    private func readings(in directory: String) -> [(name: String, RecordFile.Reading)] {
        var found: [(String, RecordFile.Reading)] = []
        for name in TextFile.names(inDirectory: directory) {
            let path = "\(directory)/\(name)"
            // The draft of a file that was being written when its writer was killed.
            if name.hasSuffix(".new") {
                attempt { () throws(KernelFailure) in try WholeFile.remove(path) }
                continue
            }
            do throws(KernelFailure) {
                let bytes = try WholeFile.read(path)
                found.append((name, FormerRecord.reading(bytes) ?? RecordFile.read(bytes)))
                guard let number = Self.number(name) else { continue }
                if directory == holds { writtenHolds[number] = bytes } else { written[number] = bytes }
            } catch {
                found.append((name, RecordFile.Reading(Record(), damage: "\(error)")))
            }
        }
        return found
    }
}
