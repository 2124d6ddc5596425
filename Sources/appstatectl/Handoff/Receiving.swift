import AppStateBus
import AppStateContract
import ArgumentParser
import Desktop
import Glibc
import Linux
import SessionRules

/// What became of an activity.
struct Reception {
    let appID: String
    /// nil: it had been delivered before.
    let path: String?
    /// The file that came along.
    let file: String?

    func show(_ output: OutputOptions) throws {
        if output.json { return Terminal.emit(json) }
        guard let path else { return Terminal.warn("appstatectl: \(appID) has continued this already") }
        Terminal.emit(Line(path))
    }

    /// What `continue --json` prints.
    private var json: JSON {
        .object(
            [("app_id", .string(appID)), ("delivered", .bool(path != nil))]
                + (path.map { [("path", .string($0))] } ?? []) + (file.map { [("file", .string($0))] } ?? []))
    }
}

extension Client {
    /// Delivers an activity to an application that declares its type, once.
    ///
    /// - Parameter input: has the file, if there is one.
    func receive(_ activity: Activity, from input: inout StandardInput) throws -> Reception {
        guard let appID = Receivers().application(for: activity) else {
            throw Failure(
                "no application here continues activities of the type \(activity.type)", .noReceiver)
        }
        let file = try activity.file.map { try ReceivedFile($0, from: &input) }
        defer { file?.discard() }
        // Whoever has sent it may be gone by now. What was begun is finished, so that a second attempt finds it.
        for number in [SIGHUP, SIGTERM] { signal(number, SIG_IGN) }
        let memory = try HandoffState.received()
        if try memory.has(activity) { return Reception(appID: appID, path: nil, file: nil) }
        let place = try file?.place()
        let path: String
        do {
            path = try launch(
                LaunchOrder(
                    appID: appID, urls: place.map { [FileURL.url(of: $0)] } ?? [], reason: .activity,
                    isBackground: false, activity: activity))
            try waitUntilTaken(path, appID)
        } catch {
            // The next attempt brings it along again.
            if let place { unlink(place) }
            throw error
        }
        do {
            try memory.note(activity)
        } catch let failure as Failure {
            Terminal.warn("appstatectl: \(appID) continues it, but \(failure.sentence)")
        }
        return Reception(appID: appID, path: path, file: place)
    }

    /// An activity reaches a delegate once the application has launched. Nobody else takes it.
    private func waitUntilTaken(_ path: String, _ appID: String) throws {
        guard let delegate = try delegate(onceLaunched: path) else {
            throw Failure("\(appID) has ended before it could continue anything")
        }
        guard !delegate.isEmpty else {
            throw Failure(
                "\(appID) declares the type, but continues nothing: it has no delegate", .noReceiver)
        }
    }

    /// The delegate of an application once it has launched, empty if it has none; nil: it has ended before.
    private func delegate(onceLaunched path: String) throws -> String? {
        let subscription = try Subscription(self)
        var delegate: String?
        func look() throws {
            do {
                let facts = Dictionary(try explanation(of: path).map { ($0.key, $0.value) }) { $1 }
                if case .bool(true)? = facts["launching"] { return }
                if case .string(let name)? = facts["delegate"] { delegate = name }
            } catch let failure as Failure where failure.verdict == .noSuchApplication {
                // It has ended.
            }
            subscription.end(0)
        }
        let code = try subscription.run { _ in
            try look()
        } heard: { message in
            let members = [ManagerSignal.applicationRemoved, .resync].map(\.rawValue)
            guard message.path == path || message.member.map(members.contains) == true else { return }
            do { try look() } catch { subscription.leave(error) }
        }
        guard code == 0 else { throw ExitCode(code) }
        return delegate
    }
}

/// The applications of this user that continue activities.
private struct Receivers {
    private let entries = DesktopEntries(complain: { Terminal.warn("appstatectl: \($0)") })
    private let rules = Configuration(reading: .system).rules

