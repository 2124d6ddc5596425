import Glibc

/// What the kernel reports about the sandbox of a process. Two processes with equal values are in the same sandbox.
public struct Sandbox: Hashable, Sendable {
    /// Device and inode number of its PID namespace.
    public let namespaceDevice: UInt64
    public let namespace: UInt64
    /// The snap whose security label it carries, `NAME` of `snap.NAME.APPLICATION`; nil: none.
    public var snap: String?
    /// The path of the Flatpak's unit that it is in, one for each instance; nil: none.
    public let flatpak: String?

    /// The snap that a security label names.
    public static func snap(ofLabel label: String) -> String? {
        let words = label.split(separator: ".", maxSplits: 2)
        return words.count == 3 && words[0] == "snap" ? String(words[1]) : nil
    }

    /// The id of the application that a security label names, as snapd names its desktop entry: `NAME_APPLICATION`;
    /// nil: it names no application, or a hook.
    public static func snapApplication(ofLabel label: String) -> String? {
        let words = label.prefix { $0 != " " }.split(separator: ".")
        return words.count == 3 && words[0] == "snap" ? "\(words[1])_\(words[2])" : nil
    }

    /// The path of the Flatpak's unit within a cgroup's path: the outermost, because a process in it may make others
    /// below. Compares bytes: a slash and a combining mark after it are one character.
    public static func flatpak(ofCgroup path: String) -> String? {
        for name in path.utf8.split(separator: Cgroup.slash)
        where name.starts(with: "app-flatpak-".utf8) && name.suffix(6).elementsEqual(".scope".utf8) {
            return String(Substring(path.utf8[..<name.endIndex]))
        }
        return nil
    }
}

extension Proc {
    /// The sandbox of a process. Throws `ESRCH` if there is no such process, `EACCES` if we may not read it.
    public func sandbox(of pid: Int32) throws(KernelFailure) -> Sandbox {
        let path = path(pid, "ns/pid")
        var information = Glibc.stat()
        guard fstatat(AT_FDCWD, path, &information, 0) == 0 else {
            throw failure("stat", pid, "ns/pid", errno)
        }
        return Sandbox(
            namespaceDevice: UInt64(information.st_dev), namespace: UInt64(information.st_ino),
            snap: securityLabel(of: pid).flatMap(Sandbox.snap(ofLabel:)),
            flatpak: try unifiedCgroup(of: pid).flatMap(Sandbox.flatpak(ofCgroup:)))
    }

    /// The application id of a snap's process; nil: it belongs to no snap.
    public func snapApplication(of pid: Int32) -> String? {
        securityLabel(of: pid).flatMap(Sandbox.snapApplication(ofLabel:))
    }

    /// The label of the Linux security module; nil if there is none.
    private func securityLabel(of pid: Int32) -> String? {
        withPath(pid, "attr/current") { path in
            let label = Files.readOnce(path) { String(decoding: $0.rest.prefix { $0 != 0 }, as: UTF8.self) }
            return try? label.get()
        }
    }
}
