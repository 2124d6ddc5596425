import Glibc
import Linux

/// The agent's own configuration: where it stands, and what it says.
struct Configuration {
    typealias Complaint = ConfigurationFile.Complaint

    /// Where the configuration is read from.
    enum Source: Equatable {
        /// Each file on top of those before it; any may be missing.
        case layers([String])
        /// One file alone; that it is missing is a complaint.
        case file(String)

        /// The administrator's, and the user's on top of it (XDG Base Directory Specification).
        static var system: Source {
            func directory(_ name: String, _ below: String = "") -> String? {
                guard let value = getenv(name).map({ String(cString: $0) }), value.hasPrefix("/") else {
                    return nil
                }
                return value + below
            }
            let own = directory("XDG_CONFIG_HOME") ?? directory("HOME", "/.config")
            return .layers((["/etc", own].compactMap(\.self)).map { $0 + "/appstated/session.conf" })
        }
    }

    /// How those are registered that are adopted: `suspension` of org.appstate1.Manager.Register.
    enum Suspension: String, CaseIterable {
        case manual
        case automatic
        case never
    }

    /// `Adopt=`
    private(set) var adopt = Patterns()
    /// `AdoptSuspension=`
    private(set) var suspension = Suspension.manual
    private(set) var complaints: [Complaint] = []

    /// Reads what is there. Never fails: what cannot be taken becomes a complaint.
    init(reading source: Source) {
        switch source {
        case .file(let path): read(path, mayBeMissing: false)
        case .layers(let paths): for path in paths { read(path, mayBeMissing: true) }
        }
    }

    private mutating func read(_ path: String, mayBeMissing: Bool) {
        do throws(KernelFailure) {
            take(ConfigurationFile(try TextFile.read(path), name: path), named: path)
        } catch {
            guard !(error.isNoSuchFile && mayBeMissing) else { return }
            complaints.append(Complaint(file: path, line: 0, key: "", problem: "\(error)"))
        }
    }

    private mutating func take(_ file: ConfigurationFile, named name: String) {
        complaints += file.complaints
        for (section, line) in file.sections where section != "Session" {
            complaints.append(
                Complaint(file: name, line: line, key: "", problem: "[\(section)] is no section"))
        }
        for line in file.assignments where line.section == "Session" {
            complaints += apply(line.key, line.value).map { problem in
                Complaint(file: name, line: line.line, key: line.key, problem: problem)
            }
        }
    }

    /// Takes one line; answers what is wrong with it. An empty value puts the default back.
    private mutating func apply(_ key: String, _ value: String) -> [String] {
        switch key {
        case "Adopt":
            // systemd.syntax(7): a list may be given in several lines; an empty one starts it anew.
            if value.isEmpty { adopt = Patterns() }
            return value.split(whereSeparator: \.isWhitespace).compactMap { adopt.add(String($0)) }
        case "AdoptSuspension":
            guard let choice = value.isEmpty ? .manual : Suspension(rawValue: value) else {
                return [
                    "\"\(value)\" is none of " + Suspension.allCases.map(\.rawValue).joined(separator: ", ")
                ]
            }
            suspension = choice
            return []
        default: return ["no such key in [Session]"]
        }
    }
}

/// Patterns of application ids, as fnmatch(3) understands them; those that begin with `!` take out what others let in,
/// in whatever order they stand.
struct Patterns: Equatable {
    private var included: [String] = []
    private var excluded: [String] = []

    /// Nothing matches.
    var isEmpty: Bool { included.isEmpty }

    /// Takes one more; answers what is wrong with it.
    mutating func add(_ word: String) -> String? {
        let isExclusion = word.hasPrefix("!")
        let pattern = isExclusion ? String(word.dropFirst()) : word
        guard !pattern.isEmpty, pattern.utf8.allSatisfy(Self.allows) else {
            return
                "\"\(word)\" can match no application's id: those are of A-Z, a-z, 0-9, \".\", \"_\" and \"-\""
        }
        if isExclusion { excluded.append(pattern) } else { included.append(pattern) }
        return nil
    }

    /// What ids consist of, and what stands for it in patterns.
    private static func allows(_ byte: UInt8) -> Bool {
        switch Character(Unicode.Scalar(byte)) {
        case "A"..."Z", "a"..."z", "0"..."9", ".", "_", "-", "*", "?", "[", "]", "!", "^", ":": true
        default: false
        }
    }

    /// Whether an id is let in, and not taken out.
    func matches(_ id: String) -> Bool {
        func matches(_ pattern: String) -> Bool { fnmatch(pattern, id, 0) == 0 }
        return included.contains(where: matches) && !excluded.contains(where: matches)
    }
}