    /// The application for an activity: the one that has announced it, if it is one of them; otherwise one that a rule
    /// names comes first. Nil: none declares its type.
    func application(for activity: Activity) -> String? {
        var found: String?
        var isByRule = false
        for entry in entries.all {
            let id = entry.id
            let byRule = rules.contains {
                $0.activityTypes?.contains(activity.type) == true && $0.matches(id: id)
            }
            guard byRule || entry.activityTypes.contains(activity.type) else { continue }
            if id == activity.appID { return id }
            if found == nil || byRule && !isByRule { (found, isByRule) = (id, byRule) }
        }
        return found
    }
}

extension Rule {
    fileprivate func matches(id: String) -> Bool {
        var traits = Traits()
        traits[.id] = [id]
        return match(traits) != nil
    }
}

/// A file that came with an activity. It has another name until the activity is delivered.
private struct ReceivedFile {
    private let name: String
    private let directory: String
    private var draft: String { "\(directory)/.appstatectl.\(getpid()).part" }

    /// Reads it.
    init(_ file: Activity.File, from input: inout StandardInput) throws {
        name = file.name
        guard !name.isEmpty, name != ".", name != "..", !name.utf8.contains(UInt8(ascii: "/")) else {
            throw Failure("\"\(name)\" is not the name of a file")
        }
        directory = try Self.downloads()
        let draft = draft
        let number = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o666)
        guard number >= 0 else { throw Self.failure(draft) }
        do {
            let descriptor = Descriptor(owning: number)
            try input.bytes(file.size) { bytes in
                var rest = bytes
                while !rest.isEmpty {
                    let count = rest.withUnsafeBytes { write(number, $0.baseAddress, $0.count) }
                    if count < 0, errno == EINTR { continue }
                    guard count > 0 else { throw Self.failure(draft) }
                    rest = rest.dropFirst(count)
                }
            }
            guard fsync(descriptor.rawValue) == 0 else { throw Self.failure(draft) }
        } catch {
            unlink(draft)
            throw error
        }
    }

    /// Gives it its own name, or one with a number if there is such a file.
    func place() throws -> String {
        let dot = name.dropFirst().lastIndex(of: ".") ?? name.endIndex
        for number in 0..<1_000 {
            let path = directory + "/" + name[..<dot] + (number == 0 ? "" : " (\(number))") + name[dot...]
            // The new name is ours before the file is moved there, so that nothing is replaced.
            let reserved = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
            if reserved < 0, errno == EEXIST { continue }
            guard reserved >= 0 else { throw Self.failure(path) }
            close(reserved)
            guard rename(draft, path) == 0 else {
                let failure = Self.failure(path)
                unlink(path)
                throw failure
            }
            return path
        }
        throw Failure("\(directory) has too many files that are called \(name)")
    }

    func discard() { unlink(draft) }

    private static func failure(_ path: String) -> Failure {
        Failure("\(path) cannot be written: \(String(cString: strerror(errno)))")
    }

    /// The user's directory for downloads: xdg-user-dirs(1).
    private static func downloads() throws -> String {
        guard let home = Environment["HOME"], home.hasPrefix("/") else {
            throw Failure("there is no place for the file: HOME is not set")
        }
        let configuration = Environment["XDG_CONFIG_HOME"] ?? "\(home)/.config"
        let key = "XDG_DOWNLOAD_DIR=\""
        let lines = ((try? TextFile.read("\(configuration)/user-dirs.dirs")) ?? "").split(separator: "\n")
        var directory = "\(home)/Downloads"
        if let line = lines.last(where: { $0.hasPrefix(key) }), line.hasSuffix("\"") {
            let value = line.dropFirst(key.count).dropLast()
            if value.hasPrefix("$HOME/") { directory = home + value.dropFirst("$HOME".count) }
            if value.hasPrefix("/") { directory = String(value) }
        }
        guard mkdir(directory, 0o777) == 0 || errno == EEXIST else { throw failure(directory) }
        return directory
    }
}
