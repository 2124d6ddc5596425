import AppStateContract
import LifeCycle
import Linux

/// The owner of kept data: an application name of one user. The same name of another user is a different
/// owner.
struct KeptID: Hashable, Sendable {
    let user: UInt32
    let application: ApplicationID
}

extension KeptID {
    init(_ owner: ScheduleOwner) { self.init(user: owner.user, application: owner.application) }

    var owner: ScheduleOwner { ScheduleOwner(user: user, application: application) }
}

/// The location of the files. Every file is intact after a power cut (`DurableFile`), and accessible to the
/// daemon's user only.
///
///     STATE_DIRECTORY/applications/UID/ID   how application ID of user UID has ended, and what launches it has
///                                           scheduled (`KeptApplication`), as a record
///     STATE_DIRECTORY/states/UID/ID         what it has saved, byte by byte
///
/// A `.` at the beginning of an id is replaced by `@`, which no id contains. Below RUNTIME_DIRECTORY/kept, there are
/// copies of the records with an end that is not on the disk yet.
struct KeptFiles: Sendable {
    private let directory: String

    /// - Parameter directories: STATE_DIRECTORY; if it names several, separated by colons (systemd.exec(5)), the first.
    init?(directories: String?) {
        guard let directories, let first = directories.split(separator: ":").first else { return nil }
        directory = String(first)
    }

    /// - Parameter runtimeDirectories: the same for RUNTIME_DIRECTORY.
    init?(copiesIn runtimeDirectories: String?) {
        guard let other = KeptFiles(directories: runtimeDirectories) else { return nil }
        directory = other.directory + "/kept"
    }

    private func records(of user: some CustomStringConvertible) -> String {
        "\(directory)/applications/\(user)"
    }

    private func states(of user: some CustomStringConvertible) -> String { "\(directory)/states/\(user)" }

    private static func name(of id: ApplicationID) -> String {
        id.rawValue.hasPrefix(".") ? "@" + id.rawValue.dropFirst() : id.rawValue
    }

    private static func id(named name: String) -> ApplicationID? {
        ApplicationID(name.hasPrefix("@") ? "." + name.dropFirst() : name)
    }

    // MARK: One file. These functions wait for the disk.

    /// nil: the application is forgotten.
    func write(_ record: [UInt8]?, of kept: KeptID) throws(KernelFailure) {
        let (name, directory) = (Self.name(of: kept.application), records(of: kept.user))
        guard let record else { return try DurableFile.remove(name, in: directory) }
        try DurableFile.write(record, to: name, in: directory)
    }

    /// Empty content removes the file.
    func save(_ content: SavedContent, of kept: KeptID) throws(KernelFailure) {
        let (name, directory) = (Self.name(of: kept.application), states(of: kept.user))
        switch content {
        case _ where content.size == 0: try dropState(of: kept)
        case .bytes(let bytes): try DurableFile.write(bytes, to: name, in: directory)
        case .memory(let shared): try DurableFile.write(shared.memory, to: name, in: directory)
        }
    }

    func dropState(of kept: KeptID) throws(KernelFailure) {
        try DurableFile.remove(Self.name(of: kept.application), in: states(of: kept.user))
    }

    /// The size of what is saved, in bytes; nil: nothing is saved.
    func stateSize(of kept: KeptID) throws(KernelFailure) -> UInt64? {
        try DurableFile.size(of: statePath(of: kept))
    }

    func state(of kept: KeptID) throws(KernelFailure) -> [UInt8] { try WholeFile.read(statePath(of: kept)) }

    /// Opens the file for reading; if nothing is saved, an empty one.
    func openState(of kept: KeptID) throws(KernelFailure) -> Descriptor {
        guard let file = try DurableFile.open(statePath(of: kept)) else { return try DurableFile.openEmpty() }
        return file
    }

    private func statePath(of kept: KeptID) -> String {
        "\(states(of: kept.user))/\(Self.name(of: kept.application))"
    }

    // MARK: All of them

    /// The data that an earlier daemon has kept, and the parts of it that are not used.
    struct Found: Sendable {
        var applications: [KeptID: KeptApplication] = [:]
        /// The reasons, with the paths.
        var complaints: [String] = []
    }

    /// Waits for the disk. Only for a daemon that has the name on the bus, because it removes files that a
    /// killed writer has left.
    func load(boot: String, now: UInt64) -> Found {
        var found = Found()
        for (kept, path) in files(in: "\(directory)/applications", &found.complaints) {
            do {
                found.applications[kept] = try Self.application(path, boot: boot, now: now)
            } catch {
                found.complaints.append("\(path): \(error)")
            }
        }
        for (kept, path) in files(in: "\(directory)/states", &found.complaints) {
            do {
                guard let size = try DurableFile.size(of: path), size > 0 else { continue }
                found.applications[kept, default: KeptApplication(usedAt: now)].stateSize = size
                found.applications[kept]?.hasRun = true
            } catch {
                found.complaints.append("\(path): \(error)")
            }
        }
        return found
    }

    private static func application(
        _ path: String, boot: String, now: UInt64
    ) throws -> KeptApplication {
        let (record, isWhole) = RecordFile.read(try WholeFile.read(path))
        guard isWhole else { throw Record.Flaw("end", nil) }
        return try KeptApplication(record, boot: boot, now: now)
    }

    private func files(in directory: String, _ complaints: inout [String]) -> [(KeptID, path: String)] {
        var found: [(KeptID, path: String)] = []
        for user in Self.names(in: directory, &complaints) {
            guard let number = UInt32(user) else { continue }
            for name in Self.names(in: "\(directory)/\(user)", &complaints) {
                let path = "\(directory)/\(user)/\(name)"
                guard !DurableFile.isDraft(name) else {
                    // Its writer was killed.
                    do throws(KernelFailure) {
                        try WholeFile.remove(path)
                    } catch {
                        complaints.append("\(error)")
                    }
                    continue
                }
                guard let id = Self.id(named: name) else { continue }
                found.append((KeptID(user: number, application: id), path))
            }
        }
        return found
    }

    private static func names(in directory: String, _ complaints: inout [String]) -> [String] {
        do throws(KernelFailure) {
            return try TextFile.entries(ofDirectory: directory)
        } catch {
            complaints.append("\(error)")
            return []
        }
    }
}

/// The content that a client saves.
enum SavedContent: Sendable {
    case bytes([UInt8])
    case memory(SharedMemory)

    var size: UInt64 {
        switch self {
        case .bytes(let bytes): UInt64(bytes.count)
        case .memory(let shared): shared.memory.size
        }
    }
}

/// A memory file that the worker reads.
final class SharedMemory: Sendable {
    let memory: SealedMemory
    init(_ memory: consuming SealedMemory) { self.memory = memory }
}
