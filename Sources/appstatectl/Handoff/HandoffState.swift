import Glibc
import Linux

/// What is remembered about handoffs, in the user's state directory (XDG Base Directory Specification). It survives
/// this program, the application, the daemon and a reboot.
final class HandoffState {
    private let directory: String
    /// The directory, locked: nobody else reads or writes there.
    private let lock: Int32

    /// - Parameter part: `sent` and `received` have a directory each: a user may hand over to this machine itself.
    private init(_ part: String) throws(Failure) {
        let home = Environment["HOME"].map { "\($0)/.local/state" }
        guard
            let base = [Environment["XDG_STATE_HOME"], home].compactMap(\.self).first(where: {
                $0.hasPrefix("/")
            })
        else {
            throw Failure(
                "there is no place for what was handed over: neither HOME nor XDG_STATE_HOME is set")
        }
        directory = "\(base)/appstated/handoff/\(part)"
        do throws(KernelFailure) {
            try DurableFile.makeDirectory(directory)
        } catch {
            throw Failure("what was handed over cannot be remembered: \(error)")
        }
        lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard lock >= 0 else { throw Self.failure("open", directory) }
        while flock(lock, LOCK_EX) != 0 {
            guard errno == EINTR else { throw Self.failure("lock", directory) }
        }
    }

    deinit { close(lock) }

    private static func failure(_ operation: String, _ path: String) -> Failure {
        Failure(
            "what was handed over cannot be remembered: "
                + KernelFailure(operation: operation, subject: path, errno: errno).description)
    }

    private func bytes(of name: String) throws -> [UInt8] {
        try UserFile.bytes(of: "\(directory)/\(name)") ?? []
    }

    private func write(_ text: String, to name: String) throws(Failure) {
        do throws(KernelFailure) {
            try DurableFile.write(Array(text.utf8), to: name, in: directory)
        } catch {
            throw Failure("what was handed over cannot be remembered: \(error)")
        }
    }
}

// MARK: Received

extension HandoffState {
    /// The numbers of the activities that were delivered here. Until this value ends, no other process delivers one.
    static func received() throws(Failure) -> HandoffState { try HandoffState("received") }

    /// So many ids are remembered; those that were used longest ago are forgotten.
    private static let mostIDs = 256
    private static let list = "numbers"

    private func numbers() throws -> [(id: Substring, number: UInt64)] {
        String(decoding: try bytes(of: Self.list), as: UTF8.self).split(separator: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard words.count == 2, let number = UInt64(words[1]) else { return nil }
            return (words[0], number)
        }
    }

    /// Whether an activity was delivered, or a later one with the same id.
    func has(_ activity: Activity) throws -> Bool {
        try numbers().contains { $0.id == activity.id && $0.number >= activity.number }
    }

    /// An activity was delivered.
    func note(_ activity: Activity) throws {
        let others = try numbers().filter { $0.id != activity.id }.suffix(Self.mostIDs - 1)
        let all = others + [(activity.id[...], activity.number)]
        try write(all.map { "\($0.id) \($0.number)\n" }.joined(), to: Self.list)
    }
}

// MARK: Sent

extension HandoffState {
    /// The last activity of each application that was sent to each host, and whether it has arrived.
    static func sent() throws(Failure) -> HandoffState { try HandoffState("sent") }

    /// Gives an activity its id and number. They are those of the last attempt if that said the same, and is not known
    /// to have arrived.
    func number(_ activity: inout Activity, for host: String) throws {
        let name = Self.name(host, activity)
        if let (last, hasArrived) = try last(name) {
            activity.id = last.id
            activity.number = !hasArrived && last.says(activity) ? last.number : last.number + 1
        }
        try write("sending\n" + activity.json.text + "\n", to: name)
    }

    /// An activity has arrived at a host. What it said is forgotten.
    func arrived(_ activity: Activity, at host: String) throws {
        let name = Self.name(host, activity)
        // Another attempt may have followed.
        guard let (last, _) = try last(name), last.number == activity.number else { return }
        var rest = activity
        (rest.info, rest.file) = ([:], nil)
        try write("arrived\n" + rest.json.text + "\n", to: name)
    }

    private func last(_ name: String) throws -> (Activity, hasArrived: Bool)? {
        let lines = try bytes(of: name).split(separator: UInt8(ascii: "\n"))
        guard lines.count == 2, let activity = try? Activity(line: Array(lines[1])) else { return nil }
        return (activity, lines[0].elementsEqual("arrived".utf8))
    }

    /// A name for a file: a host may be a URL.
    private static func name(_ host: String, _ activity: Activity) -> String {
        let escaped = host.utf8.map { byte -> String in
            let letter = byte | 0x20
            let isPlain =
                (0x61...0x7A).contains(letter) || (0x30...0x39).contains(byte) || "-_@".utf8.contains(byte)
            return isPlain ? String(Unicode.Scalar(byte)) : "%" + String(byte, radix: 16)
        }.joined()
        return "\(escaped),\(activity.appID)"
    }
}
