import Glibc
import Linux

/// A line of `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).
struct Mount {
    let mountPoint: String
    /// For example `cgroup2`.
    let fileSystem: String

    /// A line such as `41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw`; nil for text
    /// that is no such line.
    init?(mountinfo line: String) {
        // Not by characters: a blank and a combining mark are one.
        let fields = line.utf8.split(separator: UInt8(ascii: " ")).map { Substring($0) }
        guard fields.count > 6, let dash = fields[6...].firstIndex(of: "-"), dash + 1 < fields.count else {
            return nil
        }
        mountPoint = Self.unescape(fields[4])
        fileSystem = String(fields[dash + 1])
    }

    /// The mounts that a process sees, in the order of the kernel; nil: they cannot be read.
    static func all(of process: String, _ proc: Proc) -> [Mount]? {
        guard let text = try? TextFile.read("\(proc.root)/\(process)/mountinfo") else { return nil }
        return text.utf8.split(separator: UInt8(ascii: "\n")).compactMap {
            Mount(mountinfo: String(Substring($0)))
        }
    }

    /// The kernel writes blank, tab, newline and backslash as a backslash and three octal digits.
    private static func unescape(_ field: Substring) -> String {
        var bytes: [UInt8] = []
        var rest = Array(field.utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.count >= 3,
                let value = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest.removeFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// The mounts that we see, read at once: where an examination of a file may wait without end, for a process that serves
/// the file system (FUSE) or for another machine.
struct MountTable: Sendable {
    /// In the order of the kernel; nil: they cannot be read.
    private let mounts: [(point: String, mayHang: Bool)]?

    /// As `fileSystem` of a mount. Below an automount, a lookup waits for the process that mounts.
    private static let remote: Set<String> = [
        "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "autofs",
    ]
    /// As many symbolic links as the kernel follows in one path (path_resolution(7)).
    private static let mostLinks = 40

    /// Reads `/proc/self/mountinfo`.
    init(_ proc: Proc = Proc()) {
        mounts = Mount.all(of: "self", proc)?.map { mount in
            let type = mount.fileSystem
            let isFUSE = type == "fuse" || type.hasPrefix("fuse.")
            return (mount.mountPoint, isFUSE || Self.remote.contains(type))
        }
    }

    /// Whether an examination of a file may wait without end. Looks at nothing but the list of mounts. True if that could
    /// not be read. A root directory on another machine does not count: without it, nothing on this one works.
    ///
    /// - Parameter path: absolute, without symbolic links.
    func mayHang(_ path: String) -> Bool {
        guard let mounts else { return true }
        var longest = 0
        var mayHang = false
        // The last mount on a place is the visible one.
        for mount in mounts where mount.point != "/" && mount.point.utf8.count >= longest {
            guard path.hasBytes(prefix: mount.point),
                path.utf8.count == mount.point.utf8.count
                    || path.utf8.dropFirst(mount.point.utf8.count).first == UInt8(ascii: "/")
            else { continue }
            longest = mount.point.utf8.count
            mayHang = mount.mayHang
        }
        return mayHang
    }

    /// The path without symbolic links. The file itself need not exist.
    ///
    /// - Parameter path: absolute.
    /// - Returns: nil if a directory in it does not exist or cannot be searched, or if an examination of one of its parts,
    ///   the file included, may wait without end.
    func resolve(_ path: String) -> String? {
        guard path.hasBytes(prefix: "/") else { return nil }
        var rest = Self.parts(of: path)
        var done: [Substring] = []
        var links = 0
        while let name = rest.popLast() {
            if name == "." { continue }
            if name == ".." {
                _ = done.popLast()
                continue
            }
            let next = "/" + (done + [name]).joined(separator: "/")
            if mayHang(next) { return nil }
            var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
            let count = readlink(next, &buffer, buffer.count)
            if count < 0 {
                // EINVAL: it is no symbolic link.
                guard errno == EINVAL || errno == ENOENT && rest.isEmpty else { return nil }
                done.append(name)
                continue
            }
            links += 1
            guard links <= Self.mostLinks else { return nil }
            let target = String(decoding: buffer.prefix(count).map(UInt8.init(bitPattern:)), as: UTF8.self)
            if target.hasBytes(prefix: "/") { done = [] }
            rest += Self.parts(of: target)
        }
        return "/" + done.joined(separator: "/")
    }

    /// The last one first.
    private static func parts(of path: String) -> [Substring] {
        path.utf8.split(separator: UInt8(ascii: "/")).reversed().map { Substring($0) }
    }
}
