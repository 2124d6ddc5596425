import AppStateContract
import LifeCycle
import Linux

/// Whose something is that is kept: a name of one user's. Another user's of the same name is another.
struct KeptID: Hashable, Sendable {
    let user: UInt32
    let application: ApplicationID
}

/// Where what is kept stands. Every file is whole after a power cut (`DurableFile`), and for the daemon's user alone.
///
///     STATE_DIRECTORY/applications/UID/ID   how application ID of user UID has ended (`KeptApplication`), as a record
///     STATE_DIRECTORY/states/UID/ID         what it has saved, byte by byte
///
/// An id that begins with `.` has `@` in its place, which no id contains.
struct KeptFiles: Sendable {
    private let directory: String

    /// - Parameter directories: STATE_DIRECTORY; of several, which colons separate (systemd.exec(5)), the first.
    init?(directories: String?) {
        guard let directories, let first = directories.split(separator: ":").first else { return nil }
        directory = String(first)
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

    // MARK: One file. Waits for the disk.

    /// nil: the application is forgotten.
    func write(_ record: [UInt8]?, of kept: KeptID) throws(KernelFailure) {
        let (name, directory) = (Self.name(of: kept.application), records(of: kept.user))
        guard let record else { return try DurableFile.remove(name, in: directory) }
        try DurableFile.write(record, to: name, in: directory)
    }

    func save(_ state: [UInt8], of kept: KeptID) throws(KernelFailure) {
        try DurableFile.write(state, to: Self.name(of: kept.application), in: states(of: kept.user))
    }

    func save(_ state: borrowing SealedMemory, of kept: KeptID) throws(KernelFailure) {
        try DurableFile.write(state, to: Self.name(of: kept.application), in: states(of: kept.user))
    }

    func dropState(of kept: KeptID) throws(KernelFailure) {
        try DurableFile.remove(Self.name(of: kept.application), in: states(of: kept.user))
    }

    /// Of what is saved, in bytes; nil: nothing is.
    func stateSize(of kept: KeptID) -> UInt64? { DurableFile.size(of: statePath(of: kept)) }

    func state(of kept: KeptID) throws(KernelFailure) -> [UInt8] { try WholeFile.read(statePath(of: kept)) }

    /// Open for reading; where nothing is saved, something that is empty.
    func openState(of kept: KeptID) throws(KernelFailure) -> Descriptor {
        guard let file = try DurableFile.open(statePath(of: kept)) else { return try DurableFile.openEmpty() }
        return file
    }

    private func statePath(of kept: KeptID) -> String {
        "\(states(of: kept.user))/\(Self.name(of: kept.application))"
    }

    // MARK: All of them

    /// What an earlier daemon has kept.
    ///
    /// - Parameter complain: told of each file that is not used, and why.
    func load(
        boot: String, now: UInt64, _ complain: (String) -> Void
    ) -> [KeptID: KeptApplication] {
        var found: [KeptID: KeptApplication] = [:]
        for (kept, path) in files(in: "\(directory)/applications") {
            do {
                found[kept] = try Self.application(path, boot: boot, now: now)
            } catch {
                complain("\(path): \(error)")
            }
        }
        for (kept, path) in files(in: "\(directory)/states") {
            guard let size = DurableFile.size(of: path) else { continue }
            found[kept, default: KeptApplication(usedAt: now)].stateSize = size
            found[kept]?.hasRun = true
        }
        return found
    }

    private static func application(
        _ path: String, boot: String, now: UInt64
    ) throws -> KeptApplication {
        let reading = RecordFile.read(try WholeFile.read(path))
        if let damage = reading.damage { throw Record.Flaw("file", damage) }
        return try KeptApplication(reading.record, boot: boot, now: now)
    }

    private func files(in directory: String) -> [(KeptID, path: String)] {
        var found: [(KeptID, path: String)] = []
        for user in TextFile.names(inDirectory: directory) {
            guard let number = UInt32(user) else { continue }
            for name in TextFile.names(inDirectory: "\(directory)/\(user)") {
                let path = "\(directory)/\(user)/\(name)"
                guard !DurableFile.isDraft(name) else {
                    // Its writer was killed.
                    try? WholeFile.remove(path)
                    continue
                }
                guard let id = Self.id(named: name) else { continue }
                found.append((KeptID(user: number, application: id), path))
            }
        }
        return found
    }
}
