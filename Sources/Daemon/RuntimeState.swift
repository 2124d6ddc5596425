import AppStateBus
import Glibc
import LifeCycle
import Linux

/// What must survive this daemon, in files of `key=value` lines, one file an application, each written whole or
/// not at all: a hold stands there before it is enforced and until it is lifted (§ 5).
///
///     RUNTIME_DIRECTORY/bus              the bus that connections were of, and the boot
///     RUNTIME_DIRECTORY/numbers          the application number that was given last
///     RUNTIME_DIRECTORY/focus            who has the focus and is not registered
///     RUNTIME_DIRECTORY/applications/N   what is known of application N; its last line is `complete=yes`
///     RUNTIME_DIRECTORY/resources/N      what gives its processes their resources back: long, and seldom changed
final class RuntimeState {
    /// A file that was found at the start.
    enum Found {
        case whole(name: String, Record)
        /// Not to be understood: why, and what can be read of it all the same.
        case damaged(name: String, why: String, rest: Record)
    }

    private let directory: String
    private let journal: Journal
    private var written: [ApplicationNumber: String] = [:]
    private var lastNumber: UInt32?
    private var writtenFocus: String?
    private var hasFailed = false

    private static let end = "complete=yes"

    /// nil where there is no directory to write to: then nothing survives.
    init?(directory: String?, journal: Journal) {
        guard let directory, !directory.isEmpty else { return nil }
        // systemd.exec(5): several directories are separated by colons; the first is ours.
        self.directory = String(directory.prefix { $0 != ":" })
        self.journal = journal
        do {
            try WholeFile.makeDirectory(applications)
            try WholeFile.makeDirectory(resources)
        } catch {
            journal.log(.warning, "what is known will not survive this daemon: \(error)")
            return nil
        }
    }

    private var applications: String { directory + "/applications" }

    private var resources: String { directory + "/resources" }

    private func path(_ number: ApplicationNumber) -> String { "\(applications)/\(number)" }

    private func resourcesPath(_ number: ApplicationNumber) -> String { "\(resources)/\(number)" }

    // MARK: Writing

    /// Writes an application down, if what is known of it has changed.
    func write(_ number: ApplicationNumber, _ record: Record) {
        let text = Self.text(record)
        guard written[number] != text else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.write(text, to: path(number))
            written[number] = text
        }
    }

    /// Writes down what gives an application's processes back what they had; of nothing, no file is left.
    func writeResources(_ number: ApplicationNumber, _ entries: [String]) {
        attempt { () throws(KernelFailure) in
            guard !entries.isEmpty else { return try WholeFile.remove(resourcesPath(number)) }
            try WholeFile.write(
                Self.text(Record(entries.map { Record.Line("resource", $0.escaped) })),
                to: resourcesPath(number))
        }
    }

    func remove(_ number: ApplicationNumber) {
        guard written.removeValue(forKey: number) != nil else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.remove(resourcesPath(number))
            try WholeFile.remove(path(number))
        }
    }

    /// Removes a file that nobody could make an application of.
    func remove(named name: String) {
        attempt { () throws(KernelFailure) in
            try WholeFile.remove("\(resources)/\(name)")
            try WholeFile.remove("\(applications)/\(name)")
        }
    }

    /// Object paths are never given twice, whoever gives them.
    func noteLastNumber(_ number: UInt32) {
        guard number != lastNumber else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.write("last=\(number)\n\(Self.end)\n", to: directory + "/numbers")
            lastNumber = number
        }
    }

    /// Writes down the focus of processes that are not registered, if it has changed.
    func writeFocus(_ record: Record) {
        let text = Self.text(record)
        guard writtenFocus != text else { return }
        attempt { () throws(KernelFailure) in
            try WholeFile.write(text, to: directory + "/focus")
            writtenFocus = text
        }
    }

    func noteBus(_ id: String, boot: String) {
        attempt { () throws(KernelFailure) in
            try WholeFile.write("bus=\(id)\nboot=\(boot)\n\(Self.end)\n", to: directory + "/bus")
        }
    }

    /// Said once: a full disk is no reason to fill the journal too.
    private func attempt(_ body: () throws(KernelFailure) -> Void) {
        do {
            try body()
            hasFailed = false
        } catch {
            if !hasFailed { journal.log(.error, "what is known may not survive this daemon: \(error)") }
            hasFailed = true
        }
    }

    private static func text(_ record: Record) -> String {
        var text = ""
        for line in record.lines { text += "\(line.key)=\(line.value)\n" }
        return text + end + "\n"
    }

    // MARK: Reading

    /// The bus and the boot that the files are of; nil where they do not tell.
    func origin() -> (bus: String, boot: String)? {
        guard case .success(let record)? = try? Self.read(directory + "/bus"), let bus = record["bus"],
            let boot = record["boot"]
        else { return nil }
        return (bus, boot)
    }

    func lastGivenNumber() -> UInt32 {
        guard case .success(let record)? = try? Self.read(directory + "/numbers") else { return 0 }
        return record["last"].flatMap { UInt32($0) } ?? 0
    }

    /// What `writeFocus` wrote; nil where it did not, or not whole.
    func focus() -> Record? {
        guard case .success(let record)? = try? Self.read(directory + "/focus") else { return nil }
        return record
    }

    /// What `writeResources` wrote. Of a file that is damaged, what can be read.
    func resources(of number: ApplicationNumber) -> [String] {
        let record: Record
        switch try? Self.read(resourcesPath(number)) {
        case nil: return []
        case .success(let whole)?: record = whole
        case .failure(let damage)?:
            journal.log(.error, "resources of application \(number) of the daemon before: \(damage.why)")
            record = damage.rest
        }
        return record.values(of: "resource").compactMap(String.init(escaped:))
    }

    /// All applications that were written down, in the order of their numbers.
    func found() -> [Found] {
        var found: [(UInt32, Found)] = []
        for name in TextFile.names(inDirectory: applications) {
            // The draft of a file that was being written when its writer was killed.
            if name.hasSuffix(".new") {
                remove(named: name)
                continue
            }
            let number = UInt32(name) ?? .max
            do {
                switch try Self.read("\(applications)/\(name)") {
                case .success(let record) where record["number"] == name:
                    found.append((number, .whole(name: name, record)))
                case .success(let record):
                    let why = "it says number=\(record["number"] ?? "")"
                    found.append((number, .damaged(name: name, why: why, rest: record)))
                case .failure(let damage):
                    found.append((number, .damaged(name: name, why: damage.why, rest: damage.rest)))
                }
            } catch {
                found.append((number, .damaged(name: name, why: "\(error)", rest: Record())))
            }
        }
        return found.sorted { $0.0 < $1.0 }.map(\.1)
    }

    /// What was read of a file that is not whole.
    private struct Damage: Error {
        let why: String
        let rest: Record
    }

    private static func read(_ path: String) throws(KernelFailure) -> Result<Record, Damage> {
        let text = try TextFile.read(path)
        var lines: [Record.Line] = []
        var why: String?
        var isComplete = false
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            if line == end {
                isComplete = true
            } else if let equals = line.firstIndex(of: "="), equals > line.startIndex {
                lines.append(Record.Line(String(line[..<equals]), String(line[line.index(after: equals)...])))
            } else if !line.isEmpty {
                why = why ?? "line \(index + 1) is no assignment"
            }
        }
        if !isComplete { why = why ?? "it ends early" }
        let record = Record(lines)
        return why.map { .failure(Damage(why: $0, rest: record)) } ?? .success(record)
    }
}
